"""Signs of struggle inside of runs: loops, refusals, work taken back, tests that end red.

A sign is never a score but something recorded: which calls, how many, and their cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected, pool
from stateanalytics.core.schema import ENTITY_KEY, SIGNS, TURNS
from stateanalytics.core.windows import Window, read_window
from stateanalytics.core.words import first_word
from stateanalytics.failures.call_outcomes import calls, place_in_time, recorded, recorded_once
from stateanalytics.failures.frames import EFFORT
from stateanalytics.state.definitions import FAILURES
from stateanalytics.state.policy import Policy
from stateanalytics.systems.tool_calls import POLLS

_THREAD = ["source", "thread_id"]
LOOPS = ("repeated_error", "repeated_call", "alternating")
"""Signs of calls without progress."""
GIVEN_UP = ("gave_up", "empty_answer", "cut_answer")
"""Signs of a missing or useless answer."""
_OF_ONE_CALL = (*LOOPS, "tests_failing", "unchanged_retry")
WEAK = ("unchanged_retry", "interrupted", "corrected", "taken_back", "compacted")
"""Signs that good work has as well, so that two of them are needed."""
WORDS = {
    "repeated_error": "the same failing call",
    "repeated_call": "the same call and result",
    "alternating": "call of a pair that alternates",
    "tests_failing": "tests fail at the end",
    "gave_up": "the last answer gives up",
    "empty_answer": "the last answer is empty",
    "cut_answer": "the last answer is cut",
    "tool_down": "call to a server that is not available or that a sandbox refuses",
    "denied": "refused call",
    "provider_retries": "request tried again",
    "only_answers": "turn with answers in a row and no call",
    "mostly_failing": "failed call, more than succeeded",
    "interrupted": "stopped by a person",
    "corrected": "corrected by a person",
    "taken_back": "change taken back",
    "unchanged_retry": "failed call, repeated unchanged",
    "compacted": "conversation compacted",
}
"""Each sign in words, to follow its number; the most telling come first."""
_AWAY = (
    r"(?:not connected|disconnected|unavailable|failed to (?:connect|start)"
    r"|transport (?:is )?closed|connection (?:closed|refused|failed|lost|reset)|ECONNREFUSED)"
)
# Only messages of clients about their tool servers, and of programs that sandbox commands. What
# other programs print about servers or sandboxes is no sign.
_NO_SERVER = (
    rf"(?i)^\W*(?:error:?\s*)*(?:mcp\b.{{0,80}}(?:{_AWAY}|timed out)"
    r"|(?:no such tool available|unsupported call):? *mcp__)"
)
_NO_SERVER_OF_MCP = rf"(?i)\b{_AWAY}|no such tool available|^unsupported call"
_UNSTARTED = (
    r"(?i)command (?:\S+ )?not found|\bsh: .{0,60}: not found|no such command|no module named"
    r"|cannot find (?:module|package)|unsupported[ _]e\w+|ebadengine|requires node\b"
)
"""Messages that show that a runner of tests did not start."""
_FENCED = (
    r"(?im)\A\W*(?:(?:execution )?error:?\s*|exec_command failed[^:]*:\s*|CreateProcess[^:]*:\s*)*"
    r"(?:sandbox(?:ed)? ?(?:error|\(?denied)|failed in sandbox|command was denied by the sandbox)"
    r"|^(?:bwrap|sandbox-exec|landlock|seatbelt):|: read-only file system\W*$|<sandbox_violations>"
)

_READERS = (
    *("read", "grep", "glob", "ls", "list", "view", "read_file", "list_dir", "view_image"),
    *("todowrite", "update_plan"),
)
"""Tools that change nothing in a project."""
_OF_CALLS = ("tool", "target", "message", "n_answer_tokens")
"""Columns of calls that turns do not have."""
_OF_TURNS = {
    "provider_retries": "n_retries",
    "interrupted": "is_interrupted",
    "compacted": "n_compactions",
}
"""Signs that turns record, and the column with the number or mark of each turn."""


def turns(snap: Facts) -> pl.DataFrame:
    """Every turn, of all systems that record what happens in them.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.

    Returns
    -------
    polars.DataFrame
        `schema.TURNS`, in their order within each thread.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.
    """
    rows = recorded(checked_snapshot(snap, "failures.signs"), TURNS)
    return recorded_once(rows, snap.entities).sort(*_THREAD, "turn_no", maintain_order=True)


def signs(snap: Facts, *, window: object = None, policy: Policy | None = None) -> pl.DataFrame:
    """Signs that a run struggled, however it ended.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        Only calls and turns that began in it: as in `read_window`; None: all time.
    policy : Policy, optional
        Numbers from which calls and turns are a sign (``signs``); v1 by default.

    Returns
    -------
    polars.DataFrame
        `schema.SIGNS`: a row for each sign of a session or subagent, the costliest first.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the window makes no sense.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.failures.signs(sa.demo()).is_empty()
    True
    """
    called, turned, every = in_window(snap, window)
    return signs_of(called, turned, policy or Policy.v1(), every)


def in_window(snap: Facts, window: object) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The `calls` and `turns` that began in a window (None: all), and all turns."""
    called, turned = calls(snap), turns(snap)
    if window is None:
        return called, turned, turned
    chosen = read_window(window, as_of=snap.as_of)
    return began_in(called, chosen), began_in(turned, chosen), turned


def began_in(rows: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The calls or turns that began in a window."""
    return rows.filter(window.holds("started_at"))


def signs_of(
    called: pl.DataFrame, turned: pl.DataFrame, policy: Policy, every: pl.DataFrame
) -> pl.DataFrame:
    """The `signs` of some calls and turns; ``every`` also has the turns before them."""
    rules = dict(policy.signs)
    is_failed = pl.col("outcome").is_in(FAILURES)
    nth = pl.int_range(pl.len()).over(_THREAD)
    rows = called.with_columns(nth=nth, place=place_in_time(), is_failed=is_failed)
    # A call with an unknown input equals no other call.
    known = rows.filter(pl.col("input_digest").is_not_null())
    are_all = (pl.col("outcome") == "denied").all().over(_THREAD)
    denied = rows.with_columns(are_all=are_all).filter(outcome="denied")
    repeated = _repeated(known, rules)
    errors = repeated.filter(sign="repeated_error")
    # If a single loop is all that failed, only one of the signs is reported.
    same = [*_THREAD, "first_call", "n_calls"]
    found = [
        repeated,
        _alternating(known, rules),
        _signs(denied, "denied", pl.when("are_all").then(1).otherwise(rules["n_denied"])),
        _signs(rows.filter(_is_down()), "tool_down", rules["n_down"]),
        _signs(_taken_back(rows), "taken_back"),
        _tests_failing(rows),
        _mostly_failing(rows, rules).join(errors, on=same, how="anti", maintain_order="left"),
        *_of_turns(rows, turned, rules, every),
    ]
    return pool(found, SIGNS).sort(
        *("lost_s", "n_calls", *_THREAD, "sign", "first_call"),
        descending=[True, True, *[False] * 4],
        nulls_last=True,
    )


def _repeated(known: pl.DataFrame, rules: Mapping[str, float]) -> pl.DataFrame:
    """Equal calls in a row; if all of them fail, fewer are enough."""
    call = (*_THREAD, "part_id", "tool", "input_digest")
    # Any call in between, also one with an unknown input, ends the row.
    gap = (pl.col("nth").diff() != 1).fill_null(value=False).cum_sum()
    failing = known.with_columns(row=pl.struct(*call, "is_failed", gap=gap).rle_id())
    failed = failing.filter("is_failed")
    errors = _signs(failed, "repeated_error", rules["n_repeated_errors"], ["row"])
    # To read something between two attempts, by a tool or else a command, changes nothing.
    is_reading = pl.col("tool").str.to_lowercase().is_in(_READERS) | pl.col("is_look")
    looked = known.filter(~(is_reading & (pl.col("outcome") == "ok")).fill_null(value=False))
    again = looked.with_columns(row=pl.struct(*call, "is_failed").rle_id()).filter("is_failed")
    retried = _signs(again, "unchanged_retry", 2, ["row"])
    # Polling the output of a process is waiting, not a loop.
    is_poll = pl.any_horizontal(pl.col("tool", "target").is_in(POLLS).fill_null(value=False))
    asked = known.filter(~is_poll)
    equal = asked.with_columns(row=pl.struct(*call, "result_digest", gap=gap).rle_id())
    is_seen = pl.col("result_digest").is_not_null()
    least = pl.when(is_seen).then(rules["n_repeated"]).otherwise(rules["n_repeated_unseen"])
    repeated = _signs(equal, "repeated_call", least, ["row"])
    # If all calls of a row fail, only the stronger sign is reported.
    key = [*_THREAD, "first_call"]
    weaker = [some.join(errors.select(key), on=key, how="anti") for some in (repeated, retried)]
    return pool([errors, *weaker], SIGNS)


def _alternating(known: pl.DataFrame, rules: Mapping[str, float]) -> pl.DataFrame:
    """Two alternating calls: each equals the call before the last, and differs from the last."""
    own = pl.struct("part_id", "tool", "input_digest", "result_digest")
    is_turn = (own == own.shift(2)) & (own != own.shift(1)) & (pl.col("nth").diff(2) == 2)
    marked = known.with_columns(is_turn=is_turn.over(_THREAD).fill_null(value=False))
    # The first two calls of a stretch have no earlier call to equal, so they are added here.
    stretch = pl.when("is_turn").then(pl.struct(*_THREAD, "is_turn").rle_id())
    filled = pl.col("row").backward_fill(limit=2).over(_THREAD)
    rows = marked.with_columns(row=stretch).with_columns(filled)
    return _signs(rows.drop_nulls("row"), "alternating", rules["n_alternating"], ["row"])


def _is_down() -> pl.Expr:
    """Whether a call failed because a tool server is not there or a sandbox refused it."""
    words = pl.col("message")
    is_mcp = pl.col("tool").str.contains("__")
    is_command = pl.col("last_command").is_not_null()
    no_server = words.str.contains(_NO_SERVER) | (is_mcp & words.str.contains(_NO_SERVER_OF_MCP))
    is_away = (is_command & words.str.contains(_FENCED)) | (~is_command & no_server)
    return pl.col("is_failed") & is_away.fill_null(value=False)


def _taken_back(rows: pl.DataFrame) -> pl.DataFrame:
    """Changes undone in git, and edits that restore a text that an earlier edit replaced."""
    edits = rows.filter(outcome="ok").drop_nulls(["target", "written_digest"])
    file = [*_THREAD, "target"]
    replaced = edits.select(*file, "place", written_digest="replaced_digest").drop_nulls()
    first = replaced.group_by(*file, "written_digest").agg(replaced=pl.col("place").min())
    both = edits.join(first, on=[*file, "written_digest"])
    again = both.filter(pl.col("replaced") < pl.col("place"))
    undone = rows.filter("is_undo", outcome="ok")
    return pl.concat([undone, again.select(rows.columns)]).sort(*_THREAD, "nth")


def _tests_failing(rows: pl.DataFrame) -> pl.DataFrame:
    """Threads whose last run of tests failed, by its summary or else by its exit code."""
    # A run that went on in the background may have passed.
    runs_on = (pl.col("outcome") == "unknown") & pl.col("ended_at").is_not_null()
    ended = pl.col("outcome").is_in(("ok", "expected_nonzero", *FAILURES)) | runs_on
    # If the runner did not start, no test failed; the call has another cause.
    is_unstarted = pl.col("is_failed") & pl.col("message").str.contains(_UNSTARTED)
    began = pl.col("test_result").is_not_null() | ~is_unstarted.fill_null(value=False)
    tested = rows.lazy().filter("is_test", ended, began).sort("place")
    last = tested.group_by(_THREAD, maintain_order=True).tail(1)
    is_red = pl.coalesce(pl.col("test_result") == "failed", "is_failed")
    return _signs(collected(last.filter(is_red)), "tests_failing")


def _mostly_failing(rows: pl.DataFrame, rules: Mapping[str, float]) -> pl.DataFrame:
    """Threads in which more calls fail than succeed."""
    n_ok = (pl.col("outcome") == "ok").sum().over(_THREAD)
    is_most = pl.col("is_failed").sum().over(_THREAD) > pl.col("n_ok")
    many = rows.with_columns(n_ok=n_ok).filter(is_most)
    least = pl.when(pl.col("n_ok") == 0).then(rules["n_all_failing"]).otherwise(rules["n_failing"])
    return _signs(many.filter("is_failed"), "mostly_failing", least)


def _of_turns(
    rows: pl.DataFrame, turned: pl.DataFrame, rules: Mapping[str, float], every: pl.DataFrame
) -> list[pl.DataFrame]:
    """Signs from turns: retries of the provider, the user, compaction and the last answer."""
    last_end = pl.col("ended_at").shift(1).over(_THREAD)
    waited_s = (pl.col("started_at") - last_end).dt.total_microseconds() / 1e6
    marked = turned.with_columns(
        row="entity_id", is_soon=(waited_s <= rules["corrected_within_s"]).fill_null(value=False)
    )
    turn = [*_THREAD, "turn_no"]
    # A server that stops and a refusal end calls as well, but are no interruption by a person.
    others = every.lazy().filter(~pl.col("is_interrupted")).select(turn)
    ended_early = rows.lazy().filter(outcome="interrupted")
    stopped = collected(ended_early.join(others, on=turn, how="anti", maintain_order="left"))
    alone = marked.filter("is_interrupted").join(stopped.select(turn), on=turn, how="anti")
    sums = marked.group_by(_THREAD).agg(pl.col("n_retries", "retry_s").sum())
    retried = (
        _signs(marked.filter(pl.col("n_retries") > 0), "provider_retries")
        .join(sums, on=_THREAD, how="left", maintain_order="left")
        .with_columns(n_calls="n_retries", lost_s="retry_s")
        .filter(pl.col("n_calls") >= rules["n_retries"])
    )
    # After a question, "No, keep it." is an answer and no correction.
    was_asked = pl.col("is_question").fill_null(value=False).shift(1).over(_THREAD)
    says_so = pl.col("is_correction") & pl.col("is_soon") & ~was_asked.fill_null(value=False)
    is_corrected = says_so | pl.col("is_taken_back")
    return [
        SIGNS.conform(retried),
        _signs(pl.concat([stopped, alone], how="diagonal").sort(turn), "interrupted"),
        _signs(marked.filter(is_corrected.fill_null(value=False)), "corrected"),
        _signs(marked.filter(pl.col("n_idle_answers") >= rules["n_answers"]), "only_answers"),
        _signs(marked.filter(pl.col("n_compactions") > 0), "compacted"),
        *(
            _signs(marked.filter(column), sign, by=["row"])
            for column, sign in zip(("gives_up", "is_empty", "is_cut"), GIVEN_UP, strict=True)
        ),
    ]


def _signs(
    rows: pl.DataFrame, sign: str, least: pl.Expr | float = 1, by: list[str] | None = None
) -> pl.DataFrame:
    """A sign for each thread, or group of calls in it, with at least so many rows."""
    ended = pl.coalesce("ended_at", "started_at")
    absent = [
        pl.lit(None, SIGNS.dtypes.get(name, pl.Int64)).alias(name)
        for name in _OF_CALLS
        if name not in rows.columns
    ]
    enough = least if isinstance(least, pl.Expr) else pl.lit(least)
    key = (*_THREAD, *(by or ()))
    # The time between two turns is waiting for a person.
    in_turn = (ended.max() - ended.first()).over(*key, "turn_no")
    per_turn = pl.col("in_turn_s").filter(pl.col("turn_no").is_first_distinct())
    grouped = (
        rows.with_columns(absent)
        .with_columns(in_turn_s=in_turn.dt.total_microseconds() / 1e6)
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("system", "session_id", "turn_no", "tool", "target").first(),
            sign=pl.lit(sign),
            n_calls=pl.len().cast(pl.Int64),
            least=enough.first(),
            first_call=pl.col("entity_id").first(),
            last_call=pl.col("entity_id").last(),
            first_at=pl.col("started_at").first(),
            last_at=ended.last(),
            message=pl.col("message").drop_nulls().last(),
            lost_s=pl.when(per_turn.is_not_null().any()).then(per_turn.sum()),
            n_tokens=pl.col("n_answer_tokens").slice(1).sum(),
        )
    )
    return SIGNS.conform(grouped.filter(pl.col("n_calls") >= pl.col("least")))


def effort(snap: Facts, *, window: object = None, policy: Policy | None = None) -> pl.DataFrame:
    """The effort of sessions and turns, whatever their end: smooth, struggled, stuck, given up.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        Only calls and turns that began in it: as in `read_window`; None: all time.
    policy : Policy, optional
        Numbers from which calls and turns are a sign (``signs``); v1 by default.

    Returns
    -------
    polars.DataFrame
        `failures.frames.EFFORT`: a row for each session, subagent and turn whose calls or turns
        are recorded, what cost most first.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the window makes no sense.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.failures.effort(sa.demo()).is_empty()
    True
    """
    called, turned, every = in_window(snap, window)
    return effort_of(called, turned, signs_of(called, turned, policy or Policy.v1(), every))


def effort_of(called: pl.DataFrame, turned: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The `effort` of some calls and turns with their signs."""
    found = found.with_columns(is_end=pl.col("sign").is_in(GIVEN_UP))
    both = ("source", "system", "session_id", "thread_id", "turn_no")
    threads = pl.concat([turned.select(both), called.select(both)]).with_columns(
        entity_type=pl.lit("session"), entity_id="thread_id", turn_no=pl.lit(None, pl.Int64)
    )
    # Giving up only counts in the last turn: after another one, the work went on.
    last_turns = turned.group_by(_THREAD).agg(first_call=pl.col("entity_id").last(), is_last=True)
    of_threads = found.join(last_turns, on=[*_THREAD, "first_call"], how="left")
    of_threads = of_threads.with_columns(pl.col("is_end") & pl.col("is_last"))
    of_turns = turned.select(*both, "entity_type", "entity_id")
    efforts = [
        _efforts(threads.unique(_THREAD, maintain_order=True), called, of_threads, _THREAD),
        _efforts(of_turns, called, _by_turn(found, turned), [*_THREAD, "turn_no"]),
    ]
    rows = pool(efforts, EFFORT)
    key = ("lost_s", "n_calls", *ENTITY_KEY)
    return rows.sort(key, descending=[True, True, *[False] * 4], nulls_last=True)


def _by_turn(found: pl.DataFrame, turned: pl.DataFrame) -> pl.DataFrame:
    """Signs by the turns that have them: each has its own retries, stops and compactions."""
    parts = [found.filter(~pl.col("sign").is_in(list(_OF_TURNS)))]
    for sign, column in _OF_TURNS.items():
        number = pl.col(column).cast(pl.Int64)
        lost_s = pl.col("retry_s") if sign == "provider_retries" else pl.lit(0.0)
        columns = {"n_calls": number, "lost_s": lost_s, "first_call": "entity_id"}
        own = turned.filter(number > 0).select(*_THREAD, "turn_no", **columns)
        of_sign = found.filter(sign=sign).join(own, on=_THREAD, how="left", suffix="_own")
        # What only calls record stays with their first turn.
        kept = pl.when(pl.col("turn_no_own").is_null())
        moved = {name: kept.then(name).otherwise(f"{name}_own") for name in ("turn_no", *columns)}
        parts.append(of_sign.with_columns(**moved))
    return pl.concat(parts, how="diagonal")


def _efforts(
    entities: pl.DataFrame, called: pl.DataFrame, found: pl.DataFrame, key: list[str]
) -> pl.DataFrame:
    """`EFFORT` of sessions, or of turns, whose signs and calls have the same key."""
    counts = called.group_by(key, maintain_order=True).agg(
        # A call that is still running may be the next one of a loop, so it is not the last.
        last_of_all=pl.col("entity_id").filter(pl.col("outcome") != "unknown").last(),
        n_calls=pl.len().cast(pl.Int64),
        n_failed=pl.col("outcome").is_in(FAILURES).sum().cast(pl.Int64),
    )
    judged = _judged(found.join(counts.select(*key, "last_of_all"), on=key, how="left"), key)
    return EFFORT.conform(
        entities.join(counts, on=key, how="left", maintain_order="left")
        .join(judged, on=key, how="left", maintain_order="left")
        .with_columns(
            pl.col("n_calls", "n_failed").fill_null(0), pl.col("effort").fill_null("smooth")
        )
    )


def _judged(found: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """The effort of each thread or turn, from its signs."""
    sign = pl.col("sign")
    # A weak sign that occurs once may be chance. Compactions count once, however many.
    most = pl.when(sign == "compacted").then(1).otherwise(2)
    weight = pl.when(sign.is_in(WEAK)).then(pl.col("n_calls").clip(1, most)).otherwise(2)
    is_stuck = sign.is_in(LOOPS) & (pl.col("last_call") == pl.col("last_of_all"))
    what = pl.concat_str("tool", "target", separator=" ", ignore_nulls=True)
    n_times = pl.when(pl.col("n_calls") > 1).then(pl.format("{} × ", "n_calls"))
    of = pl.concat_str(
        n_times,
        sign.replace_strict(WORDS, return_dtype=pl.String),
        # Only signs of one repeated call name it; in others the calls differ.
        pl.when(sign.is_in(_OF_ONE_CALL) & (what != "")).then(pl.format(" ({})", what)),
        ignore_nulls=True,
    )
    order = sign.replace_strict({name: place for place, name in enumerate(WORDS)})
    grouped = (
        found.sort(order, maintain_order=True)
        .group_by(key, maintain_order=True)
        .agg(
            is_given_up=pl.col("is_end").any(),
            is_stuck=is_stuck.any(),
            is_hard=weight.sum() >= 2,
            signs=sign.unique(maintain_order=True).str.join(", "),
            why=of.unique(maintain_order=True).str.join("; "),
            first_call=pl.col("first_call").first(),
            lost_s=pl.col("lost_s").max(),
            n_tokens=pl.col("n_tokens").max(),
        )
    )
    hardest = first_word("smooth", given_up="is_given_up", stuck="is_stuck", struggled="is_hard")
    return grouped.with_columns(effort=hardest).drop("is_given_up", "is_stuck", "is_hard")

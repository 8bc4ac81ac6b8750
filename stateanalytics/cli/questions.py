"""Commands that are made from the table of questions: options, the call, the answer."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import (
    OPTIONS,
    READING,
    examples,
    note,
    refuse_options_of_others,
    sources_argument,
    with_tables,
)
from stateanalytics.cli.output import (
    Request,
    changed_only,
    named_entities,
    newest_first,
    note_of_empty_window,
    put,
    takes,
)
from stateanalytics.cli.ownership import FAULT, WithOwn, find_cluster
from stateanalytics.core.text import shortened, visible
from stateanalytics.core.words import count, say
from stateanalytics.errors import ArgumentError, check_one_of, did_you_mean
from stateanalytics.io.findings import folded
from stateanalytics.questions import COMMANDS, Question, questions_of

if TYPE_CHECKING:
    from stateanalytics.core.schema import Frame
    from stateanalytics.detectors.comparing import Disagreements
    from stateanalytics.detectors.detections import Detections
    from stateanalytics.snapshot import Snapshot
    from stateanalytics.thresholds.advice import Advice

Given = dict[str, Any]
"""Values of options, by the name of the parameter."""

_LIST_WIDTH = 78  # with the margin of click, what every terminal has
N_OPEN_FIRST = 20
N_NAMED = 3


# --- a command from its questions ------------------------------------------------------


def command_of(name: str) -> click.Command:
    """The command that asks the questions of this name."""
    questions, command = questions_of(name), COMMANDS[name]
    by_key = _options(questions)

    def ask(request: Request, **given: Any) -> None:
        question = _chosen(questions, given)
        _refuse_options_of_others(question, questions, by_key)
        _answer(request, question, given)

    ask.__doc__ = f"{command.summary}\n\n{command.details}\n\n{_list_of(questions)}"
    # The options of the window come last, as in the help of `report`.
    first = [option for key, option in by_key.items() if key != "window"]
    own = [*first, OPTIONS["limit"], *(by_key[key] for key in by_key if key == "window")]
    return click.command(
        name, cls=WithOwn if name == "failures" else click.Command, epilog=examples(name)
    )(sources_argument(takes(*own, READING)(ask)))


def _list_of(questions: Sequence[Question]) -> str:
    """The choices of ``--show`` and what each lists, in lines that click does not wrap."""
    listed = [question for question in questions if question.shown_as]
    width = max((len(question.shown_as) for question in listed), default=0) + 2
    indent = " " * width
    texts = (
        textwrap.fill(
            question.gives,
            _LIST_WIDTH,
            initial_indent=question.shown_as.ljust(width),
            subsequent_indent=indent,
        )
        for question in listed
    )
    return "\n".join(("\b", *texts)) if listed else ""


def _options(questions: Sequence[Question]) -> dict[str, Callable[..., Any]]:
    """The options that choose a question, then those that questions take, by their keys."""
    options: dict[str, Callable[..., Any]] = {}
    if listed := [question for question in questions if question.shown_as]:
        options["show"] = click.option(
            "--show",
            type=click.Choice([question.shown_as for question in listed]),
            help=f"Choose what is listed: see above; by default {listed[0].shown_as}.",
        )
    for question in questions:
        for key in question.options:
            if key not in options:
                options[key] = OPTIONS.get(key) or _option_of_function(question, key)
        if flag := _flag(question):
            options[flag] = click.option(
                question.mode, flag, is_flag=True, help=f"List {question.gives}."
            )
    return options


def _flag(question: Question) -> str:
    """The name of the flag that asks the question; empty where an option with a value does."""
    is_flag = question.mode and not question.shown_as and "other_policy" not in question.options
    return f"is_{question.mode.removeprefix('--')}" if is_flag else ""


def _option_of_function(question: Question, name: str) -> Callable[..., Any]:
    """An option made from the signature and the docstring of the function that takes it."""
    function = question.answer()
    default = inspect.signature(function).parameters[name].default
    described = re.search(rf"^{name} : .*\n((?: +.*\n)+)", f"{inspect.getdoc(function)}\n", re.M)
    words = " ".join(described[1].split()) if described else f"The {name} of {question.function}"
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        is_flag=isinstance(default, bool),
        default=default,
        show_default=default is not None,
        help=f"{words.partition('. ')[0].rstrip('.')}.",
    )


def _chosen(questions: Sequence[Question], given: Given) -> Question:
    """The question that the options ask; those that only choose are taken out of ``given``."""
    show = given.pop("show", None)
    flags = {flag for flag in map(_flag, questions) if flag and given.pop(flag)}
    # Questions that need no store are tried first, because nothing has to be read for them.
    for question in sorted(questions, key=lambda question: question.over != "nothing"):
        is_named = given.get(question.default_with) not in (None, False, ())
        is_default_now = show is None and is_named
        is_compared = question.mode == "--against" and given["other_policy"] is not None
        if is_default_now or is_compared or _flag(question) in flags:
            return question
        if show is not None and show == question.shown_as:
            return question
    return questions[0]


def _refuse_options_of_others(
    chosen: Question, questions: Sequence[Question], options: Mapping[str, Callable[..., Any]]
) -> None:
    """Refuse options on the command line that the question does not take."""
    others = " or ".join(question.mode for question in questions[1:])
    modes = {
        name: [
            question.mode or f"{question.command} without {others}"
            for question in questions
            if key in question.options
        ]
        for key, option in options.items()
        if any(key in question.options for question in questions)
        for name in _parameters_of(option)
    }
    refuse_options_of_others(chosen.mode or f"{chosen.command} without {others}", modes)


def _parameters_of(option: Callable[..., Any]) -> list[str]:
    def takes_it() -> None: ...

    option(takes_it)
    return [str(parameter.name) for parameter in takes_it.__click_params__]  # type: ignore[attr-defined]


# --- the answer ------------------------------------------------------------------------


def _answer(request: Request, question: Question, given: Given) -> None:
    """Read the stores, ask the question and write the answer."""
    _check(request, question, given)
    if question.over == "nothing":
        request.write(question.answer()(), columns=question.columns)
        return
    settings = given.get("settings")
    with request.opened(is_table=settings is None) as snap:
        values = {**given, "window": request.window, "policy": request.chosen_policy}
        if values.get("by") == ["none"]:
            values["by"] = []
        joined = with_tables(snap, values.pop("own", ()))
        if settings is not None:
            # Written in the format of the systems that take these settings.
            text: str = getattr(_advice(joined, values), f"to_{settings}")()
            return put(text.encode(), request.output, inputs=joined.inputs)
        frame = _ANSWERS[question.command](joined, request, question, values)
        shown, columns = _for_terminal(frame, question, values, is_table=request.format == "table")
        request.write(shown, columns=columns, inputs=snap.inputs)
        if "window" in question.options:
            note_of_empty_window(frame, snap, request.window, values.get("tz"))


def _check(request: Request, question: Question, given: Given) -> None:
    """Refuse, before anything is read, what cannot be answered."""
    if given.get("settings") and request.form:
        raise click.UsageError(
            "--settings chooses its own format; found --format, too. Hint: remove --format"
        )
    if question.shown_as == "rules" and given["rules"] is None:
        raise click.UsageError("--show rules needs a file of rules. Hint: --rules rules.toml")
    if question.shown_as == "compare" and given["by"] == ["none"]:
        raise click.UsageError(
            "--show compare needs a column whose values it compares; found 'none'. Hint: --by model"
        )
    if "severity" in given:
        from stateanalytics.core.schema import FINDING_SEVERITIES, SEVERITIES

        words = FINDING_SEVERITIES if question.over == "table" else SEVERITIES
        if given["severity"] is not None:
            check_one_of(given["severity"], words, "severity")


def _called(question: Question, first: Any, values: Given) -> pl.DataFrame:
    """The answer of the function, which gets every value that it has a parameter for."""
    function = question.answer()
    given = question.accepted(values)
    result = function(
        first, **{name: value for name, value in given.items() if value is not None and value != ()}
    )
    frame: pl.DataFrame = getattr(result, question.part) if question.part else result
    return frame


def _for_terminal(
    frame: pl.DataFrame, question: Question, values: Given, *, is_table: bool
) -> tuple[pl.DataFrame, list[str] | None]:
    """The rows as a table shows them, and the columns of the table; None for all of them."""
    by = values.get("by", [])
    if is_table:
        # A null group means that the value was not recorded.
        unnamed = [name for name in by if frame.schema.get(name) == pl.String]
        frame = frame.with_columns(pl.col(unnamed).fill_null("not recorded"))
        if question.view:
            frame = VIEWS[question.view](frame)
        if question.quiet:
            frame = changed_only(frame, question.quiet[0], question.quiet[1:])
    if not question.columns:
        return frame, None
    groups = dict.fromkeys(name for name in by if name not in question.columns)
    return frame, [name for name in (*groups, *question.columns) if name in frame.columns]


# --- attention -------------------------------------------------------------------------


def _attention(snap: Snapshot, request: Request, question: Question, values: Given) -> pl.DataFrame:
    """Items, states, findings or contradictions, filtered by type, severity and standing."""
    from stateanalytics.queries import attention_and_excluded

    asked = {name: values[name] for name in ("entity_type", "severity", "standing") if values[name]}
    excluded = None
    if question.over == "table":
        frame = snap.table(question.table, policy=values["policy"])
    elif question.shown_as == "states":
        note(_instant(snap))
        frame = _called(question, snap, values)
    else:
        given = {name: values[name] for name in ("window", "policy")}
        frame, excluded = attention_and_excluded(snap, **given)
    types = snap.entities["entity_type"].unique().sort().drop_nulls().to_list()
    if values["entity_type"] is not None:
        check_one_of(values["entity_type"], types, "entity type")
    for column, word in asked.items():
        frame = frame.filter(pl.col(column).cast(pl.String) == word)
    if excluded is not None:
        _note_count(frame.height, excluded, snap, asked)
    return frame


def _note_count(n: int, excluded: pl.DataFrame, snap: Snapshot, asked: Given) -> None:
    """Note the number of items that match the filters, and what was excluded."""
    counts = [
        f"{n_of:,} of type {entity_type} ({why})"
        for entity_type, why, n_of in excluded.iter_rows()
        if asked.get("entity_type") in (None, entity_type)
    ]
    more = f"; excluded: {', '.join(counts)}" if counts else ""
    words = f" (asked: {', '.join(asked.values())})" if asked else ""
    note(f"{say('attention.counted', n=n, asked=words)} {_instant(snap)}{more}")


def _instant(snap: Snapshot) -> str:
    """The instant up to which ages and silences count, in words."""
    from stateanalytics.core.windows import minute_of

    return f"as of {minute_of(snap.as_of)} ({snap.why_as_of})"


def _similar_items(items: pl.DataFrame) -> pl.DataFrame:
    """Items grouped by the action that answers them, with ids that ``show`` takes."""
    from stateanalytics.queries import grouped_items

    named = named_entities(items).with_columns(message=pl.coalesce("message", "code"))
    rows = grouped_items(named)
    # After the first rows of open work, ended work follows, so that hundreds cannot hide it.
    is_later = (pl.col("standing") == "open") & (pl.int_range(pl.len()) >= N_OPEN_FIRST)
    return rows.sort(pl.col("standing") == "stopped", is_later, maintain_order=True)


# --- failures --------------------------------------------------------------------------


def _failures(snap: Snapshot, request: Request, question: Question, values: Given) -> pl.DataFrame:
    """Failures, narrowed to a code or a cluster, with the notes that belong to them."""
    from stateanalytics.failures.fault_registry import registry_near

    values["registry"] = registry_near(values["registry"], values["ledger"])
    path = values.pop("earlier")
    values["nested"] = request.format in ("json", "parquet")
    others = Request(sources=(path,), salvage=request.salvage)
    with others.opened() if path else nullcontext() as earlier:
        frame = _called(question, snap, {**values, "earlier": earlier})
    shared = {name: values[name] for name in ("policy", "rules", "of")}
    is_fault = (values["cluster"] or "").startswith(FAULT)
    if values["cluster"] is not None and not is_fault and _has(frame, "cluster_id"):
        known = _each(frame, "cluster_id").explode(empty_as_null=True).drop_nulls()
        values["cluster"] = find_cluster(values["cluster"], known, snap, **shared)
    frame = _narrowed(frame, question, snap, values)
    if question.shown_as == "parameters" and request.redact:
        frame = _without_masked_words(frame, snap, {**shared, "window": values["window"]})
    if question.shown_as == "clusters" and (request.format == "table" or values["ledger"]):
        frame = _with_states_and_owners(frame, snap, values)
    is_counted = question.shown_as in ("faults", "clusters")
    if values["of"] == "runs":
        _note_meaning_of_failure(snap, frame)
        if frame.is_empty() and is_counted and values["code"] is None:
            note("no run failed; try --of calls for failed calls, --show effort for struggles")
    is_of_calls = values["of"] == "calls" or question.shown_as in ("tools", "calls")
    if is_of_calls and frame.is_empty():
        _note_calls(snap)
    if is_counted and request.format == "table" and frame.height > 1:
        note("one incident may be in several rows, so n_incidents may add up to too many")
    if question.shown_as == "life":
        _note_ids_of_the_ledger(frame)
    return frame


def _narrowed(
    frame: pl.DataFrame, question: Question, snap: Snapshot, values: Given
) -> pl.DataFrame:
    from stateanalytics.failures.clustering import codes
    from stateanalytics.failures.counting import is_code

    code, cluster = values["code"], values["cluster"]
    of = "fault_id" if cluster and cluster.startswith(FAULT) else "cluster_id"
    for value, option, column in ((code, "--code", "code"), (cluster, "--cluster", of)):
        is_refused = not _has(frame, column) or question.shown_as == "rules"
        if value is not None and is_refused:
            raise click.UsageError(f"{option} does not apply to {question.mode}. Hint: remove it")
    if code is not None:
        frame = frame.filter(_each(frame, "code").list.eval(is_code(code, pl.element())).list.any())
        if frame.is_empty():
            known = codes(snap, of=values["of"])["code"].drop_nulls()
            near = "" if code in known else did_you_mean(code, known)
            note(f"nothing here has code {code} or one below it{near}")
    if cluster is None:
        return frame
    begins = pl.element().str.starts_with(cluster)
    return frame.filter(_each(frame, of).list.eval(begins).list.any())


def _has(frame: pl.DataFrame, column: str) -> bool:
    return not {column, f"{column}s"}.isdisjoint(frame.columns)


def _each(frame: pl.DataFrame, column: str) -> pl.Series:
    """The code, cluster or fault of each row, as a list: faults and incidents have several."""
    several = f"{column}s"
    if several not in frame.columns:
        return frame.select(pl.concat_list(column)).to_series()
    found = frame[several]
    return found.str.split(", ") if found.dtype == pl.String else found


def _with_states_and_owners(clusters: pl.DataFrame, snap: Snapshot, values: Given) -> pl.DataFrame:
    """Clusters with their state, such as new or growing, and their owner."""
    from stateanalytics import failures

    given = {name: values[name] for name in ("window", "policy", "rules", "ledger", "of")}
    lives = failures.life(snap, **given).select("cluster_id", "state", "owner")
    return clusters.join(lives, on="cluster_id", how="left", maintain_order="left")


def _without_turns(efforts: pl.DataFrame) -> pl.DataFrame:
    """Sessions and subagents without their turns, as the page counts them."""
    from stateanalytics.state.definitions import RUN

    is_turn = pl.col("entity_type") != RUN
    if n_turns := efforts.filter(is_turn).height:
        note(f"{count(n_turns, 'turn')} of these sessions: not shown; --format csv has them")
    return efforts.filter(~is_turn)


def _with_short_ids(clusters: pl.DataFrame) -> pl.DataFrame:
    """Clusters with ids short enough to type, and without owners where there are none."""
    start = pl.col("cluster_id").str.extract(r"^v\d+:([0-9a-f]{8})")
    named = clusters.with_columns(_start=start).with_columns(
        id=pl.when(pl.col("_start").is_unique()).then("_start").otherwise("cluster_id")
    )
    is_owned = "owner" in clusters.columns and clusters["owner"].is_not_null().any()
    return named.drop("_start", *(() if is_owned else ("owner",)), strict=False)


def _note_meaning_of_failure(snap: Snapshot, frame: pl.DataFrame) -> None:
    """Note what counts as a failure in systems that define it differently, if rows have it."""
    from stateanalytics.systems import all_systems

    for system in all_systems():
        is_shown = "code" not in frame or bool({*frame["code"]} & {*system.ends.failure_codes})
        if system.runs.failure_meaning and system.name in snap.sources["system"] and is_shown:
            note(f"{system.title}: {system.runs.failure_meaning}")


def _note_calls(snap: Snapshot) -> None:
    """Note whether calls were recorded at all, and by which systems they can be."""
    from stateanalytics.failures import calls
    from stateanalytics.systems import all_systems

    if n := calls(snap).height:
        note(f"{count(n, 'call')} recorded; none that failed is counted here")
        return
    systems = ", ".join(known.title for known in all_systems() if known.runs.calls is not None)
    note(
        f"no calls of tools are recorded in what was read; those of {systems} are read where "
        "the store has them: `stateanalytics doctor` lists stores"
    )


def _note_ids_of_the_ledger(lives: pl.DataFrame) -> None:
    """Note which ids of the ledger have changed, and which no cluster has."""
    renamed = lives.filter(pl.col("ledger_id") != pl.col("cluster_id"))
    for before, after in renamed.select("ledger_id", "cluster_id").head(N_NAMED).rows():
        note(f"{before} in the ledger is now {after}; rename it there")
    unknown = lives.filter(pl.col("state") == "unknown")["cluster_id"].to_list()
    if unknown:
        more = f" and {len(unknown) - N_NAMED} more" if len(unknown) > N_NAMED else ""
        note(f"in the ledger, but without a failure: {', '.join(unknown[:N_NAMED])}{more}")


def _without_masked_words(parameters: pl.DataFrame, snap: Snapshot, values: Given) -> pl.DataFrame:
    """Parameters without the words that redaction takes out of the messages.

    A value stands alone here; the words that mark it as a secret are in the template.
    """
    from stateanalytics import failures
    from stateanalytics.core.redaction import PLACEHOLDERS, redact_texts

    pattern = r"[A-Za-z0-9]+"
    messages, _ = redact_texts(failures.members(snap, **values)["message"])
    kept = messages.str.extract_all(pattern).explode().unique().implode()
    words = pl.col("value").str.extract_all(pattern)
    is_kept = words.list.set_difference(pl.lit(kept)).list.len() == 0
    masked = pl.when(is_kept.fill_null(value=True)).then("value")
    return parameters.with_columns(value=masked.otherwise(pl.lit(PLACEHOLDERS["named secret"])))


# --- detectors, costs and thresholds ---------------------------------------------------


def _detectors(snap: Snapshot, request: Request, question: Question, values: Given) -> pl.DataFrame:
    """Disagreements, with the worst of them in a sentence."""
    from stateanalytics.detectors.detections import detect

    detections = detect(snap, **{name: values[name] for name in ("at", "detectors", "policy")})
    compared = question.answer()(detections)
    sentence = _worst_disagreement(detections, compared)
    if request.format == "table" and request.output is None:
        click.echo(visible(sentence))
    else:
        note(sentence)
    frame: pl.DataFrame = getattr(compared, question.part)
    return frame


def _rules_by_title(rows: pl.DataFrame) -> pl.DataFrame:
    """Disagreements as a table shows them: rules by label, page and release, causes in words."""
    from stateanalytics.detectors.catalogue import titles
    from stateanalytics.detectors.comparing import CAUSES

    named = named_entities(rows) if "entity_id" in rows.columns else rows
    return named.with_columns(
        flagged_by=pl.col("a").replace(titles()),
        not_by=pl.col("b").replace(titles()),
        why=pl.col("cause").replace(dict(CAUSES)),
    )


def _worst_disagreement(detections: Detections, compared: Disagreements) -> str:
    """What the table shows, in a sentence or two."""
    from stateanalytics.detectors.catalogue import titles

    n_lost = sum((~column).sum() for column in detections.is_knowable)
    lost = f" {n_lost:,} answers can no longer be known." if n_lost else ""
    used = [titles().get(name, name) for name in detections.names if detections.covered[name].any()]
    if not used:
        return "None of these detectors covers anything in these data." + lost
    if compared.worst is not None:
        return compared.worst + lost
    if len(used) == 1:
        return f"Only {used[0]} covers anything in these data: nothing to compare." + lost
    those = "Both" if len(used) == 2 else f"All {len(used)}"
    return f"{those} detectors agree on all that two or more of them cover." + lost


def _costs(snap: Snapshot, _: Request, question: Question, values: Given) -> pl.DataFrame:
    from stateanalytics.failures.run_costs import doubts, prices, unpriced_models

    frame = _called(question, snap, values)
    table = prices(values["prices"])
    as_of = table["as_of"].dt.to_string().max()
    note("total_usd is the reported cost where there is one, otherwise the estimate")
    note(f"estimates use list prices of {as_of!s}; --prices replaces them")
    models = frame if "model" in frame else _called(question, snap, values | {"by": ("model",)})
    if unpriced := unpriced_models(models, table):
        note(shortened(f"no list price, so no estimate: {', '.join(unpriced)}", 300))
    if doubtful := doubts(snap.findings):
        note(doubtful)
    first = frame.filter(pl.col("n_completed") > 0)["n_first_pass"]
    if first.len() and not first.count():
        has_prompts = (snap.events["role"] == "user").any()
        instead = '; sa.read("state.db", bodies=True) compares prompts instead'
        note(
            "n_first_pass and retries_usd are unknown: no run says which attempt it was"
            f"{instead if has_prompts else ''}"
        )
    elif first.len():
        none = "; no retry cost anything" if frame["retries_usd"].max() == 0 else ""
        note(f"n_first_pass and retries_usd are of runs that say which attempt they were{none}")
    return frame


def _thresholds(snap: Snapshot, _: Request, question: Question, values: Given) -> pl.DataFrame:
    """Recommendations, the outcome of changes, or what another policy judges differently."""
    if question.mode == "--against":
        from stateanalytics.state.states import count_changes

        other = Request(policy=values["other_policy"]).chosen_policy
        changed: pl.DataFrame = question.answer()(snap, values["policy"], other)
        for entity_type, before, after, n in count_changes(changed).head(5).iter_rows():
            note(f"{n:,} of type {entity_type} from {before} to {after}")
        return changed
    if question.mode:
        return _called(question, snap, values)
    advice = _advice(snap, values)
    note(f"{advice.frame.height} thresholds: {advice.counts}")
    return advice.frame


def _advice(snap: Snapshot, values: Given) -> Advice:
    from stateanalytics.thresholds.advice import recommend
    from stateanalytics.thresholds.choice import Costs

    names = ("false_alarm", "undetected_hour", "lost_run", "run_hour", "deaths")
    return recommend(snap, costs=Costs(*(values[name] for name in names)), policy=values["policy"])


# --- durations -------------------------------------------------------------------------


def _durations(snap: Snapshot, _: Request, question: Question, values: Given) -> pl.DataFrame:
    """Durations of runs, or the time limits that stopped them."""
    from stateanalytics.core.schema import SPELLS, TIMEOUTS
    from stateanalytics.state.definitions import nouns_of
    from stateanalytics.survival.curves import kaplan_meier
    from stateanalytics.survival.run_spells import count_left_out, spells
    from stateanalytics.survival.time_limits import count_timeouts, timeouts

    by, shown = values["by"], question.shown_as
    shared = {name: values[name] for name in ("window", "policy")}
    if question.over == "snapshot":
        _check_groups([name for name in by if "." not in name], SPELLS, list(SPELLS.dtypes))
        return _called(question, snap, values)
    if question.over == "limited":
        limited = _with_groups(timeouts(snap, **shared), by, snap, TIMEOUTS)
        return limited if shown == "timeouts" else count_timeouts(limited, by=by)
    ends_by_limit: Any = "event" if shown == "outcomes" else "cut_off"
    runs = _with_groups(spells(snap, timeouts=ends_by_limit, **shared), by, snap, SPELLS)
    n_excluded = runs["left_out"].count()
    if n_excluded and shown not in ("spells", "left-out", "implicit", "candidates"):
        note(say("durations.excluded", n=n_excluded, n_all=runs.height))
    if (nouns := nouns_of(runs)[1]) != "runs":
        note(say("durations.of_turns", nouns=nouns))
    match shown:
        case "spells":
            return runs
        case "left-out":
            return count_left_out(runs)
        case "compare":
            return pl.concat(_called(question, runs, {"by": name}) for name in by)
    return _called(
        question, kaplan_meier(runs, by=by) if question.over == "curve" else runs, values
    )


def _with_groups(rows: pl.DataFrame, by: list[str], snap: Snapshot, frame: Frame) -> pl.DataFrame:
    """Rows joined to the columns of the user's own tables that dotted names mean."""
    from stateanalytics.core.joins import with_own_column

    for name in by:
        rows = with_own_column(rows, name, snap.own_tables)
    _check_groups(by, frame, rows.columns)
    return rows


def _check_groups(by: list[str], frame: Frame, known: Sequence[str]) -> None:
    """Refuse a column that the frame behind the table does not have, in the shell's words."""
    for name in by:
        if name not in known:
            raise ArgumentError(
                f"--by needs a column of {frame.name}; found {name!r:.60}.",
                f"such as --by agent; `stateanalytics sql --schema {frame.name}` lists them"
                + did_you_mean(name, known),
            )


_ANSWERS: Mapping[str, Callable[[Snapshot, Request, Question, Given], pl.DataFrame]] = {
    "attention": _attention,
    "failures": _failures,
    "detectors": _detectors,
    "costs": _costs,
    "durations": _durations,
    "thresholds": _thresholds,
}
VIEWS: Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "similar items": _similar_items,
    "similar findings": folded,
    "entities": named_entities,
    "clusters": _with_short_ids,
    "sessions": _without_turns,
    "periods": newest_first,
    "rules": _rules_by_title,
}
"""How a terminal shows the rows of an answer."""

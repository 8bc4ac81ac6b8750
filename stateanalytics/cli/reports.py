"""The commands ``report`` (a page, the weeks before it, two reports compared) and ``show``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli import options
from stateanalytics.cli.output import (
    FORMATS,
    PAGES,
    Request,
    chosen_format,
    newest_first,
    note_of_last_week,
    program,
    refuse_input_as_output,
    show_in_browser,
    takes,
)
from stateanalytics.core.text import visible
from stateanalytics.core.windows import WEEK
from stateanalytics.core.words import dollars_each, how_long_each
from stateanalytics.errors import SourceNotFoundError
from stateanalytics.io.budget import OVER_BUDGET
from stateanalytics.io.cache import Cache, digest_of_files
from stateanalytics.io.frame_files import is_summary
from stateanalytics.io.processes import make_private_folder, state_of_store
from stateanalytics.systems.base import expanded
from stateanalytics.systems.places import usual_places

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.reporting import Report
    from stateanalytics.summaries import Summary


_OF_FIRST_SCREEN = ("headline", "attention", "inside", "failures", "costs", "thresholds")
"""The sections that the verdict and the first actions need. No charts are drawn."""
_FIRST_LOOK_S = 4
_FORMS = {**PAGES, "email": PAGES["html"], "md": (".md",), "json": (".json",), "slack": (".json",)}
"""What a report is written as, and the suffixes of each."""
# Columns of the table of weeks, by measure.
HEADS = {
    **{name: name for name in ("runs", "completed", "timed_out", "incidents")},
    "failure_run_s": "lost",
    "failure_cost_usd": "lost $",
    "time_to_complete": "median",
    # It is known for the latest weeks only, so it is the first to be hidden for lack of width.
    "unresolved": "unresolved",
}
WEEK_COLUMNS = tuple("week coverage measure group_label value lower upper n n_of".split())
LIMIT_COLUMNS = (
    *WEEK_COLUMNS[:5],
    *("limit_low", "limit_high", "verdict", "level_since", "n", "n_of"),
)
KINDS = {"numbers": None, "clusters": "cluster", "codes": "code", "kinds": "kind"}
_PAGE_ONLY = (
    *("is_full", "compare", "sections", "as_known_at", "by", "own", "ledger", "prices", "changes"),
    *("tz", "with_json", "title", "is_opened", "fail_on", "week", "since", "until", "detectors"),
)
_MODES = {
    **dict.fromkeys(_PAGE_ONLY, ("the page",)),
    **dict.fromkeys(("show", "top", "has_limits", "limit"), ("--weeks",)),
    **dict.fromkeys(("as_of", "probe", "salvage", "policy"), ("the page", "--weeks")),
    **dict.fromkeys(("wide", "safe_csv"), ("--weeks", "--against")),
    "against": ("--against",),
}
"""Whether an option belongs to the page, to ``--weeks`` or to ``--against``."""


@click.command(epilog=options.examples("report"))
@options.sources_argument
@options.named(
    *(f"report.{name}" for name in ("n_weeks", "show", "top", "has_limits", "against", "brief")),
    *(f"report.{name}" for name in ("is_full", "compare", "sections", "as_known_at", "by")),
    *("own", "detectors", "ledger", "prices", "report.changes", "tz"),
    *("report.with_json", "report.title", "is_opened", "report.fail_on"),
)
@takes(
    options.named("limit", "week", "since", "until"),
    options.READING,
    formats={**_FORMS, **FORMATS},
    otherwise="the page",
)
def report(
    request: Request,
    *,
    n_weeks: int | None,
    show: str,
    top: int,
    has_limits: bool,
    against: Path | None,
    **page: Any,
) -> None:
    """Write a report for a time window: one HTML file that opens in any browser.

    The default window is the seven days up to as-of, and the default file week.html.
    --format md is a summary of one screen, email a page for mail, slack a message for Slack,
    json the numbers; without -o these three are printed into a pipe, and in a terminal written
    to a file. Summaries of several hosts (folders that `sa.summarize` wrote) are merged
    and reported for one week, by default the last complete one. --weeks and --against print
    tables instead.
    """
    mode = "--weeks" if n_weeks is not None else "--against" if against else "the page"
    options.refuse_options_of_others(mode, _MODES)
    if n_weeks is not None:
        _write_weeks(request, n_weeks, show=show, top=top, has_limits=has_limits)
    elif against is not None:
        _write_difference(request, against)
    else:
        _write_page(request, **page)


def _write_page(
    request: Request,
    *,
    is_full: bool,
    sections: str | None,
    own: tuple[str, ...],
    with_json: bool,
    is_opened: bool,
    fail_on: str | None,
    **given: Any,
) -> None:
    from stateanalytics.charts.report_charts import prepare
    from stateanalytics.core.progress import progress
    from stateanalytics.reporting import report as make_report

    form = chosen_format(request.form, request.output, _FORMS, otherwise="html")
    # Slack's message and the numbers are both JSON; one must not overwrite the other.
    stem = "week.slack" if form == "slack" else "week"
    # Like other commands it prints into a pipe, except for pages, which are made to be opened.
    is_file = with_json or is_opened or sys.stdout.isatty() or form in ("html", "email")
    output = request.output or Path(f"{stem}{_FORMS[form][0]}" if is_file else "-")
    if is_full and form != "html":
        raise click.UsageError("--full is for the HTML page only. Hint: remove --full")
    is_piped = str(output) == "-"
    targets = _targets(output, form, with_json=with_json)
    names = None if sections is None else sections.replace(" ", "").split(",")
    kinds = _kinds_to_fail_on(fail_on, names)
    for target in targets:
        refuse_input_as_output(target)
    if form == "html" and sections is None:
        prepare()
    given |= {"window": request.window, "sections": names, "redact": request.redact}
    with ExitStack() as open_stores:
        summary = _summary_at(request)
        inputs = tuple(map(Path, request.sources))
        if summary is None:
            snap = open_stores.enter_context(request.opened(is_table=False))
            inputs, given["policy"] = snap.inputs, request.chosen_policy
            snap = options.with_tables(snap, own)
            note_of_last_week(request.window, snap, given.get("tz"))
        for target in targets:
            refuse_input_as_output(target, inputs)
        page = replace(make_report(summary or snap, **given), program=program())
    writers: dict[str, Callable[..., Path]] = {
        "html": partial(page.write_html, is_full=is_full),
        "email": page.write_email,
        "slack": page.write_slack,
        "md": page.write_markdown,
        "json": page.write_json,
    }
    written = []
    with progress("report", len(targets)) as begin:
        for target, target_form in targets.items():
            begin(f"writes {target.name}")
            written.append(writers[target_form](target))
    if is_piped:
        _pipe(writers[form])
    for path in written:
        click.echo(f"wrote {visible(str(path))} ({path.stat().st_size / 1000:,.0f} kB)")
    click.echo("\n".join(_said(page)), err=is_piped)
    if is_opened and written:
        show_in_browser(written[0])
    bad_news = page.tripped(*kinds)
    for sentence in bad_news:
        options.note(f"failed on {sentence}")
    if bad_news:
        click.get_current_context().exit(3)


def _said(page: Report) -> list[str]:
    """The story of a report, a line each; the first line begins with its window."""
    first, *others = page.story()
    label = page.summary["window"]["label"]
    return [f"{label[:1].upper()}{label[1:]}: {first}", *others]


def _targets(output: Path, form: str, *, with_json: bool) -> dict[Path, str]:
    """The formats of the files to write; none where the page goes to standard output."""
    if with_json and form == "slack":
        raise click.UsageError("--format slack is JSON already. Hint: remove --json")
    if str(output) == "-":
        if with_json:
            raise click.UsageError(
                "Standard output takes one format. Hint: remove --json, or use -f json -o -"
            )
        return {}
    numbers = {output.with_suffix(".json"): "json"} if with_json else {}
    return {output: form, **numbers}


def _pipe(write: Callable[[Path], Path]) -> None:
    """Print the file that a function writes."""
    folder = make_private_folder()
    try:
        click.echo(write(folder.path / "report").read_bytes(), nl=False)
    finally:
        folder.delete()


def _kinds_to_fail_on(fail_on: str | None, sections: list[str] | None) -> list[str]:
    """The kinds of bad news to fail on; an error if the section that they need is missing."""
    from stateanalytics.reporting.first_screen import checked_kinds

    if fail_on is None:
        return []
    kinds = checked_kinds(fail_on.replace("|", ",").split(","))
    if sections is None or "failures" in sections or kinds == ["coverage"]:
        return kinds
    named = ",".join(sections)
    raise click.UsageError(
        f"--fail-on {fail_on} reads the section failures; found --sections {named}. "
        f"Hint: --sections {named},failures"
    )


def sum_up() -> None:
    """Print the verdict on the last seven days of the usual places, else of the sample."""
    cache, began, places = Cache.of_user(), datetime.now(UTC), usual_places()
    key = "\0".join(["summed up", program(), *map(str, places)])
    kept = None if cache is None else cache.get(key)
    if kept is not None:
        files, stores = kept.head["read"]
        is_newest = kept.head["besides"] in (None, cache and cache.bytes_besides(key))
        if is_newest and kept.head["state"] == _state(files, map(state_of_store, stores), began):
            click.echo("".join(f"{line}\n" for line in kept.head["notes"]), err=True, nl=False)
            return click.echo("\n".join(kept.head["lines"]))
    from stateanalytics.demo_data import demo_path
    from stateanalytics.reporting import report as make_report

    request = Request()
    # If there are gigabytes, the first run reads only the newest transcripts and says so. Later
    # runs read more of the others.
    click.get_current_context().meta[options.BUDGET] = f"processor_s={_FIRST_LOOK_S}"
    try:
        snap = request.opened(is_table=False, has_notes=False)
    except SourceNotFoundError:
        options.note("the usual places are empty (see: stateanalytics doctor); this is the sample")
        request = Request(sources=(str(demo_path() / "history"),))
        snap = request.opened(is_table=False, has_notes=False)
    facts, n_older = _without_older(snap)
    notes = request.notes(facts)
    if n_older:
        notes.append(
            f"note: {n_older:,} older transcripts are not read yet: this week is complete, its "
            f"history is not; for all of it: {program()} report"
        )
    if OVER_BUDGET in facts.findings["code"]:
        notes.append(
            f"note: this first look reads for {_FIRST_LOOK_S} s; run it again to read on, or read "
            f"everything: {program()} report"
        )
    click.echo("".join(f"{line}\n" for line in notes), err=True, nl=False)
    with snap:
        page = replace(make_report(facts, sections=_OF_FIRST_SCREEN), program=program())
    named = shlex.join(["report", *request.sources, "--open"])
    lines = [*_said(page), f"The whole page: {program()} {named}"]
    click.echo("\n".join(lines))
    # An answer that depends on the clock, or on how much was read so far, is not kept.
    is_whole = snap.as_of_from == "data" and OVER_BUDGET not in facts.findings["code"]
    files = [str(path) for path in (*places, *snap.inputs)]
    read = (files, [str(store.path) for store in snap.stores])
    # These are the states at the time of the read, so a write during the report is noticed.
    state = _state(files, (store.state for store in snap.stores), began)
    if cache is not None and is_whole and not request.sources and state:
        # Once another command has read the older transcripts, the answer changes.
        besides = cache.bytes_besides(key) if n_older else None
        shown = {"notes": notes, "lines": lines, "besides": besides}
        cache.put(key, {"state": state, "read": read, **shown}, [])


def _without_older(snap: Facts) -> tuple[Facts, int]:
    """The facts without findings on transcripts that were last written before this week; how many.

    The newest are read first, and a finding names the first one that was not.
    """
    week_ago, named = snap.as_of - WEEK, snap.findings.select("code", "source", "table")
    is_older = pl.Series(
        [
            code == OVER_BUDGET and _is_older(Path(source, file or ""), week_ago)
            for code, source, file in named.iter_rows()
        ],
        dtype=pl.Boolean,
    )
    older, others = snap.findings.filter(is_older), snap.findings.filter(~is_older)
    return replace(snap, findings=others), int(older["n_rows"].sum())


def _is_older(file: Path, week_ago: datetime) -> bool:
    with suppress(OSError, ValueError):
        return file.suffix == ".jsonl" and file.stat().st_mtime < week_ago.timestamp()
    return False


def _state(files: Sequence[str], of_stores: Iterable[str | None], now: datetime) -> str:
    """A digest of what was read and of the usual places; empty if it cannot prove equality."""
    states = list(of_stores)
    return "" if None in states else digest_of_files(map(os.path.realpath, files), now, *states)


def _summary_at(request: Request) -> Summary | None:
    """The merged summaries of folders that `Summary.write` wrote; None where these are stores."""
    sources = request.sources
    stores = [source for source in sources if not is_summary(source)]
    if len(stores) == len(sources):
        return None
    if missing := [store for store in stores if not expanded(store).exists()]:
        raise SourceNotFoundError(
            f"There is no file or directory {missing[0]!r}.", "check how it is written"
        )
    if stores:
        raise click.UsageError(
            f"Summaries and stores cannot be reported together; found the store {stores[0]!r}. "
            'Hint: summarize it first, with sa.summarize("state.db").write("host-9/")'
        )
    if request.as_of is not None or request.policy != "v1" or request.salvage or request.probe:
        raise click.UsageError(
            "A summary has a fixed instant and policy; found --as-of, --policy, --salvage or "
            "--probe. Hint: remove them"
        )
    from stateanalytics.summaries import Summary, merge

    return merge(map(Summary.read, sources))


def _write_weeks(request: Request, n: int, *, show: str, top: int, has_limits: bool) -> None:
    """The numbers of the last ISO weeks; empty before the data begin."""
    with request.opened() as snap:
        numbers = snap.control_limits if has_limits else snap.weeks
        frame = numbers(n, policy=request.chosen_policy, top=top)
        if show != "all":
            frame = frame.filter(pl.col("group_kind").eq_missing(pl.lit(KINDS[show], pl.String)))
        columns: Sequence[str] | None = LIMIT_COLUMNS if has_limits else WEEK_COLUMNS
        is_table = chosen_format(request.form, request.output) == "table"
        if is_table and show == "numbers" and not has_limits:
            for week in frame.filter(coverage="part")["week"].unique().sort():
                options.note(f"the data cover {week} only in part")
            frame, columns = _by_week(frame), None
        shown = newest_first(frame) if is_table else frame
        request.write(shown, columns=columns, inputs=snap.inputs)


def _by_week(numbers: pl.DataFrame) -> pl.DataFrame:
    """A row for each week, with numbers in words."""
    value = pl.col("value")
    words = {
        "share": (100 * value).round().cast(pl.Int64).cast(pl.String) + " %",
        "s": how_long_each(value, is_estimate=True),
        "USD": dollars_each(value),
    }
    unit = pl.col("unit").str.replace(" of .*", "")
    texts = pl.lit(None, pl.String)
    for name, text in words.items():
        texts = pl.when(unit == name).then(text).otherwise(texts)
    whole = value.cast(pl.Int64, strict=False).cast(pl.String)
    texts = pl.when(unit.is_in(list(words))).then(texts).otherwise(whole)
    by_week = (
        numbers.filter(pl.col("measure").is_in(list(HEADS)))
        .select("week", head=pl.col("measure").replace(HEADS), words=texts)
        .pivot("head", index="week", values="words")
    )
    in_order = by_week.select("week", *(head for head in HEADS.values() if head in by_week))
    # Weeks before the data begin would be empty rows.
    is_known = pl.any_horizontal(pl.exclude("week").is_not_null())
    known = in_order.filter(is_known.cum_sum() > 0)
    return in_order if known.is_empty() else known


def _write_difference(request: Request, against: Path) -> None:
    """Each headline number split by what moved it since another report."""
    from stateanalytics.reporting.ledger import diff

    if len(request.sources) != 1:
        raise click.UsageError(
            "--against compares two JSON files that report --json wrote; found "
            f"{len(request.sources)} sources. Hint: stateanalytics report this.json "
            "--against last.json"
        )
    refuse_input_as_output(request.output)
    changes = diff(against, Path(request.sources[0]))
    shown = ("title", "cause", "n_runs", "before", "after", "change", "n_after", "of_after")
    request.write(changes, columns=shown, limit=changes.height)


@click.command(epilog=options.examples("show"))
@options.sources_argument
@click.argument("entity_id", metavar="ID")
@options.named("show.output", "is_opened")
@takes(options.STORED, options.named("redact"), formats=None)
def show(request: Request, *, entity_id: str, is_opened: bool) -> None:
    """Show the complete history of one run or other entity.

    ID is an id or its first characters; type:ID where several types share an id. The history
    has states, attempts, messages and silences, related entities, and the outcomes of other
    runs that failed with the same message. The last messages have their texts; with --bodies
    all of them.
    """
    from stateanalytics.reporting.session import session_page
    from stateanalytics.timeline import N_TEXTS

    output = request.output
    if is_opened and output is None:
        raise click.UsageError("--open needs a page to open. Hint: -o run.html --open")
    # Text that cannot be a path, such as one that is too long, is an id; so is one with a
    # folder of its name, as worktrees have.
    path = expanded(entity_id)
    is_folder = Path(path).name == entity_id != os.pardir and os.path.isdir(path)  # noqa: PTH112
    is_place = os.path.exists(path) and not is_folder  # noqa: PTH110
    if is_place and not request.sources:
        raise click.UsageError(
            f"{entity_id!r} is a source; the id of a run is missing. Hint: "
            f"stateanalytics show {shlex.quote(entity_id)} ID; "
            "`stateanalytics attention --show states` lists ids"
        )
    if is_place and not any(map(os.path.exists, map(expanded, request.sources))):
        raise click.UsageError(
            f"The id comes last, after the sources; found the path {entity_id!r} there. Hint: "
            f"stateanalytics show {shlex.quote(entity_id)} {shlex.quote(request.sources[0])}"
        )
    chosen_format(None, output, PAGES)
    with request.opened(is_table=False) as snap:
        policy = request.chosen_policy
        n_texts = None if request.bodies else N_TEXTS
        page = session_page(snap, entity_id, policy=policy, redact=request.redact, n_texts=n_texts)
    if output is None:
        click.echo("\n".join(map(visible, repr(page).split("\n"))))
        return
    click.echo(f"wrote {visible(str(page.write_html(output)))}")
    if is_opened:
        show_in_browser(output)

"""Commands that tell: ``report``, ``diff``, ``attention``, ``states``, ``audit`` and more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.costs import prices_option
from stateanalytics.cli.options import (
    as_of_option,
    detectors_option,
    examples,
    note,
    opened,
    policy_of,
    policy_option,
    redact_option,
    salvage_option,
    sources_argument,
    tables_option,
    window_of,
    window_options,
    with_tables,
)
from stateanalytics.cli.output import (
    PAGES,
    form_of,
    note_of_last_week,
    note_of_nothing,
    refuse_inputs_of,
    show_in_browser,
)
from stateanalytics.cli.ownership import ledger_option
from stateanalytics.cli.request import READING, Request, limit_option, takes
from stateanalytics.cli.tables import named_entities
from stateanalytics.core.schema import FINDING_SEVERITIES, SEVERITIES
from stateanalytics.core.text import visible
from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.io.frame_folders import kind_at
from stateanalytics.io.private_folders import make_private_folder

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy
    from stateanalytics.summaries import Summary


N_OPEN_FIRST = 20
_FORMS = {
    **PAGES,
    "email": PAGES["html"],
    "md": (".md",),
    "json": (".json",),
    "slack": (".json",),
}
"""What a report is written as, and the suffixes of each."""


@click.command(
    epilog=examples(
        "stateanalytics report state.db -o week.html",
        "stateanalytics report state.db --brief -o mail.html",
        "stateanalytics report fleet/*/state.db --week 2026-W21 --policy operator --json",
        "stateanalytics report state.db --since 2026-05-18 --until 2026-05-25",
        "stateanalytics report history/ --week 2026-W21 --ledger owners.csv",
        "stateanalytics report host-7/ host-8/ -o fleet.html",
    )
)
@sources_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file; by default week.html, or what the format is called.",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(tuple(_FORMS)),
    help="Write the page, a screen of it in Markdown, the numbers, one page fit for an e-mail, "
    "or what Slack posts; by default what the suffix says.",
)
@click.option(
    "--brief",
    "form",
    flag_value="email",
    help="Write one page, the first screen, as --format email does.",
)
@click.option("--full", "is_full", is_flag=True, help="Fold nothing: every chapter stands open.")
@window_options
@click.option(
    "--compare",
    metavar="WINDOW",
    default="previous",
    show_default=True,
    help="Compare the five numbers with: previous (as long, right before), last-week, "
    "an ISO week, or none.",
)
@click.option(
    "--sections",
    metavar="NAMES",
    help="Tell only these, such as attention,durations; a wrong name lists them all.",
)
@click.option(
    "--as-known-at",
    metavar="MOMENT",
    help="Report what was known then, such as at the window's end; what came later is left out.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Also tell who fails more than the rest by this column: model, or teams.owner of a "
    "--table; may be repeated.",
)
@tables_option
@detectors_option
@ledger_option
@prices_option
@as_of_option
@salvage_option
@policy_option
@click.option("--json", "with_json", is_flag=True, help="Also write the numbers, beside the page.")
@redact_option
@click.option("--title", help="Head the report with this.")
@click.option("--open", "is_opened", is_flag=True, help="Show the page in the browser.")
@click.option(
    "--fail-on",
    metavar="KINDS",
    help="Exit with 3 on bad news: new-critical, regression, coverage, joined by commas.",
)
@click.pass_context
def report(
    ctx: click.Context,
    *,
    sources: tuple[str, ...],
    output: Path | None,
    form: str | None,
    is_full: bool,
    week: str | None,
    since: str | None,
    until: str | None,
    compare: str,
    sections: str | None,
    as_known_at: str | None,
    by: tuple[str, ...],
    own: tuple[str, ...],
    chosen: list[str] | None,
    ledger: Path | None,
    prices: Path | None,
    as_of: str | None,
    salvage: bool,
    policy: str,
    with_json: bool,
    redact: bool,
    title: str | None,
    is_opened: bool,
    fail_on: str | None,
) -> None:
    """Write the report on a window of time: one HTML file that opens anywhere.

    Without a window, the seven days up to as-of are reported. Folders that `sa.summarize`
    counted and wrote are added up; their page is that of a week, by default the last whole one.
    """
    from stateanalytics.charts.report_charts import prepare
    from stateanalytics.core.progress import progress
    from stateanalytics.reporting import report as make_report

    window = window_of(week, since, until)
    form = form_of(form, output, _FORMS, otherwise="html")
    output = output or Path(f"week{_FORMS[form][0]}")
    if is_full and form != "html":
        raise click.UsageError("Only the page has folds. Hint: leave --full out, or --format html")
    is_piped = str(output) == "-"
    targets = _targets(output, form, with_json=with_json)
    asked = None if sections is None else sections.replace(" ", "").split(",")
    wires = _wires(fail_on, asked)
    for target in targets:
        refuse_inputs_of(target)
    if form == "html" and sections is None:
        prepare()
    said: dict[str, Any] = {
        "window": window,
        "compare": compare,
        "as_known_at": as_known_at,
        "by": by,
        "ledger": ledger,
        "prices": prices,
        "detectors": chosen,
        "sections": asked,
        "redact": redact,
        "title": title,
    }
    with ExitStack() as open_stores:
        summary = _summary_at(sources, as_of=as_of, policy=policy, salvage=salvage)
        inputs = tuple(map(Path, sources))
        if summary is None:
            snap = open_stores.enter_context(opened(sources, as_of=as_of, salvage=salvage))
            inputs, said["policy"] = snap.inputs, policy_of(policy)
            snap = with_tables(snap, own)
            note_of_last_week(window, snap)
        for target in targets:
            refuse_inputs_of(target, (*inputs, *filter(None, (ledger, prices))))
        made = make_report(summary or snap, **said)
    writers: dict[str, Callable[..., Path]] = {
        "html": partial(made.write_html, is_full=is_full),
        "email": made.write_email,
        "slack": made.write_slack,
        "md": made.write_markdown,
        "json": made.write_json,
    }
    written = []
    with progress("report", len(targets)) as begin:
        for target, form_of_target in targets.items():
            begin(f"writes {target.name}")
            written.append(writers[form_of_target](target))
    if is_piped:
        _pipe(writers[form])
    for path in written:
        click.echo(f"wrote {visible(str(path))} ({path.stat().st_size / 1000:,.0f} kB)")
    _say(made.summary, is_piped=is_piped)
    if is_opened and written:
        show_in_browser(written[0])
    bad_news = made.tripped(*wires)
    for sentence in bad_news:
        note(f"failed on {sentence}")
    if bad_news:
        ctx.exit(3)


def _targets(output: Path, form: str, *, with_json: bool) -> dict[Path, str]:
    """The files to write, each with its form; none where standard output takes it."""
    if with_json and form == "slack":
        raise click.UsageError("Slack's form is JSON of its own. Hint: leave --json out")
    if str(output) == "-":
        if with_json:
            raise click.UsageError(
                "Standard output takes one form. Hint: leave --json out, or -f json -o -"
            )
        return {}
    beside = {output.with_suffix(".json"): "json"} if with_json else {}
    return {output: form, **beside}


def _pipe(write: Callable[[Path], Path]) -> None:
    """What a writer of files writes, on standard output."""
    folder = make_private_folder()
    try:
        click.echo(write(folder.path / "report").read_bytes(), nl=False)
    finally:
        folder.delete()


def _wires(fail_on: str | None, sections: list[str] | None) -> list[str]:
    """What to fail on; not without the section that it reads, which would never fail."""
    from stateanalytics.reporting.tripwires import checked_kinds

    if fail_on is None:
        return []
    kinds = checked_kinds(fail_on.replace("|", ",").split(","))
    if sections is None or "failures" in sections or kinds == ["coverage"]:
        return kinds
    told = ",".join(sections)
    raise click.UsageError(
        f"--fail-on {fail_on} reads the section failures; found --sections {told}. "
        f"Hint: --sections {told},failures"
    )


def _say(summary: dict[str, Any], *, is_piped: bool = False) -> None:
    """The verdict and what to do first, for whoever waits at the terminal."""
    from stateanalytics.reporting.front import said_first

    click.echo(visible(said_first(summary)), err=is_piped)
    for place, one in enumerate(summary.get("actions", ()), 1):
        click.echo(visible(f"{place}. {one['what']}: {one['why']}"), err=is_piped)
        click.echo(visible(f"   {one['command']}"), err=is_piped)


def _summary_at(
    sources: Sequence[str], *, as_of: str | None, policy: str, salvage: bool
) -> Summary | None:
    """The sum of folders that `Summary.write` made; None where these are stores."""
    stores = [source for source in sources if kind_at(source) != "summary"]
    if len(stores) == len(sources):
        return None
    if stores:
        raise click.UsageError(
            f"Summaries are reported apart from stores; found {stores[0]!r} too. Hint: count "
            'it first, with sa.summarize("state.db").write("host-9/")'
        )
    if as_of is not None or policy != "v1" or salvage:
        raise click.UsageError(
            "A summary was counted at one instant by one policy; found --as-of, --policy or "
            "--salvage. Hint: leave them out"
        )
    from stateanalytics.summaries import Summary, merge

    return merge(map(Summary.read, sources))


listing = takes(
    click.option("--type", "entity_type", metavar="TYPE", help="List only this entity type."),
    click.option("--severity", metavar="WORD", help="List only rows of this severity."),
    limit_option,
    *READING,
)
"""The arguments of the commands that print one table of a snapshot."""


@click.command(
    epilog=examples(
        "stateanalytics attention state.db",
        "stateanalytics attention state.db --severity critical -o attention.csv",
    )
)
@sources_argument
@window_options
@listing
def attention(request: Request, **arguments: Any) -> None:
    """List what needs attention: critical and warning, what can still be helped first.

    A table shows items that ask the same of you as one row: of what is open those that are
    silent for longest, then what has ended, the rest of what is open, and what somebody
    stopped on purpose; the other formats list each, most severe first. Items that an operator
    has discharged and rows that another one tells, such as branches, are left out and counted.
    Without a window everything is listed, with one what the report of it counts.
    """
    from stateanalytics.queries import attention_and_left_out

    def items(snap: Snapshot, policy: Policy) -> pl.DataFrame:
        found, left_out = attention_and_left_out(snap, window=request.window, policy=policy)
        told = [
            f"{n:,} of type {entity_type} ({why})" for entity_type, why, n in left_out.iter_rows()
        ]
        more = f"; left out: {', '.join(told)}" if told else ""
        note(f"{found.height:,} critical or a warning {_instant(snap)}{more}")
        note_of_nothing(found, snap, request.window)
        return found

    shown = ("severity", "n", "entity", "message", "display", "since_at", "name")
    print_table(request, items, shown, fold=_as_shown, **arguments)


def _instant(snap: Snapshot) -> str:
    """Ages end here: a copy of May is not silent since May."""
    from stateanalytics.core.windows import in_utc

    return f"as of {in_utc(snap.as_of)} ({snap.why_as_of})"


def _as_shown(items: pl.DataFrame) -> pl.DataFrame:
    """What asks the same as one row, by a name that ``show`` takes: a UUID by its beginning."""
    from stateanalytics.queries import alike

    rows = alike(named_entities(items).with_columns(message=pl.coalesce("message", "code")))
    # Hundreds that are open must not hide why everything else failed.
    is_later = (pl.col("standing") == "open") & (pl.int_range(pl.len()) >= N_OPEN_FIRST)
    return rows.sort(pl.col("standing") == "stopped", is_later, maintain_order=True)


@click.command(
    epilog=examples(
        "stateanalytics states state.db --type session --limit 200",
        "stateanalytics states state.db -o states.parquet",
    )
)
@sources_argument
@listing
def states(request: Request, **arguments: Any) -> None:
    """List the state of every entity (ADR-0033), in words and as columns."""
    from stateanalytics.state.states import states as all_states

    def rows(snap: Snapshot, policy: Policy) -> pl.DataFrame:
        note(_instant(snap))
        found: pl.DataFrame = all_states(snap, policy=policy)
        return found

    shown = ("severity", "entity", "display", "silence_s", "reason_codes")
    print_table(request, rows, shown, fold=named_entities, **arguments)


@click.command(
    epilog=examples(
        "stateanalytics findings state.db",
        "stateanalytics findings state.db --severity error --format json",
    )
)
@sources_argument
@listing
def findings(request: Request, **arguments: Any) -> None:
    """List what is wrong in the data, and what was done about it; contradictions too.

    A table shows findings that differ only in their entity once, with their rows added
    up; the other formats list each.
    """
    from stateanalytics.io.findings import folded

    shown = ("severity", "code", "n_rows", "message", "table", "column", "example", "action")
    print_table(request, "findings", shown, fold=folded, **arguments)


def print_table(
    request: Request,
    table: str | Callable[[Snapshot, Policy], pl.DataFrame],
    columns: Sequence[str],
    *,
    fold: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    entity_type: str | None,
    severity: str | None,
) -> None:
    """One table of a snapshot, narrowed as was asked; as a table for eyes it may be folded.

    A name stands for what SQL calls so, which takes all that SQL can name to be imported.
    """
    is_for_eyes = form_of(request.form, request.output) == "table"
    words = FINDING_SEVERITIES if table in ("findings", "audit") else SEVERITIES
    _check_known("severity", severity, words)
    with request.opened() as snap:
        policy = request.chosen_policy
        frame = snap.table(table, policy=policy) if isinstance(table, str) else table(snap, policy)
        types = snap.entities["entity_type"].unique().sort().drop_nulls().to_list()
        _check_known("entity_type", entity_type, types)
        for column, word in (("entity_type", entity_type), ("severity", severity)):
            if word is not None:
                frame = frame.filter(pl.col(column).cast(pl.String) == word)
        shown = fold(frame) if fold and is_for_eyes else frame
        request.write(shown, columns=columns, inputs=snap.inputs)


def _check_known(column: str, word: str | None, known: Sequence[str]) -> None:
    if word is not None and word not in known:
        raise ArgumentError(
            f"There is no {column.replace('_', ' ')} {word!r} here; there are {', '.join(known)}.",
            "name one of these" + did_you_mean(word, known),
        )


@click.command(
    epilog=examples(
        "stateanalytics policies v1 operator state.db",
        "stateanalytics policies v1 strict.toml state.db -o changed.csv",
    )
)
@click.argument("first", metavar="POLICY")
@click.argument("second", metavar="POLICY")
@sources_argument
@takes(as_of_option, salvage_option)
def policies(request: Request, *, first: str, second: str) -> None:
    """Compare two policies over one snapshot: which entities change severity."""
    from stateanalytics.state.states import compare_policies, count_changes

    shown = ("entity_type", "entity_id", "severity_a", "severity_b", "display_a", "display_b")
    if Path(second).exists() and Path(second).suffix.lower() not in (".toml", ".json"):
        raise click.UsageError(
            f"Two policies are needed, and then the stores; found {first!r} and the store "
            f"{second!r}. Hint: stateanalytics policies {first} operator {second}"
        )
    with request.opened() as snap:
        changed = compare_policies(snap, policy_of(first), policy_of(second))
        for kind, before, after, n in count_changes(changed).head(5).iter_rows():
            note(f"{n:,} of type {kind} from {before} to {after}")
        request.write(changed, columns=shown, inputs=snap.inputs)


@click.command(epilog=examples('stateanalytics report "$(stateanalytics demo)" -o demo.html'))
def demo() -> None:
    """Print where the shipped sample is, to try the other commands on."""
    from stateanalytics.demo_data import demo_path

    click.echo(str(demo_path() / "history"))
    # Inside of `$(…)` somebody follows the advice already.
    if sys.stdout.isatty():
        note('try: stateanalytics attention "$(stateanalytics demo)"')


@click.command(
    epilog=examples(
        "stateanalytics audit state.db",
        "stateanalytics audit state.db --severity warning -o contradictions.csv",
    )
)
@sources_argument
@listing
def audit(request: Request, **arguments: Any) -> None:
    """List where the data contradict themselves, with both sides of the evidence.

    A warning is two things that cannot both be true; an info is an exception that the
    data explain, such as an override.
    """
    # At 80 columns the first three fit: both sides, and of what.
    shown = ("entity", "says", "against", "severity", "code", "what_to_do")
    print_table(request, "audit", shown, fold=named_entities, **arguments)


@click.command(
    epilog=examples(
        "stateanalytics diff last.json this.json",
        "stateanalytics diff last.json this.json --format csv",
    )
)
@click.argument("last", type=click.Path(path_type=Path))
@click.argument("this", type=click.Path(path_type=Path))
@takes()
def diff(request: Request, *, last: Path, this: Path) -> None:
    """Say why the numbers of one report differ from those of another.

    LAST and THIS are what `stateanalytics report --json` wrote beside the page. Each
    headline number is taken apart by cause: new rows, late rows, work that has ended
    since, another policy, as-of, window or input, and what remains unexplained.
    """
    from stateanalytics.reporting.diff import diff as compare

    changes = compare(last, this)
    shown = ("title", "cause", "n_runs", "before", "after", "change", "n_after", "of_after")
    request.write(changes, columns=shown, limit=changes.height)

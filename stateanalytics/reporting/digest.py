"""The report as Markdown, for a standing issue or a chat: a screen, not a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from stateanalytics.reporting.failure_findings import lost_in_words
from stateanalytics.reporting.front import said_first
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.phrases import number, spark, spoken

N_CLUSTERS = 5
_LONGEST_NAME = 72
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~])")
_BREAK = "\u200b"
# What GitHub makes a link of although it stands there as text, with a backslash before it, too.
_LINKED = re.compile(r"(?i)www(?=\.)|gh(?=-\d)|#(?=\d)")


def as_markdown(summary: Plain) -> str:
    """The verdict, the numbers, what to do, and what fails; ends in a line break.

    Parameters
    ----------
    summary : dict
        Of a report.

    Notes
    -----
    Every text may be hostile: none makes markup, a link, or a mention of somebody.
    """
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Plain) -> Iterator[str]:
    headline, window = summary["headline"], summary["window"]
    yield f"## {_plain(summary['title'])}: {_plain(window['label'])}"
    yield ""
    yield f"**{_plain(said_first(summary))}**"
    if losses := summary["losses"]:
        yield ""
        yield f"**Data are missing**: {_plain(losses[0]['message'])}; {number(len(losses))} in all."
    if summary["coverage"]:
        yield ""
        yield _plain(summary["coverage"]["in_words"])
    yield ""
    yield "| | now | 95 % | last weeks | change |"
    yield "|---|---|---|---|---|"
    for one in headline["numbers"]:
        weeks = spark(one.get("bars", ())) + (f" {one['drawn']}" if "drawn" in one else "")
        interval, change = one["shown_interval"] or "", one.get("change") or {}
        cells = (one["title"], one["shown"], interval, weeks, change.get("short") or "")
        yield f"| {' | '.join(map(_plain, cells))} |"
    if summary.get("lost"):
        yield ""
        yield f"**Lost to failures**: {_plain(summary['lost'])}"
    yield from _actions(summary.get("actions", ()))
    yield from _news(summary.get("news", ()))
    yield from _failures(summary.get("failures", {}))
    yield ""
    yield f"<sub>stateanalytics {_plain(summary['made_by'])}</sub>"


def _actions(actions: list[Plain]) -> Iterator[str]:
    if not actions:
        return
    yield ""
    yield "### What to do first"
    yield ""
    for place, one in enumerate(actions, 1):
        who = f" ({_plain(one['who'])})" if one["who"] else ""
        yield f"{place}. **{_plain(one['what'])}**{who}: {_plain(one['why'])}"
        yield f"   {_code(one['command'])}"


def _news(news: list[Plain]) -> Iterator[str]:
    if news:
        yield ""
        yield "### New, worse, back or gone"
        yield ""
    for one in news:
        names = "; ".join(_plain(name["name"]) for name in one["names"])
        more = f"; {number(one['n_more'])} more" if one["n_more"] else ""
        yield f"- **{number(one['n'])} {one['title'].lower()}**: {names}{more}"


def _failures(failures: Plain) -> Iterator[str]:
    clusters = failures.get("clusters", ())
    if not clusters:
        return
    yield ""
    yield "### What fails"
    yield ""
    yield "| failure | state | incidents | lost | whose |"
    yield "|---|---|---|---|---|"
    for one in clusters[:N_CLUSTERS]:
        lost = lost_in_words(one["lost"])
        state = "back" if one["is_back"] else one["state"]
        cells = (
            spoken(one["name"], _LONGEST_NAME),
            state,
            number(one["n_incidents"]),
            lost,
            one["owner"] or "",
        )
        yield f"| {' | '.join(map(_plain, cells))} |"
    if len(clusters) > N_CLUSTERS:
        yield ""
        yield f"{number(len(clusters) - N_CLUSTERS)} more in the whole report."


def _plain(text: str) -> str:
    """Text that stays text, in one line."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    escaped = _LINKED.sub(rf"\g<0>{_BREAK}", escaped)
    return escaped.replace("@", f"@{_BREAK}").replace("://", f":{_BREAK}//")


def _code(text: str) -> str:
    """A code span, with more backticks around it than stand in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"

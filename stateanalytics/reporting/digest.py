"""A report as Markdown for an issue or a chat, and as blocks for Slack: a screen, not a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from stateanalytics.core.formatting import number, spark, spoken
from stateanalytics.core.text import shortened
from stateanalytics.reporting.first_screen import said_first
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.sections.failures import lost_in_words

N_CLUSTERS = 5
_LONGEST_NAME = 72
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~])")
_ZERO_WIDTH_SPACE = "\u200b"
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
    escaped = _LINKED.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", escaped)
    return escaped.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("://", f":{_ZERO_WIDTH_SPACE}//")


def _code(text: str) -> str:
    """A code span, with more backticks around it than stand in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


# https://docs.slack.dev/reference/block-kit/blocks
MOST_BLOCKS, LONGEST_HEADER, LONGEST_TEXT, LONGEST_FIELD, MOST_FIELDS = 50, 150, 3000, 2000, 10
_ZERO_WIDTH_SPACE = "\u200b"


def as_slack(summary: Plain) -> Plain:
    """What ``chat.postMessage`` or an incoming webhook takes: ``text`` and ``blocks``.

    Parameters
    ----------
    summary : dict
        Of a report.

    Notes
    -----
    Every text may be hostile: each stands as ``plain_text``, in which Slack reads no markup,
    link, mention or emoji. ``text`` is what notifications show.
    """
    blocks = list(_blocks(summary))
    heading = f"{summary['title']}: {summary['window']['label']}. {said_first(summary)}"
    # Only this is read as markup, of which no character is left.
    text = _inert(html.escape(" ".join(heading.split()), quote=False).translate(_MARKS))
    if len(blocks) > MOST_BLOCKS:
        left_out = len(blocks) - MOST_BLOCKS + 1
        blocks = [*blocks[: MOST_BLOCKS - 1], _section(f"{left_out} more in the whole report.")]
    return {"text": shortened(text, LONGEST_TEXT), "blocks": blocks}


_MARKS = str.maketrans(dict.fromkeys("*_~`", " "))


def _blocks(summary: Plain) -> Iterator[Plain]:
    heading = f"{summary['title']}: {summary['window']['label']}"
    yield {"type": "header", "text": _text(heading, LONGEST_HEADER)}
    yield _section(said_first(summary))
    if losses := summary["losses"]:
        yield _section(f"Data are missing: {losses[0]['message']}; {number(len(losses))} in all.")
    if summary["coverage"]:
        yield _section(summary["coverage"]["in_words"])
    fields = [_number(one) for one in summary["headline"]["numbers"]]
    yield {"type": "section", "fields": fields[:MOST_FIELDS]}
    if summary.get("lost"):
        yield _section(f"Lost to failures: {summary['lost']}")
    if actions := summary.get("actions"):
        yield {"type": "divider"}
        for place, one in enumerate(actions, 1):
            who = f" ({one['who']})" if one["who"] else ""
            yield _section(f"{place}. {one['what']}{who}: {one['why']}\n{one['command']}")
    if news := summary.get("news"):
        yield {"type": "divider"}
        for one in news:
            names = "; ".join(name["name"] for name in one["names"])
            more = f"; {number(one['n_more'])} more" if one["n_more"] else ""
            yield _section(f"{number(one['n'])} {one['title'].lower()}: {names}{more}")
    clusters = summary.get("failures", {}).get("clusters", ())
    if clusters:
        yield {"type": "divider"}
        yield _section("\n".join(_failure(one) for one in clusters[:N_CLUSTERS]))
    made_by = _text(f"stateanalytics {summary['made_by']}", LONGEST_FIELD)
    yield {"type": "context", "elements": [made_by]}


def _number(one: Plain) -> Plain:
    interval = f" ({one['shown_interval']})" if one["shown_interval"] else ""
    change = (one.get("change") or {}).get("short") or ""
    return _text(f"{one['title']}: {one['shown']}{interval}\n{change}".strip(), LONGEST_FIELD)


def _failure(one: Plain) -> str:
    lost = lost_in_words(one["lost"])
    said = (f"{number(one['n_incidents'])}×", shortened(one["name"], 300), lost, one["owner"] or "")
    return " · ".join(filter(None, (" ".join(part.split()) for part in said)))


def _section(text: str) -> Plain:
    return {"type": "section", "text": _text(text, LONGEST_TEXT)}


def _text(text: str, longest: int) -> Plain:
    # Slack refuses a text of no characters.
    said = shortened(_inert(text), longest) or "-"
    return {"type": "plain_text", "text": said, "emoji": False}


def _inert(text: str) -> str:
    return text.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("://", f":{_ZERO_WIDTH_SPACE}//")

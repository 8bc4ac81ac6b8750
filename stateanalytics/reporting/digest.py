"""A report as Markdown for an issue or a chat, and as blocks for Slack: a screen, not a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from stateanalytics.core.text import shortened
from stateanalytics.core.words import number, say, shorten_template, spark
from stateanalytics.reporting.first_screen import opening
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.sections.failures import lost_in_words

N_CLUSTERS = 5
_LONGEST_NAME = 72
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~])")
# GitHub makes links of these even after a backslash.
_LINKED = re.compile(r"(?i)www(?=\.)|gh(?=-\d)|#(?=\d)")


def as_markdown(summary: Plain) -> str:
    """Markdown of the verdict, the numbers, what to do and what fails; ends in a line break.

    Parameters
    ----------
    summary : dict
        Of a report.

    Notes
    -----
    Every text may be hostile: none becomes markup, a link, or a mention of somebody.
    """
    return "\n".join(_lines(summary)) + "\n"


def _first_loss(losses: list[Plain]) -> str:
    return say("digest.missing", message=losses[0]["message"], n=len(losses))


def _lines(summary: Plain) -> Iterator[str]:
    headline, window = summary["headline"], summary["window"]
    yield f"## {_plain(summary['title'])}: {_plain(window['label'])}"
    yield ""
    yield f"**{_plain(opening(summary))}**"
    if losses := summary["losses"]:
        yield ""
        yield f"**Data are missing**: {_plain(_first_loss(losses))}"
    if summary["coverage"]:
        yield ""
        yield _plain(summary["coverage"]["in_words"])
    yield ""
    yield "| | now | 95 % | last weeks | change |"
    yield "|---|---|---|---|---|"
    for figure in headline["numbers"]:
        weeks = spark(figure.get("bars", ())) + (f" {figure['drawn']}" if "drawn" in figure else "")
        interval, change = figure["shown_interval"] or "", figure.get("change") or {}
        cells = (figure["title"], figure["shown"], interval, weeks, change.get("short") or "")
        yield f"| {' | '.join(map(_plain, cells))} |"
    if summary.get("lost"):
        yield ""
        yield f"**Lost to failures**: {_plain(summary['lost'])}"
    yield from _actions(summary.get("actions", ()), summary.get("unassigned"))
    yield from _news(summary.get("news", ()))
    yield from _failures(summary.get("failures", {}))
    yield ""
    yield f"<sub>stateanalytics {_plain(summary['made_by'])}</sub>"


def _actions(actions: list[Plain], unassigned: str | None) -> Iterator[str]:
    if not actions:
        return
    yield ""
    yield "### What to do first"
    yield ""
    for place, action in enumerate(actions, 1):
        who = f" ({_plain(action['who'])})" if action["who"] else ""
        yield f"{place}. **{_plain(action['what'])}**{who}: {_plain(action['why'])}"
        yield f"   {_code(action['command'])}"
    if unassigned:
        yield ""
        yield unassigned


def _news(news: list[Plain]) -> Iterator[str]:
    if news:
        yield ""
        yield "### New, worse, back or no longer seen"
        yield ""
    for change in news:
        names = "; ".join(_plain(name["name"]) for name in change["names"])
        more = f"; {number(change['n_more'])} more" if change["n_more"] else ""
        yield f"- **{number(change['n'])} {change['title'].lower()}**: {names}{more}"


def _failures(failures: Plain) -> Iterator[str]:
    clusters = failures.get("clusters", ())
    if not clusters:
        return
    yield ""
    yield "### What fails"
    yield ""
    yield "| failure | state | incidents | lost | owner |"
    yield "|---|---|---|---|---|"
    for cluster in clusters[:N_CLUSTERS]:
        lost = lost_in_words(cluster["lost"])
        is_back = cluster["is_back"] or cluster["state"] == "back"
        state = "reappeared" if is_back else cluster["state"]
        cells = (
            shorten_template(cluster["name"], _LONGEST_NAME),
            state,
            number(cluster["n_incidents"]),
            lost,
            cluster["owner"] or "",
        )
        yield f"| {' | '.join(map(_plain, cells))} |"
    if len(clusters) > N_CLUSTERS:
        yield ""
        yield say("digest.more", n=len(clusters) - N_CLUSTERS)


def _plain(text: str) -> str:
    """Text on one line, with every character of Markdown escaped."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    escaped = _LINKED.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", escaped)
    return escaped.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("://", f":{_ZERO_WIDTH_SPACE}//")


def _code(text: str) -> str:
    """A code span, with more backticks around it than inside it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


# https://docs.slack.dev/reference/block-kit/blocks
MOST_BLOCKS, LONGEST_HEADER, LONGEST_TEXT, LONGEST_FIELD, MOST_FIELDS = 50, 150, 3000, 2000, 10
_ZERO_WIDTH_SPACE = "\u200b"


def as_slack(summary: Plain) -> Plain:
    """The message for ``chat.postMessage`` or an incoming webhook: ``text`` and ``blocks``.

    Parameters
    ----------
    summary : dict
        Of a report.

    Notes
    -----
    Every text may be hostile: each is sent as ``plain_text``, in which Slack reads no markup,
    link, mention or emoji. ``text`` is shown in notifications.
    """
    blocks = list(_blocks(summary))
    heading = f"{summary['title']}: {summary['window']['label']}. {opening(summary)}"
    # Slack reads this text as markup, so no character of markup is left in it.
    text = _inert(html.escape(" ".join(heading.split()), quote=False).translate(_MARKS))
    if len(blocks) > MOST_BLOCKS:
        note = _section(say("digest.more", n=len(blocks) - MOST_BLOCKS + 1))
        blocks = [*blocks[: MOST_BLOCKS - 1], note]
    return {"text": shortened(text, LONGEST_TEXT), "blocks": blocks}


_MARKS = str.maketrans(dict.fromkeys("*_~`", " "))


def _blocks(summary: Plain) -> Iterator[Plain]:
    heading = f"{summary['title']}: {summary['window']['label']}"
    yield {"type": "header", "text": _text(heading, LONGEST_HEADER)}
    yield _section(opening(summary))
    if losses := summary["losses"]:
        yield _section(f"Data are missing: {_first_loss(losses)}")
    if summary["coverage"]:
        yield _section(summary["coverage"]["in_words"])
    fields = [_field(figure) for figure in summary["headline"]["numbers"]]
    yield {"type": "section", "fields": fields[:MOST_FIELDS]}
    if summary.get("lost"):
        yield _section(f"Lost to failures: {summary['lost']}")
    if actions := summary.get("actions"):
        yield {"type": "divider"}
        for place, action in enumerate(actions, 1):
            who = f" ({action['who']})" if action["who"] else ""
            words = f"{place}. {action['what']}{who}: {action['why']}"
            whole = f"{words}\n{action['command']}"
            # Half of a command would do something else.
            yield _section(whole if len(_inert(whole)) <= LONGEST_TEXT else words)
        if unassigned := summary.get("unassigned"):
            yield _section(unassigned)
    if news := summary.get("news"):
        yield {"type": "divider"}
        for change in news:
            names = "; ".join(name["name"] for name in change["names"])
            more = f"; {number(change['n_more'])} more" if change["n_more"] else ""
            yield _section(f"{number(change['n'])} {change['title'].lower()}: {names}{more}")
    clusters = summary.get("failures", {}).get("clusters", ())
    if clusters:
        yield {"type": "divider"}
        yield _section("\n".join(_failure(cluster) for cluster in clusters[:N_CLUSTERS]))
    made_by = _text(f"stateanalytics {summary['made_by']}", LONGEST_FIELD)
    yield {"type": "context", "elements": [made_by]}


def _field(figure: Plain) -> Plain:
    interval = f" ({figure['shown_interval']})" if figure["shown_interval"] else ""
    change = (figure.get("change") or {}).get("short") or ""
    return _text(f"{figure['title']}: {figure['shown']}{interval}\n{change}".strip(), LONGEST_FIELD)


def _failure(cluster: Plain) -> str:
    lost = lost_in_words(cluster["lost"])
    parts = (
        f"{number(cluster['n_incidents'])}×",
        shortened(cluster["name"], 300),
        lost,
        cluster["owner"] or "",
    )
    return " · ".join(filter(None, (" ".join(part.split()) for part in parts)))


def _section(text: str) -> Plain:
    return {"type": "section", "text": _text(text, LONGEST_TEXT)}


def _text(text: str, longest: int) -> Plain:
    # Slack refuses a text of no characters.
    shown = shortened(_inert(text), longest) or "-"
    return {"type": "plain_text", "text": shown, "emoji": False}


def _inert(text: str) -> str:
    return text.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("://", f":{_ZERO_WIDTH_SPACE}//")

"""A report as Markdown for an issue or a chat, and as blocks for Slack: a screen, not a page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from stateanalytics.core.text import shortened
from stateanalytics.core.words import number, say, shorten_template, spark
from stateanalytics.reporting.first_screen import opening
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.sections.failures import lost_in_words

N_CLUSTERS = 5
_LONGEST_NAME = 72
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~])")
# GitHub turns these into links even after a backslash.
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


def _lines(summary: Plain) -> Iterator[str]:
    headline, window = summary["headline"], summary["window"]
    yield f"## {_plain(summary['title'])}: {_plain(window['label'])}"
    yield from ("", f"**{_plain(opening(summary))}**")
    if losses := summary["losses"]:
        missing = say("digest.missing", message=losses[0]["message"], n=len(losses))
        yield from ("", f"**Data are missing**: {_plain(missing)}")
    if summary["coverage"]:
        yield from ("", _plain(summary["coverage"]["in_words"]))
    yield from ("", "| | now | 95 % | last weeks | change |", "|---|---|---|---|---|")
    for figure in headline["numbers"]:
        weeks = spark(figure.get("bars", ())) + (f" {figure['drawn']}" if "drawn" in figure else "")
        interval, change = figure["shown_interval"] or "", figure.get("change") or {}
        yield _row(figure["title"], figure["shown"], interval, weeks, change.get("short") or "")
    if summary.get("lost"):
        yield from ("", f"**Lost to failures**: {_plain(summary['lost'])}")
    yield from _actions(summary.get("actions", ()), summary.get("unassigned"))
    yield from _news(summary.get("news", ()))
    yield from _failures(summary.get("failures", {}))
    yield from ("", f"<sub>stateanalytics {_plain(summary['made_by'])}</sub>")


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _actions(actions: list[Plain], unassigned: str | None) -> Iterator[str]:
    if not actions:
        return
    yield from ("", "### What to do first", "")
    for place, action in enumerate(actions, 1):
        who = f" ({_plain(action['who'])})" if action["who"] else ""
        yield f"{place}. **{_plain(action['what'])}**{who}: {_plain(action['why'])}"
        yield f"   {_code(action['command'])}"
    if unassigned:
        yield from ("", unassigned)


def _news(news: list[Plain]) -> Iterator[str]:
    if news:
        yield from ("", "### New, worse, back or no longer seen", "")
    for change in news:
        what, names = _change(change, _plain)
        yield f"- **{what}**: {names}"


def _change(change: Plain, plain: Callable[[str], str] = str) -> tuple[str, str]:
    """What changed of how many failures, and which."""
    names = "; ".join(plain(name["name"]) for name in change["names"])
    more = f"; {number(change['n_more'])} more" if change["n_more"] else ""
    return f"{number(change['n'])} {change['title'].lower()}", f"{names}{more}"


def _failures(failures: Plain) -> Iterator[str]:
    clusters = failures.get("clusters", ())
    if not clusters:
        return
    yield from ("", "### What fails", "")
    yield from ("| failure | state | incidents | lost | owner |", "|---|---|---|---|---|")
    for cluster in clusters[:N_CLUSTERS]:
        is_back = cluster["is_back"] or cluster["state"] == "back"
        state = "reappeared" if is_back else cluster["state"]
        name = shorten_template(cluster["name"], _LONGEST_NAME)
        yield _row(name, state, *_of_cluster(cluster))
    if len(clusters) > N_CLUSTERS:
        yield from ("", say("digest.more", n=len(clusters) - N_CLUSTERS))


def _of_cluster(cluster: Plain) -> tuple[str, str, str]:
    """Its incidents, what it cost, and its owner."""
    return number(cluster["n_incidents"]), lost_in_words(cluster["lost"]), cluster["owner"] or ""


def _plain(text: str) -> str:
    """Text on one line, with every character of Markdown escaped."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    return _inert(_LINKED.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", escaped))


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
        missing = say("digest.missing", message=losses[0]["message"], n=len(losses))
        yield _section(f"Data are missing: {missing}")
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
        yield from (_section(": ".join(_change(change))) for change in news)
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
    n, *others = _of_cluster(cluster)
    parts = (f"{n}×", shortened(cluster["name"], 300), *others)
    return " · ".join(filter(None, (" ".join(part.split()) for part in parts)))


def _section(text: str) -> Plain:
    return {"type": "section", "text": _text(text, LONGEST_TEXT)}


def _text(text: str, longest: int) -> Plain:
    # Slack refuses a text of no characters.
    return {"type": "plain_text", "text": shortened(_inert(text), longest) or "-", "emoji": False}


def _inert(text: str) -> str:
    return text.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("://", f":{_ZERO_WIDTH_SPACE}//")

"""The report as blocks of Slack: a screen, within the limits that Slack publishes."""

from __future__ import annotations

import html
from collections.abc import Iterator

from stateanalytics.core.text import shortened
from stateanalytics.reporting.digest import N_CLUSTERS
from stateanalytics.reporting.failure_findings import lost_in_words
from stateanalytics.reporting.front import said_first
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.phrases import number

# https://docs.slack.dev/reference/block-kit/blocks
MOST_BLOCKS, LONGEST_HEADER, LONGEST_TEXT, LONGEST_FIELD, MOST_FIELDS = 50, 150, 3000, 2000, 10
_BREAK = "\u200b"


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
    return text.replace("@", f"@{_BREAK}").replace("://", f":{_BREAK}//")

"""Text from a store, made fit to be looked at.

What agents and tools write may hold terminal colours, control characters and marks
that turn the reading direction round. Shown raw they could hide or forge what a person
reads, in a terminal as in a page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

# Colours and cursor moves (CSI) and titles and links (OSC): decoration, dropped whole.
ANSI = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
)
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_DIRECTION = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = r"\u00ad\u180e\u200b\u2028\u2029\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb"
_BEYOND = r"\ud800-\udfff\U000e0000-\U000e007f"
#: Of these, what may stand inside a word and is not seen; for the engine of polars.
UNSEEN = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200c\u200d\U000e0000-\U000e007f"
    rf"{_DIRECTION}{_INVISIBLE}]"
)
#: A UUID as a page or a table shortens it to its first group, or to the first two where these
#: are a time (version 7); the ids of another system may begin the same where they are of one time.
LONG_ID = (
    "^(?:([0-9a-f]{8})-[0-9a-f]{4}-[^7][0-9a-f-]{21}|([0-9a-f]{8}-[0-9a-f]{4})-7[0-9a-f-]{21})$"
)
_STYLE = "padding:.2em 1em .2em 0;text-align:left;vertical-align:top;line-height:1.4"
CELL = f" style='{_STYLE}'"
"""Style of a table cell: notebooks align to the right, or put no space between cells."""
APART = f" style='{_STYLE};white-space:nowrap'"
"""The same for what stays on one line."""
UNTYPESET = "mathjax_ignore tex2jax_ignore"
"""Classes of HTML in which a notebook takes nothing between two dollars for a formula."""
_ANSI = re.compile(ANSI)
_STRANGE = re.compile(f"[{_CONTROL}{_DIRECTION}{_INVISIBLE}{_BEYOND}]")

# A spreadsheet takes a cell that begins so for a formula, and runs it; some of them skip
# what is blank or not seen before it, and read the full-width signs as the plain ones.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_DURATION = re.compile(r"\b\d[\d.,]* (?:s|min|h|d)(?: \d+ (?:s|min|h))*\b")
_FORMULA = re.compile(f"[\\s{_CONTROL}{_DIRECTION}{_INVISIBLE}]*[{_SIGNS}]|[\\t\\r\\n]")


def as_written(page: str) -> str:
    """HTML of which a notebook shows every text as it is written: a dollar begins no formula.

    Examples
    --------
    >>> as_written("<p>$4 and $5</p>")
    "<div class='mathjax_ignore tex2jax_ignore'><p>$4 and $5</p></div>"
    """
    return f"<div class='{UNTYPESET}'>{page}</div>"


def visible(text: str, *, keep: str = "") -> str:
    r"""Text in which nothing is hidden and nothing acts.

    Parameters
    ----------
    text : str
        From a store: anything.
    keep : str
        Characters to leave as they are, such as ``"\n"``.

    Returns
    -------
    str
        ANSI sequences are dropped; control characters, direction marks, invisible
        characters and half surrogates stand as escapes such as ``\x07`` or ``\u202e``.

    Notes
    -----
    Joiners (U+200C, U+200D) and variation selectors stay: scripts and emoji need them.
    The result is plain text, so HTML still has to be escaped where it is shown.

    Examples
    --------
    >>> print(visible("\x1b[31mfailed\x1b[0m: \u202egnp.exe\x07"))
    failed: \u202egnp.exe\x07
    >>> print(visible("two\nlines"))
    two\nlines
    """
    return _STRANGE.sub(
        lambda found: found[0] if found[0] in keep else _escaped(found[0]), _ANSI.sub("", text)
    )


def shell_word(text: str) -> str:
    r"""Text as one word of a shell, in ASCII where signs are in it that nobody sees.

    Examples
    --------
    >>> print(shell_word("a b"), shell_word("new\nline"))
    'a b' $'new\x0aline'
    """
    if not _STRANGE.search(text):
        return shlex.quote(text)
    signs = (
        chr(octet) if 32 <= octet < 127 and octet not in b"\\'" else f"\\x{octet:02x}"
        for octet in text.encode(errors="surrogateescape")
    )
    return f"$'{''.join(signs)}'"


def shortened(text: str, width: int) -> str:
    """Text cut to a number of characters, the last of them ``…`` where something is gone.

    A duration is there as a whole or not at all: half of one is another.

    Examples
    --------
    >>> shortened("a long message", 7)
    'a long…'
    >>> shortened("at most 1 h 30 min each", 13)
    'at most…'
    """
    if len(text) <= width:
        return text
    end = max(width - 1, 0)
    for duration in _DURATION.finditer(text):
        if duration.start() < end < duration.end():
            end = duration.start()
    return text[:end].rstrip() + "…"


def without_formula(text: str) -> str:
    """Text that a spreadsheet shows instead of running it as a formula.

    Examples
    --------
    >>> without_formula("=HYPERLINK(1)"), without_formula("plain")
    ("'=HYPERLINK(1)", 'plain')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def texts_within(plain: object) -> Iterator[str]:
    """Every text in nested mappings and lists, without their keys."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, Mapping | list):
        for value in plain.values() if isinstance(plain, Mapping) else plain:
            yield from texts_within(value)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")

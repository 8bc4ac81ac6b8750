"""How wide a text is drawn, in the widest of the fonts that a page may have for it.

A drawing is made before anybody knows which font its page will have: what draws it measures
its own, and the same text is up to a fifth wider in another. Measured in the widest (DejaVu
Sans, or Verdana), nothing is cut off in any.
"""

from __future__ import annotations

from collections.abc import Iterable

FONT_SIZE = 12
# Thousandths of the size, from the blank to the tilde.
_WIDTHS = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
    636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
    1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
    603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
    500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
    635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
)  # fmt: skip
_OTHER, _BOLD = 1000, 1.13
WIDTHS = {"ascii": _WIDTHS, "other": _OTHER, "bold": _BOLD}
"""The same, for what draws."""


def width_of(text: str, size: float = FONT_SIZE, *, is_bold: bool = False) -> float:
    """Pixels that a text takes at most.

    Examples
    --------
    >>> round(width_of("49 min")), round(width_of("49 min", is_bold=True))
    (42, 47)
    """
    thousandths = sum(
        _WIDTHS[place] if 0 <= (place := ord(letter) - 32) < len(_WIDTHS) else _OTHER
        for letter in text
    )
    return thousandths * size / 1000 * (_BOLD if is_bold else 1.0)


def widest(texts: Iterable[str], size: float = FONT_SIZE, *, is_bold: bool = False) -> float:
    """Pixels that the widest of some texts takes at most; 0 for none."""
    return max((width_of(text, size, is_bold=is_bold) for text in texts), default=0.0)


def fitted(text: str, room: float, size: float = FONT_SIZE, *, is_bold: bool = False) -> str:
    """Text cut to a room in pixels, ``…`` at its end where something is gone.

    Examples
    --------
    >>> fitted("ProviderQuotaError: API Error", 120), fitted("short", 120), fitted("short", 2)
    ('ProviderQuotaErr…', 'short', '')
    """
    if width_of(text, size, is_bold=is_bold) <= room:
        return text
    left = room - width_of("…", size, is_bold=is_bold)
    kept = len(text)
    while kept and width_of(text[:kept], size, is_bold=is_bold) > left:
        kept -= 1
    return text[:kept].rstrip() + "…" if kept else ""


def wrapped(text: str, room: float, size: float = FONT_SIZE, *, is_bold: bool = False) -> list[str]:
    """Lines that fit into a room, parted at blanks; a word that is too wide is cut.

    Examples
    --------
    >>> wrapped("Half of the flows end within 49 min", 120)
    ['Half of the flows', 'end within 49 min']
    """
    lines: list[str] = []
    for word in text.split():
        both = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(both, size, is_bold=is_bold) <= room:
            lines[-1] = both
        else:
            lines.append(fitted(word, room, size, is_bold=is_bold))
    return lines

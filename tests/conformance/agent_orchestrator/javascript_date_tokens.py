"""The tokens that `Date.parse` reads a text as."""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER, KEYWORD, SYMBOL, SPACE, OTHER, END = "number", "keyword", "symbol", "space", "other", "end"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES = {"ut": 0, "utc": 0, "z": 0, "gmt": 0, "cdt": -5, "cst": -6, "edt": -4, "est": -5}
_ZONES |= {"mdt": -6, "mst": -7, "pdt": -7, "pst": -8}
_WORDS = {name: ("month", n) for n, name in enumerate(_MONTHS, start=1)}
_WORDS |= {name: ("zone", hours) for name, hours in _ZONES.items()}
_WORDS |= {"am": ("half", 0), "pm": ("half", 12), "t": ("separator", 0)}

_SPACES = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
# Number, symbol, word (everything from A upwards), white space, text in brackets, the rest.
_TOKEN = re.compile(
    rf"(?P<number>[0-9]+)|(?P<symbol>[:+.)-])|(?P<keyword>[^\x00-@{_SPACES}]+)"
    rf"|(?P<space>[{_SPACES}]+)|(?P<bracket>\()|(?P<other>.)",
    re.DOTALL,
)
_SIGNIFICANT_DIGITS = 9


@dataclass(frozen=True)
class Token:
    """One token: its kind, its value, how long it was."""

    kind: str
    value: int = 0
    length: int = 0
    word: str = ""

    @property
    def is_sign(self) -> bool:
        """Is it a plus or a minus."""
        return self.kind == SYMBOL and self.word in {"+", "-"}

    @property
    def is_space(self) -> bool:
        """Is it white space."""
        return self.kind == SPACE

    @property
    def is_zulu(self) -> bool:
        """Is it the letter Z alone."""
        return self.is_keyword("zone") and self.length == 1

    def is_symbol(self, symbol: str) -> bool:
        """Is it this symbol."""
        return self.kind == SYMBOL and self.word == symbol

    def is_keyword(self, word: str) -> bool:
        """Is it a keyword of this sort."""
        return self.kind == KEYWORD and self.word == word

    def is_number_of(self, length: int) -> bool:
        """Is it a number of exactly so many digits."""
        return self.kind == NUMBER and self.length == length


class Tokens:
    """The tokens of one text, read from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = [*tokens, Token(END)]
        self._at = 0

    @property
    def peek(self) -> Token:
        """The next token, left where it is."""
        return self._tokens[self._at]

    def next(self) -> Token:
        """The next token; at the end, the end again."""
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def skip(self, symbol: str) -> bool:
        """Step over this symbol, if it is next."""
        is_next = self.peek.is_symbol(symbol)
        if is_next:
            self.next()
        return is_next


def tokens_of(text: str) -> Tokens:
    """Cut a text into tokens.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    Tokens
        Its tokens; text in brackets is one token without meaning.

    Examples
    --------
    >>> tokens_of("1 May").next()
    Token(kind='number', value=1, length=1, word='')
    """
    tokens: list[Token] = []
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        if match.lastgroup == "bracket":
            position = _after_brackets(text, match.start())
            tokens.append(Token(OTHER))
        else:
            tokens.append(_token(str(match.lastgroup), match.group()))
    return Tokens(tokens)


def _token(kind: str, text: str) -> Token:
    if kind == NUMBER:
        digits = text.lstrip("0")[:_SIGNIFICANT_DIGITS]
        return Token(NUMBER, int(digits or "0"), len(text))
    if kind == KEYWORD:
        return _keyword(text)
    if kind == SYMBOL:
        return Token(SYMBOL, {"+": 1, "-": -1}.get(text, 0), 1, text)
    return Token(kind)


def _keyword(text: str) -> Token:
    """A word counts by its first three letters; only months may be longer."""
    prefix = "".join(chr(ord(c) | 32) if "A" <= c <= "Z" else c for c in text[:3])
    word, value = _WORDS.get(prefix, ("", 0))
    if len(text) > 3 and word != "month":
        word, value = "", 0
    return Token(KEYWORD, value, len(text), word)


def _after_brackets(text: str, start: int) -> int:
    """Where the text after a bracket, and the brackets inside it, goes on."""
    depth, position = 0, start
    while position < len(text):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
        if depth == 0:
            break
    return position

"""How a pattern is cut into pieces, what each of them is, and which of them may vary."""

from __future__ import annotations

import polars as pl

from stateanalytics.failures.cut_off import TRACE_HERE
from stateanalytics.failures.masking import (
    KEPT,
    NAME_WITH_NUMBER,
    NAMES,
    OPPOSITES,
    PARTING,
)
from stateanalytics.failures.placeholders import CLOSE, OPEN

WILD = OPEN + CLOSE
PLACEHOLDER = f"{OPEN}[A-Z]*{CLOSE}"
# An apostrophe inside a word opens nothing; a quote before a letter closes nothing.
_QUOTED = (
    rf"'(?:[^'\n]|'[A-Za-z0-9{OPEN}])*''?"
    r'|"[^"\n]*"|`[^`\n]*`|`[^`' + r"'\n]*'|‘[^’\n]*’|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]"
)
# The end of a sentence is no part of its last word.
_MARKS = rf"{PARTING}`‘“«„{TRACE_HERE}"
_WORD = rf"(?:[^{_MARKS}]*[^{_MARKS}.?]|[^{_MARKS}]+)(?:'(?:s|t|d|m|re|ve|ll)(?-u:\b))?"
_NAME = (
    r"[A-Za-z][A-Za-z0-9]*(?:[_./@-]+[A-Za-z0-9]+)+|_+[A-Za-z]\w*"
    r"|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*"
)
_ITEM = rf"(?:{PLACEHOLDER}|{_NAME})"
_LIST = rf"{_ITEM}(?:, {_ITEM})+|[A-Za-z][\w-]*(?:, [A-Za-z][\w-]*){{2,}}"
_KEY = r"""[{,]\s*(?:"[^"\n]*"|'[^'\n]*')\s*:"""
_BRACKETS = (
    r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]|\((?:[^()\n]|\([^()\n]*\))*\)|\{(?:[^{}\n]|\{[^{}\n]*\})*\}"
)
# An object with such a key says what went wrong; any other is what something was given.
_ERROR_KEY = r"""["'](?:error|errors|message|msg|code|type|detail|status|reason)["']\s*:"""
_TRACE = f"(?s:{TRACE_HERE}.*)"
#: Programs that agents call; with an option, a pipe or `&&` behind one, a line is a command.
PROGRAMS = (
    "ansible|awk|bash|bun|cargo|cat|cd|chmod|cmake|cp|curl|deno|docker|dotnet|eslint|find|gh|git|go"
    "|gradle|grep|helm|java|jest|kubectl|ls|make|mkdir|mv|mvn|mypy|node|npm|npx|pip3?|pnpm|poetry"
    "|psql|pytest|python3?|rg|rm|rsync|ruff|scp|sed|sh|ssh|sudo|tar|terraform|tsc|uv|wget|yarn|zsh"
)
_COMMAND = (
    rf"(?:{PROGRAMS})(?: [^\s:;,()\[\]{{}}]+){{0,4}}? (?:--?[A-Za-z]|&& |\| )[^\n\[\]{{}}]*"
    r"|(?:make|(?:npm|pnpm|yarn|bun|uv|poetry) run) [\w:-]+$"
)
#: How a pattern is cut into columns, in words and then in brackets.
_REST = rf"{_KEY}|{_COMMAND}|{_LIST}|{_QUOTED}|{_WORD}"
WORDS = rf"{_TRACE}|{_REST}|[\s;:=|()\[\]<>!#]+|[^A-Za-z0-9]"
BRACKETS = rf"{_TRACE}|{_BRACKETS}|{_REST}|[\s;:=|<>!#]+|[^A-Za-z0-9]"
_MODELS = next(pattern for name, pattern in KEPT if name == "model")

_IS_WILD = rf"^(?:{PLACEHOLDER}|(?:(?:{OPEN}[A-Z]+{CLOSE}|'{PLACEHOLDER}')(?:, )?)+)$"
_OPPOSITE = rf"(?-u:\b)(?:{'|'.join(sorted(OPPOSITES))})(?-u:\b)"
NEVER = rf"(?:^|[{PARTING}`])(?:{NAMES[1:-1]}|{_MODELS})(?:$|[{PARTING}`])"


def cut_into_pieces(texts: pl.Series, columns: str) -> pl.DataFrame:
    """One row for each column of each pattern: what it is, and whether it may vary."""
    pieces = (
        pl.DataFrame({"text": texts})
        .with_row_index("number")
        .select("number", piece=pl.col("text").str.extract_all(columns))
        .explode("piece", empty_as_null=True)
        .with_columns(pl.col("piece").fill_null(""), column=pl.int_range(pl.len()).over("number"))
    )
    known = pieces.join(
        _kinds(pieces["piece"].unique()), on="piece", how="left", maintain_order="left"
    )
    # What an error says of itself is one sentence of few, though it stands in quotes.
    key = pl.col("is_error_key")
    is_said = (pl.col("kind") == "quoted") & (
        key.shift(1).over("number")
        | (key.shift(2) & (pl.col("piece").shift(1) == " ")).over("number")
    )
    return known.with_columns(
        kind=pl.when(is_said).then(pl.lit("said")).otherwise("kind"),
        piece=pl.when("is_list").then("blank").otherwise("piece"),
    ).drop("is_error_key", "is_list")


def _kinds(distinct: pl.Series) -> pl.DataFrame:
    """What each distinct piece is."""
    piece = pl.col("piece")
    in_marks = pl.col("kind").is_in(["quoted", "bracket", "payload"])
    first, n = piece.str.head(1), piece.str.len_chars()
    inside = pl.when(in_marks).then(piece.str.slice(1, n - 2)).otherwise(piece)
    has_letter = piece.str.contains(r"\p{L}")
    return (
        pl.DataFrame({"piece": distinct})
        .with_columns(
            kind=pl.when((n > 2) & first.is_in(list("'\"`‘“«„")) & ~piece.str.contains("', '"))
            .then(pl.lit("quoted"))
            .when(
                piece.str.contains(rf"^(?:{_KEY}.*\}}|\[['\"].*\])$")
                & ~piece.str.contains(_ERROR_KEY)
            )
            .then(pl.lit("payload"))
            .when((n > 1) & first.is_in(list("([{")) & piece.str.contains(r"[)\]}]$"))
            .then(pl.lit("bracket"))
            .when(piece.str.contains(f"^(?:{_COMMAND})$"))
            .then(pl.lit("command"))
            .when(piece.str.contains(f"^(?:{_NAME}|{_LIST})$"))
            .then(pl.lit("name"))
            .when(has_letter | piece.str.contains(OPEN, literal=True))
            .then(pl.lit("word"))
        )
        .with_columns(inside=inside)
        .with_columns(is_wild=pl.col("inside").str.contains(_IS_WILD))
        .with_columns(
            is_constant=has_letter & ~pl.col("is_wild") & (pl.col("kind").is_not_null()),
            may_vary=pl.col("kind").is_not_null()
            & ~pl.col("is_wild")
            & (
                ~piece.str.contains(f"[0-9]|^{TRACE_HERE}|^{_KEY}$")
                | piece.str.contains(f"^{NAME_WITH_NUMBER}$")
            )
            & ~pl.col("inside").str.to_lowercase().is_in(sorted(OPPOSITES))
            & ~piece.str.contains(NEVER)
            & ~((pl.col("kind") == "command") & piece.str.contains(_OPPOSITE))
            & ~((pl.col("kind") == "word") & piece.str.contains(OPEN, literal=True)),
            # A list of placeholders is one: nobody knows how many there will be.
            is_list=pl.col("is_wild") & ~piece.str.contains(f"^.?{PLACEHOLDER}.?$"),
            is_error_key=piece.str.contains(rf"^{_KEY}$") & piece.str.contains(_ERROR_KEY),
            is_kept=piece.str.contains("[0-9]")
            | (piece.str.contains(NEVER) & ~piece.str.starts_with(TRACE_HERE)),
            blank=pl.when(in_marks & (pl.col("kind") != "payload"))
            .then(pl.concat_str(first, pl.lit(WILD), piece.str.tail(1)))
            .otherwise(pl.lit(WILD)),
        )
        .drop("inside")
    )


def hashed(live: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces with their hashes, and the sum of them for each pattern.

    A pattern is the sum of its pieces' hashes, so leaving one out is a subtraction.
    """
    place, blank = pl.col("column").hash(7), pl.col("blank").hash(11)
    hashed = live.with_columns(
        part=pl.when("is_wild").then(blank).otherwise(pl.col("piece").hash(11)) ^ place,
        open=blank ^ place,
    )
    whole = hashed.group_by("number").agg(
        whole=pl.col("part").sum(), n_constant=pl.col("is_constant").sum(), length=pl.len()
    )
    return hashed, whole


def as_text(live: pl.DataFrame) -> pl.Series:
    """The patterns of pieces, in the order of their numbers."""
    return (
        live.group_by("number", maintain_order=True)
        .agg(text=pl.col("piece").str.join(""))
        .sort("number")["text"]
    )

"""The failures of agents as a labelled corpus: what a miner of templates is judged by here.

Written for this project, from the kinds of messages that providers, tools, git, package
managers and interpreters print; no line is anybody's log. Public benchmarks hold the logs
of servers, where an exit code is noise; here it is the information.
"""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.stats import random_columns
from stateanalytics.testing.corpus_texts import FAMILIES, TRACEBACKS

HOLE = re.compile(r"\{(\w+)\}")
MODELS = ("sonnet", "opus", "gpt-5.1-codex", "gpt-5.1-mini", "gemini-3-pro")
_HOSTS = ("api.anthropic.com:443", "api.openai.com:443", "generativelanguage.googleapis.com:443")
_FOLDERS = ("src", "tests", "lib", "app/models", "services/billing", "packages/ui", "docs/guide")
_FILES = ("parser.py", "test_checkout.py", "invoice.ts", "README.md", "schema.sql", "main.rs")
_CHOICES = {
    "host": (
        *("api.anthropic.com", "api.openai.com", "openrouter.ai", "llm-gateway.internal"),
        *("proxy.example.org", "models.example.net", "eu.models.example.net"),
    ),
    "user": ("ada", "ben", "cyd", "dov", "eve", "fay", "gus"),
    "word": ("parser", "invoice", "checkout", "ledger", "router", "planner", "billing", "search"),
    "tool": ("pytest", "make", "cargo", "npm", "ruff", "tsc", "gradle", "bazel"),
    "region": ("us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-south-1"),
    "branch": ("feature/login-17", "fix/4711", "agent/plan-9", "show/2026-05", "li/run-12"),
}
_NUMBERS = {
    "limit": (10, 5_000),
    "pid": (300, 4_000_000),
    "line": (1, 2_000),
    "port": (1_024, 65_535),
    "day": (10, 28),
    "hour": (10, 23),
    "byte": (1, 254),
}
_COLOURS = {"red": "\x1b[31m", "bold": "\x1b[1m", "plain": "\x1b[0m"}


def failure_corpus(n_messages: int = 5_000, *, seed: int = 0) -> pl.DataFrame:
    """Messages of failed agents, each with the template it was made from.

    Parameters
    ----------
    n_messages : int
        How many; every template occurs about as often as any other.
    seed : int
        The same seed gives the same messages.

    Returns
    -------
    polars.DataFrame, shape (n_messages, 4)
        ``message`` as it would be stored: some on several lines, with colours, in Unicode;
        ``template_id``, the truth; its ``family`` (provider, tool, git, network, …);
        ``kept_apart``: what tells it from its siblings and must never be merged over:
        exit code, exception, HTTP status, signal, model; empty elsewhere.

    Examples
    --------
    >>> corpus = failure_corpus(1000, seed=1)
    >>> corpus.height, corpus["template_id"].n_unique() >= 60
    (1000, True)
    """
    texts = [
        (f"{family} {number}", family, kept_apart, text)
        for family, lines in {**FAMILIES, **TRACEBACKS}.items()
        for number, (kept_apart, text) in enumerate(lines, 1)
    ]
    filled = _holes(pl.col("row"), seed)
    parts = [
        pl.select(row=pl.int_range(place, n_messages, len(texts), dtype=pl.UInt64)).select(
            "row",
            message=_text(text, filled),
            template_id=pl.lit(template_id),
            family=pl.lit(family),
            kept_apart=pl.lit(kept_apart),
        )
        for place, (template_id, family, kept_apart, text) in enumerate(texts)
    ]
    return pl.concat(parts).sort("row").drop("row")


def _text(text: str, filled: dict[str, pl.Expr]) -> pl.Expr:
    """The text with its holes filled; the same hole twice holds two values."""
    pieces = re.split(HOLE.pattern, text)
    seen: dict[str, int] = {}
    exprs = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            exprs.append(pl.lit(piece))
        else:
            seen[piece] = seen.get(piece, -1) + 1
            exprs.append(filled[f"{piece} {seen[piece]}" if seen[piece] else piece])
    return pl.concat_str(exprs)


def _holes(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    """What fills the holes, five values of each name."""
    every: dict[str, pl.Expr] = {}
    for copy in range(5):
        own = seed + 1_000_003 * copy
        filled = {**holes(row, own), **_more(row, own)}
        every |= {f"{name} {copy}" if copy else name: value for name, value in filled.items()}
    return every


def holes(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    """What fills the holes of templates, for each row number.

    Parameters
    ----------
    row : polars.Expr
        Row numbers.
    seed : int
        What the values depend on beside the row.

    Returns
    -------
    dict of str to polars.Expr
        Name of a hole to text. Secrets are made up and mean nothing anywhere.
    """
    number = _text_numbers(row, seed)
    relative = pl.concat_str(
        [
            random_columns.one_of(row, seed, "hole/folder", _FOLDERS),
            pl.lit("/"),
            random_columns.one_of(row, seed, "hole/file", _FILES),
        ]
    )
    directory = pl.concat_str(
        [pl.lit("/home/op/worktrees/"), random_columns.hex_id(row, seed, "hole/tree", 8)]
    )
    return {
        **number,
        "model": random_columns.one_of(row, seed, "hole/model", MODELS),
        "host": random_columns.one_of(row, seed, "hole/host", _HOSTS),
        "request": pl.concat_str(
            [pl.lit("req_"), random_columns.hex_id(row, seed, "hole/request", 24)]
        ),
        "secret": pl.concat_str(
            [pl.lit("sk-test-"), random_columns.hex_id(row, seed, "hole/secret", 32)]
        ),
        "sha": random_columns.hex_id(row, seed, "hole/sha", 8),
        "uuid": random_columns.uuid(row, seed, "hole/uuid"),
        "relative": relative,
        "artifact": random_columns.one_of(
            row, seed, "hole/artifact", ("critic__review", "report", "plan", "patch")
        ),
        "directory": directory,
        "path": pl.concat_str([directory, pl.lit("/"), relative]),
    }


def _text_numbers(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    ranges = {
        "seconds": (2, 900),
        "count": (2, 400),
        "size": (1_000, 900_000),
        "tokens": (200_001, 260_000),
    }
    return {
        name: random_columns.integer(row, seed, f"hole/{name}", low, high).cast(pl.String)
        for name, (low, high) in ranges.items()
    }


def _more(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    chosen = {
        name: random_columns.one_of(row, seed, f"corpus/{name}", values)
        for name, values in _CHOICES.items()
    }
    number = {
        name: random_columns.integer(row, seed, f"corpus/{name}", low, high).cast(pl.String)
        for name, (low, high) in _NUMBERS.items()
    }
    hundredths = random_columns.integer(row, seed, "corpus/hundredths", 101, 999).cast(pl.String)
    decimal = pl.concat_str(hundredths.str.head(1), pl.lit("."), hundredths.str.tail(2))
    return {
        **chosen,
        **number,
        "hex4": random_columns.hex_id(row, seed, "corpus/hex4", 4),
        "amount": decimal,
        "score": pl.concat_str(pl.lit("0."), hundredths),
        "duration": pl.concat_str(decimal, pl.lit("s")),
        "ip": pl.concat_str(pl.lit("10.0."), number["byte"], pl.lit("."), number["hour"]),
        "time": pl.concat_str(
            pl.lit("2026-05-"), number["day"], pl.lit("T"), number["hour"], pl.lit(":30:00Z")
        ),
        "url": pl.concat_str(pl.lit("https://git.example.org/team/"), chosen["word"]),
        **{name: pl.lit(code) for name, code in _COLOURS.items()},
    }

"""A labelled corpus of agent failures, to score the mining of templates.

Written for this project, from the kinds of messages that providers, tools, git, package
managers and interpreters print; no line is anybody's log. Public benchmarks hold the logs
of servers, where an exit code is noise; here it is the information.
"""

from __future__ import annotations

import re
from collections import Counter

import polars as pl

from stateanalytics.core.package_tables import table_rows
from tests.generators import draws

#: Texts with holes by family, each with what it must be kept apart by. Texts of one family that
#: differ only in an exit code, an exception, a status, a signal or a model are other failures.
FAMILIES: dict[str, list[tuple[str, str]]] = {}
for _row in table_rows(__package__, "texts.csv"):
    FAMILIES.setdefault(_row["family"], []).append((_row["apart_by"], _row["text"]))

_PYTHON = """Traceback (most recent call last):
  File "{directory}/{function}.py", line {line}, in {function}
    result = step(value)
  File "/usr/lib/python3.12/asyncio/tasks.py", line {line}, in wait_for
    return await fut
{raised}"""
_NODE = """{raised}
    at {function} ({directory}/{function}.js:{line}:{count})
    at Module._compile (node:internal/modules/cjs/loader:{line}:{count})
    at /srv/app/node_modules/queue/index.js:{line}:{count}"""


_EXCEPTION = "exception"


def _traceback(shape: str, function: str, raised: str) -> str:
    return shape.replace("{function}", function).replace("{raised}", raised)


TRACEBACKS: dict[str, tuple[tuple[str, str], ...]] = {
    "python": (
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "KeyError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "ValueError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "workers._errors.TimeoutError: {duration}")),
        (
            "exception",
            _traceback(_PYTHON, "run_plan", "workers._errors.RateLimitError: {duration}"),
        ),
        ("", _traceback(_PYTHON, "load_memory", "KeyError: 'step_{count}'")),
    ),
    "node": (
        (_EXCEPTION, _traceback(_NODE, "runStep", "TypeError: cannot read property {count}")),
        (_EXCEPTION, _traceback(_NODE, "runStep", "RangeError: cannot read property {count}")),
        ("", _traceback(_NODE, "spawnAgent", "TypeError: cannot read property {count}")),
    ),
}

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
_SIZES = {
    "seconds": (2, 900),
    "count": (2, 400),
    "size": (1_000, 900_000),
    "tokens": (200_001, 260_000),
}
_COLOURS = {"red": "\x1b[31m", "bold": "\x1b[1m", "plain": "\x1b[0m"}


def failure_corpus(n_messages: int = 5_000, *, seed: int = 0) -> pl.DataFrame:
    """Messages of failed agents, each with its true template; all occur about equally often.

    ``message`` as it would be stored: some on several lines, with colours, in Unicode;
    ``template_id``, the truth; its ``family`` (provider, tool, git, network, …);
    ``kept_apart``: what distinguishes it from its siblings and must never be merged over:
    exit code, exception, HTTP status, signal, model; empty elsewhere.
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
    """The text with its holes filled; a hole that occurs twice gets two values."""
    n_used: Counter[str] = Counter()
    parts = []
    for place, piece in enumerate(re.split(HOLE.pattern, text)):
        if place % 2 == 0:
            parts.append(pl.lit(piece))
        else:
            parts.append(filled[f"{piece} {n_used[piece]}" if n_used[piece] else piece])
            n_used[piece] += 1
    return pl.concat_str(parts)


def _holes(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    """Values for the holes, five of each name."""
    values: dict[str, pl.Expr] = {}
    for copy in range(5):
        own_seed = seed + 1_000_003 * copy
        filled = {**holes(row, own_seed), **_more_holes(row, own_seed)}
        values |= {f"{name} {copy}" if copy else name: value for name, value in filled.items()}
    return values


def holes(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    """Name of a hole to its text, for each row number; secrets are made up."""
    relative = pl.concat_str(
        [
            draws.one_of(row, seed, "hole/folder", _FOLDERS),
            pl.lit("/"),
            draws.one_of(row, seed, "hole/file", _FILES),
        ]
    )
    directory = pl.concat_str(
        [pl.lit("/home/op/worktrees/"), draws.hex_id(row, seed, "hole/tree", 8)]
    )
    return {
        **_integers(row, seed, "hole", _SIZES),
        "model": draws.one_of(row, seed, "hole/model", MODELS),
        "host": draws.one_of(row, seed, "hole/host", _HOSTS),
        "request": pl.concat_str([pl.lit("req_"), draws.hex_id(row, seed, "hole/request", 24)]),
        "secret": pl.concat_str([pl.lit("sk-test-"), draws.hex_id(row, seed, "hole/secret", 32)]),
        "sha": draws.hex_id(row, seed, "hole/sha", 8),
        "uuid": draws.uuid(row, seed, "hole/uuid"),
        "relative": relative,
        "artifact": draws.one_of(
            row, seed, "hole/artifact", ("critic__review", "report", "plan", "patch")
        ),
        "directory": directory,
        "path": pl.concat_str([directory, pl.lit("/"), relative]),
    }


def _integers(
    row: pl.Expr, seed: int, prefix: str, ranges: dict[str, tuple[int, int]]
) -> dict[str, pl.Expr]:
    return {
        name: draws.integer(row, seed, f"{prefix}/{name}", low, high).cast(pl.String)
        for name, (low, high) in ranges.items()
    }


def _more_holes(row: pl.Expr, seed: int) -> dict[str, pl.Expr]:
    chosen = {
        name: draws.one_of(row, seed, f"corpus/{name}", values) for name, values in _CHOICES.items()
    }
    number = _integers(row, seed, "corpus", _NUMBERS)
    hundredths = draws.integer(row, seed, "corpus/hundredths", 101, 999).cast(pl.String)
    decimal = pl.concat_str(hundredths.str.head(1), pl.lit("."), hundredths.str.tail(2))
    return {
        **chosen,
        **number,
        "hex4": draws.hex_id(row, seed, "corpus/hex4", 4),
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

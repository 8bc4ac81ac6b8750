"""Values that break readers: for cells, for JSON, for lines of text."""

import json
from random import Random
from typing import Any

MARK = "<img src=x onerror=fuzz()>"
"""Must never stand in a page as it is written here."""

TEXTS = (
    "", " ", "\x00", "a\x00b", "\x1b[31mred\x1b]0;title\x07", "\u202eevil", "\ufeff", "\u2028",
    MARK, "</script><script>fuzz()</script>", "=cmd|' /C calc'!A0", "x" * 5000, "null", "true",
    "NaN", "inf", "-0", "9" * 400, "1e400", "0x10", "١٢",
    "[" * 600, '{"a":' * 200, '{"a": 1', "[]",
    '"\\ud800"', "{}", '{"a": NaN}', "é" * 300, "\U0010ffff", "%s%n{0}",
    "'; DROP TABLE sessions;--",
    "running", "completed", "failed", "RUNNING ", "run.failed.\x00", "../../../etc/passwd",
    "2026-05-20T10:00:00Z", "2026-02-30T25:61:61Z", "+275760-09-13T00:00:00.000Z", "-000001-01-01",
    "0000-00-00", "2026-05-20 10:00:00.123456789 +0000 UTC", "yesterday", "1779840000",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1e-320, 1.7e308, -1e308, 9.9e17,
    1e10, 253402300800, 1779840000, 1779840000000, -62135596801, 4102444800, 0.1, 2**32,
)  # fmt: skip
OCTETS = (
    b"", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x80abc",
    b"\xff\xfea\x00", b"\xf4\x90\x80\x80",
    b"ok \xe2\x82", b'{"a": "\xff"}', bytes(range(256)),
)  # fmt: skip
LINES = (
    b"", b"{", b"null", b"[]", b"1e999", b'"text"', b"\x00", b"\xff\xfe", b"data: {}", b"=",
    b"a=", b"=b",
    b'{"type": null}', b'{"a": "\\ud800"}', b"[" * 3000, b'{"a":' * 1500, b"#", b"key=\xff",
    b'{"timestamp": 1e308}', b'{"a": ' + b"9" * 5000 + b"}", b"\xef\xbb\xbf{}", b"x" * 70000,
)  # fmt: skip


def for_cell(rng: Random) -> tuple[str, Any]:
    """An SQL expression with one place, and what goes there."""
    kind = rng.randrange(8)
    if kind == 0:
        return "?", None
    if kind == 1:
        return "?", rng.choice(NUMBERS)
    if kind == 2:
        return "?", rng.choice(OCTETS)
    if kind == 3:
        return "CAST(? AS TEXT)", rng.choice(OCTETS)
    if kind == 4:
        return rng.choice(("9e999 + 0 * length(?)", "-9e999 + 0 * length(?)")), "x"
    if kind == 5:
        return "?", json.dumps(for_json(rng))
    return "?", rng.choice(TEXTS)


def for_json(rng: Random, depth: int = 0) -> Any:
    """A value that `json.dumps` can write."""
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 5:
        return rng.choice((*NUMBERS, 10**400, float("inf"), float("nan")))
    if kind == 5:
        return rng.choice((None, True, False, "\ud800", "a\udfffb"))
    if kind == 6:
        return rng.choice(([], {}, [[]], {"": {}}))
    if kind == 7:
        return [for_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS)[:20]: for_json(rng, depth + 1) for _ in range(rng.randrange(4))}

"""Small changes to files, each by a random generator alone, so that it can be made again."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import hostile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Mutation = Callable[[Path, Random], None]
"""``mutate(path, rng)`` changes one file, or what lies beside it."""


def flip_bytes(path: Path, rng: Random) -> None:
    """A few bytes become others."""
    octets = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 12)):
        if octets:
            octets[rng.randrange(len(octets))] = rng.randrange(256)
    path.write_bytes(octets)


def cut_off(path: Path, rng: Random) -> None:
    """The end is missing."""
    octets = path.read_bytes()
    path.write_bytes(octets[: rng.randrange(len(octets) + 1)])


def insert_bytes(path: Path, rng: Random) -> None:
    """Foreign bytes in the middle."""
    octets = path.read_bytes()
    at = rng.randrange(len(octets) + 1)
    path.write_bytes(octets[:at] + rng.choice(hostile.OCTETS + hostile.LINES) + octets[at:])


def another_encoding(path: Path, rng: Random) -> None:
    """The same text as another program would have saved it."""
    text = path.read_bytes().decode("utf-8", "replace")
    encoding = rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "utf-7"))
    path.write_bytes(text.encode(encoding, "replace"))


def line_ends(path: Path, rng: Random) -> None:
    r"""Lines end in ``\r\n``, ``\r`` or NUL."""
    path.write_bytes(path.read_bytes().replace(b"\n", rng.choice((b"\r\n", b"\r", b"\0", b"\n\n"))))


def odd_line(path: Path, rng: Random) -> None:
    """A line is put in, doubled, dropped, or joined with the next one."""
    lines = path.read_bytes().split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(at, rng.choice(hostile.LINES))
    elif kind == 1:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 2:
        del lines[at]
    else:
        lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    path.write_bytes(b"\n".join(lines))


def odd_value(path: Path, rng: Random) -> None:
    """Values of a line ``key=value`` become others."""
    lines = path.read_text("utf-8", "surrogateescape").split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        key, equals, value = lines[at].partition("=")
        if value.startswith("{") and rng.random() < 0.8:
            with suppress(ValueError, RecursionError):
                lines[at] = f"{key}={json.dumps(_changed(json.loads(value), rng))}"
        elif equals:
            lines[at] = f"{key}={rng.choice((*hostile.TEXTS, *map(str, hostile.NUMBERS)))}"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))


def odd_setting(path: Path, rng: Random) -> None:
    """Values of a file of settings become others that are as well written."""
    lines = path.read_text("utf-8", "replace").split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition("=")
        if equals:
            lines[at] = f"{key}= {_toml(hostile.for_json(rng))}"
        elif rng.random() < 0.5:
            lines.insert(at, rng.choice(("[[rule]]", "[limits]", "[read_as.play]", "x = 1", "")))
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    words = {None: "1979-05-27T07:32:00Z", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return json.dumps(value) if isinstance(value, str) else repr(value)


def odd_json(path: Path, rng: Random) -> None:
    """Values of a document, or of lines of documents, become others; keys go or come."""
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        written = json.dumps(_changed(json.loads(text), rng))
    except (ValueError, RecursionError):
        lines = text.split("\n")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(lines))
            try:
                lines[at] = json.dumps(_changed(json.loads(lines[at]), rng))
            except (ValueError, RecursionError):
                continue
        written = "\n".join(lines)
    path.write_bytes(written.encode("utf-8", "surrogatepass"))


def _changed(value: Any, rng: Random) -> Any:
    for _ in range(rng.randint(1, 4)):
        value = _changed_once(value, rng)
    return value


def _changed_once(value: Any, rng: Random) -> Any:
    """One place of a document is changed; most changes are deep inside."""
    if not value or not isinstance(value, dict | list) or rng.random() < 0.15:
        return hostile.for_json(rng)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = rng.choice(keys)
    kind = rng.randrange(8)
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(value, dict):
        value[rng.choice(hostile.TEXTS)[:40]] = hostile.for_json(rng)
    elif kind == 2:
        value[key] = value[rng.choice(keys)]
    else:
        value[key] = _changed_once(value[key], rng)
    return value


def deep_json(path: Path, rng: Random) -> None:
    """A value that is nested thousands of levels deep, or a number of thousands of digits."""
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    depth = rng.choice((300, 2000, 100_000))
    value = rng.choice((opening * depth + "1" + closing * depth, "9" * 5000, "1e400", "-1e9999"))
    text = path.read_bytes().decode("utf-8", "replace")
    at = text.find(":", rng.randrange(len(text) + 1))
    path.write_text(text[: at + 1] + value + "," + text[at + 1 :], "utf-8")


def odd_place(path: Path, rng: Random) -> None:
    """Something that is no regular file lies where a file was, or nothing at all."""
    path.unlink()
    kind = rng.randrange(7)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to("nowhere")
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        os.mkfifo(path)
    elif kind == 4:
        path.symlink_to("/dev/zero")
    elif kind == 5:
        path.symlink_to("/dev/full")


def odd_name(path: Path, rng: Random) -> None:
    """A second file with an odd name lies beside it."""
    stem, dot, ending = path.name.partition(".")
    names = (
        b"\xff" + os.fsencode(path.name), os.fsencode(stem) + b"\xff" + os.fsencode(dot + ending),
        b"a\nb" + os.fsencode(dot + ending), b"\x1b[31m" + os.fsencode(dot + ending),
        b" " + os.fsencode(dot + ending), os.fsencode(path.name) + b".tmp.1", b"." * 20,
        os.fsencode(path.name) + b".corrupt-2026", "é\u202e".encode() + os.fsencode(dot + ending),
        b"<script>" + os.fsencode(dot + ending), os.fsencode(path.name) + b"-journal",
    )  # fmt: skip
    beside = os.path.join(os.fsencode(path.parent), rng.choice(names))  # noqa: PTH118
    with open(beside, "wb") as file:  # noqa: PTH123 - names that are no text
        file.write(path.read_bytes())


def packed_data(path: Path, rng: Random) -> None:
    """A packed file beside it, or in its place, of which few bytes become many."""
    begin = path.read_bytes()[:2000] if path.suffix != ".zst" else b""
    filling = rng.choice((b"\n", b'{"a":1}\n', b"{}\n", b"x", begin + b"\n"))
    n_bytes = rng.choice((2**20, 2**24, 2**26))
    octets = zstd.compress(begin + b"\n" + filling * (n_bytes // len(filling)))
    path.with_name(path.name.removesuffix(".zst") + ".zst").write_bytes(octets)


def with_a_hole(path: Path, rng: Random) -> None:
    """The end is a hole, which takes no room on disk; in UTF-16, too."""
    if rng.random() < 0.5:
        path.write_bytes(path.read_bytes().decode("utf-8", "replace").encode("utf-16"))
    os.truncate(path, path.stat().st_size + rng.choice((2**20, 2**26, 2**32)))


def many_blank_lines(path: Path, rng: Random) -> None:
    """Blank lines, or lines of hardly anything, by the hundred thousand."""
    octets = path.read_bytes()
    at = octets.find(b"\n", rng.randrange(len(octets) + 1)) + 1
    line = rng.choice((b"\n", b"\r\n", b" \n", b"{}\n", b"\0\n"))
    path.write_bytes(octets[:at] + line * rng.choice((5_000, 300_000)) + octets[at:])


def many_names(path: Path, rng: Random) -> None:
    """A record with thousands of keys."""
    keys = {f"k{n}": n for n in range(rng.choice((1_000, 30_000)))}
    record = json.dumps({"type": rng.choice(hostile.TEXTS)[:40], **keys}).encode()
    path.write_bytes(record + b"\n" + path.read_bytes())


GROWING: tuple[Mutation, ...] = (packed_data, with_a_hole, many_blank_lines, many_names)
BYTES: tuple[Mutation, ...] = (flip_bytes, cut_off, insert_bytes, another_encoding, line_ends)
DOCUMENTS: tuple[Mutation, ...] = (
    *(odd_json,) * 5, deep_json, odd_line, *GROWING, *BYTES
)  # fmt: skip
PLACES: tuple[Mutation, ...] = (odd_place, odd_name)
SETTINGS: tuple[Mutation, ...] = (odd_setting,) * 6 + (odd_line, *BYTES)
KEY_VALUES: tuple[Mutation, ...] = (odd_value, odd_value, odd_line, *BYTES)

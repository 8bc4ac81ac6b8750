"""Files of a cache under the user's own directory: what was read, for the next process.

A file holds a head in JSON and some blocks of octets, under one checksum. It is written under a
temporary name and renamed; one that is damaged, or of another version, is as good as none.
Nothing in it is executed. The folder is the user's alone, and may be deleted at any time.
What was read is still right while the digest of its files is the same.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.io.archive.manifests import package_version
from stateanalytics.io.files import Seen, files_below

VARIABLE = "STATEANALYTICS_CACHE"
OFF = "off"
MOST_BYTES = 2_000_000_000
"""Of all files together; beyond, those that were used longest ago are deleted."""
_MOST_OF_ONE = 1_000_000_000
_MAGIC = b"stateanalytics cache 1\n"
_ENDING, _HALF = ".cache", ".half"
_HOUR_S = 3600


@dataclass(frozen=True)
class Entry:
    """What a file of the cache holds.

    Attributes
    ----------
    head : mapping
        As it was given to `Cache.put`.
    blocks : sequence of memoryview
        Its octets, which stay readable after the file is deleted.
    """

    head: Mapping[str, Any]
    blocks: Sequence[memoryview]


@dataclass(frozen=True)
class Cache:
    """A folder of files by key.

    Attributes
    ----------
    root : pathlib.Path
        The folder, which need not exist.
    """

    root: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str] = os.environ) -> Cache | None:
        """The cache of this user; None where it is switched off.

        Examples
        --------
        >>> Cache.of_user({"STATEANALYTICS_CACHE": "off"}) is None
        True
        >>> Cache.of_user({"STATEANALYTICS_CACHE": "/tmp/mine"}).root.as_posix()
        '/tmp/mine'
        >>> relative = Cache.of_user({"XDG_CACHE_HOME": "here"})
        >>> relative.root == Cache.of_user({}).root
        True
        """
        named = environment.get(VARIABLE, "")
        if named.strip().lower() == OFF:
            return None
        if named:
            return cls(Path(named).expanduser())
        if sys.platform == "win32":
            base = environment.get("LOCALAPPDATA")
            usual = Path(base) if base else Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            usual = Path.home() / "Library" / "Caches"
        else:
            usual = Path(environment.get("XDG_CACHE_HOME", ""))
            # The standard of these variables ignores relative paths.
            usual = usual if usual.is_absolute() else Path.home() / ".cache"
        return cls(usual / "stateanalytics")

    def get(self, key: str) -> Entry | None:
        """What was put under a key; None where there is nothing that is whole and ours."""
        path = self._path(key)
        try:
            if not self._is_ours():
                return None
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(path, flags)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            entry = _entry(memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ)))
            with suppress(OSError):
                os.utime(path)  # used just now
        except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError):
            return None
        finally:
            os.close(handle)
        return entry

    def put(self, key: str, head: Mapping[str, Any], blocks: Sequence[bytes | memoryview]) -> bool:
        """Write a file, and delete the oldest ones above the limit; whether that was possible."""
        sizes = [len(block) for block in blocks]
        if sum(sizes) > _MOST_OF_ONE:
            return False
        written = json.dumps(
            {"version": code_version(), "sizes": sizes, "head": dict(head)}
        ).encode()
        parts = [len(written).to_bytes(8, "big"), written, *blocks]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                return False
            path = self._path(key)
            temporary = path.with_suffix(f".{secrets.token_hex(8)}{_HALF}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            try:
                # What a crash leaves half written has another checksum: it need not be synced.
                with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                    for part in (_MAGIC, checksum.to_bytes(4, "big"), *parts):
                        file.write(part)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._delete_oldest()
        except (OSError, ValueError):
            return False
        return True

    def drop(self, key: str) -> None:
        """Delete a file, if it is there."""
        with suppress(OSError):
            self._path(key).unlink()

    def bytes_besides(self, key: str) -> int:
        """Bytes of all files but that of a key: another number where something was read since."""
        own = self._path(key)
        return sum(status.st_size for path, status in self._files() if path != own)

    def usage(self) -> tuple[int, int]:
        """Number of files and of bytes."""
        sizes = [status.st_size for _, status in self._files()]
        return len(sizes), sum(sizes)

    def _path(self, key: str) -> Path:
        return self.root / f"{sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()}{_ENDING}"

    def _is_ours(self) -> bool:
        """Whether nobody else can have written to the folder."""
        if not hasattr(os, "getuid"):
            return True
        status = self.root.lstat()
        is_closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and is_closed

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with suppress(OSError):
            for path in self.root.iterdir():
                with suppress(OSError):
                    if path.suffix in (_ENDING, _HALF):
                        yield path, path.lstat()

    def _delete_oldest(self) -> None:
        files = sorted(self._files(), key=lambda pair: -pair[1].st_mtime_ns)
        total = 0
        for path, status in files:
            total += status.st_size
            # One that a killed process left is never renamed.
            is_left = path.suffix == _HALF and status.st_mtime < time.time() - _HOUR_S
            if total > MOST_BYTES or is_left:
                with suppress(OSError):
                    path.unlink()


def _entry(octets: memoryview) -> Entry | None:
    begin = len(_MAGIC) + 4
    if octets[: len(_MAGIC)] != _MAGIC:
        return None
    if zlib.crc32(octets[begin:]) != int.from_bytes(octets[len(_MAGIC) : begin], "big"):
        return None
    end = begin + 8 + int.from_bytes(octets[begin : begin + 8], "big")
    written = json.loads(bytes(octets[begin + 8 : end]))
    if written["version"] != code_version():
        return None
    blocks = []
    for size in written["sizes"]:
        blocks.append(octets[end : end + size])
        end += size
    return Entry(written["head"], blocks)


@cache
def code_version() -> str:
    """A digest of this program and of what its frames are made with."""
    package = Path(__file__).parents[1]
    total = sha256(f"{package_version()} {pl.__version__}".encode())
    # A checkout changes without a new version.
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".csv", ".json"):
            status = path.stat()
            total.update(f"{path} {status.st_size} {status.st_mtime_ns}".encode())
    return total.hexdigest()


# A write within the same tick of a file system's clock leaves the time as it was.
_TICK_NS = 2_000_000_000


def digest_of_files(paths: Iterable[str | Path], now: datetime, *words: object) -> str:
    """Digest of names, sizes and times of files; empty where equality would prove nothing.

    Parameters
    ----------
    paths : iterable of str or pathlib.Path
        Files, and directories with everything in them; absent paths count as absent.
    now : datetime
        The clock before anything was read. A file that was written later or just before proves
        nothing, because the next write may have the same time.
    *words : object
        What else must be equal.
    """
    total = sha256(repr(words).encode())
    newest = 0
    seen: Seen = {}
    try:
        for path in sorted({str(path) for path in paths}):
            for file, status in files_below(path, seen, is_strict=True):
                newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                facts = (
                    file,
                    status.st_ino,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
                total.update(repr(facts).encode())
    except OSError:
        return ""
    return total.hexdigest() if newest < now.timestamp() * 1e9 - _TICK_NS else ""

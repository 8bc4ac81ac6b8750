"""The process that makes inputs and runs them: one number a line in, one answer a line out."""

import faulthandler
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from stateanalytics.io.budget import on_disk

LIMIT_S, S_A_BYTE = 20.0, 40e-6
"""Most seconds of processor time for one input, and for each byte that it takes on disk."""
PEAK_BYTES, PEAK_RATIO = 1_000_000_000, 500
"""By how much memory may grow for one input, and for each of those bytes. 300,000 lines of two
bytes (0.9 MB) took 8.4 s and 795 MB, the most of all; inputs of some kilobytes 1 s and 130 MB."""
HANG_S = 90.0
"""After so many by the clock a worker hangs; other work may share the machine."""
MEMORY_BYTES = 4_000_000_000
"""What a worker may allocate. Address space is no measure: engines reserve it by the gigabyte."""
PACKAGE = "stateanalytics"


def innermost(error: BaseException) -> str:
    """The innermost frame of ours that an error passed through: ``folder/file.py:function``."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"/{PACKAGE}/" in frame.filename]
    if not ours:
        return "tests"
    place = ours[-1].filename.rpartition(f"/{PACKAGE}/")[2]
    return f"{place}:{ours[-1].name}"


def run(
    seed: int, number: int, originals: Path, folder: Path, now: Path | None = None
) -> dict[str, Any]:
    """Make one input, run it, and say how it went."""
    from stateanalytics.errors import StateAnalyticsError
    from tests.fuzz.targets import made

    begun = time.monotonic()
    answer: dict[str, Any] = {"seed": seed, "number": number, "verdict": "defect"}
    at = {"step": "making"}
    try:
        made_input = made(folder, seed, number, originals)
        answer |= {"target": made_input.target.name, "changed": made_input.changed}
        answer["disk_bytes"] = _disk_bytes(folder)
        before = _peak_from_now_on()
        spent = _processor_s()
        if now is not None:  # for whoever finds this process hanging or dead
            now.write_text(json.dumps(answer))
        answer["facts"] = made_input.target.run(made_input.path, made_input.rng, at)
        answer["verdict"] = "right"
    except StateAnalyticsError as error:
        answer |= {"verdict": "refused", "kind": type(error).__name__}
    except BaseException as error:
        answer |= {
            "kind": type(error).__name__,
            "where": innermost(error),
            "message": str(error)[:300].encode("utf-8", "backslashreplace").decode(),
        }
        if isinstance(error, KeyboardInterrupt):
            raise
    seconds = time.monotonic() - begun
    if answer["verdict"] != "defect":
        answer |= {"cpu_s": round(_processor_s() - spent, 2), "peak_bytes": _peak_bytes() - before}
        if answer["cpu_s"] > LIMIT_S + S_A_BYTE * answer["disk_bytes"]:
            answer |= {"verdict": "defect", "kind": "TooSlow", "where": at["step"]}
        elif answer["peak_bytes"] > PEAK_BYTES + PEAK_RATIO * answer["disk_bytes"]:
            answer |= {"verdict": "defect", "kind": "TooLarge", "where": at["step"]}
    return answer | {"step": at["step"], "seconds": round(seconds, 2)}


def _disk_bytes(folder: Path) -> int:
    """The room that an input takes on disk."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(on_disk(path.stat()) for path in files)


def _peak_from_now_on() -> int:
    """The memory that is taken now; `_peak_bytes` counts from here on, where that can be asked."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    """The most memory that was taken; 0 where nothing tells."""
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return 0


def _processor_s() -> float:
    """Processor time of this process and of those it waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(each) for each in who]
    return sum(each.ru_utime + each.ru_stime for each in used)


def serve(seed: int, traces: Path, keep: Path | None, planted: str | None) -> None:
    """Run the numbers that stdin names until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints must not stand between answers
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if planted:
        module, _, name = planted.partition(":")
        getattr(import_module(module), name)()
    with traces.open("w+") as trace, tempfile.TemporaryDirectory(prefix="fuzz-") as private:
        faulthandler.enable(trace)
        tempfile.tempdir = private
        import_module("tests.fuzz.targets")
        originals = traces.with_name("originals")
        print("ready", file=answers)
        for line in sys.stdin:
            number = int(line)
            trace.seek(0)
            trace.truncate()
            faulthandler.dump_traceback_later(HANG_S, file=trace)
            folder = Path(private) / "input" if keep is None else keep / f"{seed}-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            answer = run(seed, number, originals, folder, traces.with_name("now"))
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(answer), file=answers)

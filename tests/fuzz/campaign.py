"""The process that asks workers, waits no longer than it must, and keeps every answer."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.worker import HANG_S, PACKAGE

ROOT = Path(__file__).resolve().parents[2]
GRACE_S = 1.0
START_S = 120.0
INPUTS_A_WORKER = 400
"""Then a new one is begun: what leaks in libraries must not look like a defect."""

Answer = dict[str, Any]


class Worker:
    """A process that runs one input at a time; it is replaced when it hangs or dies."""

    def __init__(self, seed: int, keep: Path | None = None, planted: str | None = None) -> None:
        self.seed, self.keep, self.planted = seed, keep, planted
        self.process: subprocess.Popen[str] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-worker-"))
        self.n_run = 0

    def _begun(self) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "tests.fuzz", "--serve", str(self.folder / "trace"),
            "--seed", str(self.seed),
            *(["--keep", str(self.keep)] if self.keep else []),
            *(["--plant", self.planted] if self.planted else []),
        ]  # fmt: skip
        self.n_run = 0
        environment = {
            **os.environ, "POLARS_MAX_THREADS": "1", "TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        with (self.folder / "stderr").open("w") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=ROOT, env=environment, start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], START_S)[0] or not process.stdout.readline():
            self.process = process
            self.stop()
            raise RuntimeError("no worker: " + (self.folder / "stderr").read_text()[-2000:])
        return process

    def run(self, number: int) -> Answer:
        """The answer about one input, whatever becomes of the process."""
        if self.process is None or self.n_run >= INPUTS_A_WORKER:
            self.stop()
            self.process = self._begun()
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        begun = time.monotonic()
        with suppress(BrokenPipeError):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], HANG_S + GRACE_S)
        line = process.stdout.readline() if ready else ""
        self.n_run += 1
        if line:
            return dict(json.loads(line))
        kind = "Hang" if not ready else "Crash"
        self.stop()
        where, now = self._last_words()
        code = process.returncode
        return {
            "seed": self.seed, "number": number, "verdict": "defect", "kind": kind, "where": where,
            **now, "message": f"exit code {code}", "step": "?",
            "seconds": round(time.monotonic() - begun, 2),
        }  # fmt: skip

    def _last_words(self) -> tuple[str, Answer]:
        """The innermost frame of ours that it was in when it hung or died, and its input."""
        now: Answer = {}
        with suppress(OSError, ValueError):
            now = json.loads((self.folder / "now").read_text())
        trace = (self.folder / "trace").read_text(errors="replace").splitlines()
        ours = [line for line in trace if f"/{PACKAGE}/" in line and line.startswith("  File")]
        if not ours:
            return "?", now
        place, _, rest = ours[0].partition('", line')
        name = rest.rpartition(" in ")[2]
        return f"{place.rpartition(f'/{PACKAGE}/')[2]}:{name}", now

    def stop(self) -> None:
        """End the process and whatever it began."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            self.process = None
            for left in self.folder.glob("*/"):
                shutil.rmtree(left, ignore_errors=True)

    def end(self) -> None:
        """Stop for good."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Campaign:
    """Inputs of one seed in order, over as many workers as asked for.

    Of two answers about one input the later counts.
    """

    seed: int
    results: Path
    jobs: int = 2
    target: str | None = None
    planted: str | None = None
    answers: dict[int, Answer] = field(default_factory=dict)
    n_new: int = 0

    def __post_init__(self) -> None:
        if self.results.exists():
            for line in self.results.read_text().splitlines():
                with suppress(ValueError):  # it was stopped in the middle of a line
                    answer = json.loads(line)
                    if answer["seed"] == self.seed:
                        self.answers[answer["number"]] = answer

    def run(self, minutes: float, most: int | None = None) -> None:
        """Go on where the results end, defects first, until the time or the number is up."""
        end = time.monotonic() + 60 * minutes
        numbers, lock = self._numbers(most), threading.Lock()
        self.results.parent.mkdir(parents=True, exist_ok=True)

        def work() -> None:
            worker = Worker(self.seed, planted=self.planted)
            try:
                while time.monotonic() < end:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    answer = worker.run(number)
                    with lock, self.results.open("a") as file:
                        self.answers[number] = answer
                        self.n_new += 1
                        file.write(json.dumps(answer) + "\n")
            finally:
                worker.end()

        threads = [threading.Thread(target=work) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _numbers(self, most: int | None) -> Iterator[int]:
        known = dict(self.answers)
        yield from (number for number, answer in known.items() if answer["verdict"] == "defect")
        fresh = (number for number in range(2**31) if number not in known and self._is_of(number))
        for n_begun, number in enumerate(fresh):
            if n_begun == most:
                return
            yield number

    def _is_of(self, number: int) -> bool:
        if self.target is None:
            return True
        from tests.fuzz.targets import chosen

        return chosen(self.seed, number)[0].name == self.target

    @property
    def defects(self) -> list[Answer]:
        """What was found."""
        return [answer for answer in self.answers.values() if answer["verdict"] == "defect"]

    def summary(self) -> str:
        """How many inputs, how they went, and each class of defect with how to see it again."""
        verdicts = Counter(answer["verdict"] for answer in self.answers.values())
        by_target: dict[str, Counter[str]] = defaultdict(Counter)
        classes: dict[tuple[str, ...], list[Answer]] = defaultdict(list)
        for answer in self.answers.values():
            by_target[answer.get("target", "?")][answer["verdict"]] += 1
        for answer in self.defects:
            key = (answer.get("target", "?"), answer.get("kind", "?"), answer.get("where", "?"))
            classes[key].append(answer)
        lines = [
            f"seed {self.seed}: {len(self.answers):,} inputs ({self.n_new:,} now), "
            + ", ".join(f"{verdicts[word]:,} {word}" for word in ("right", "refused", "defect"))
        ]
        lines += [
            f"  {target}: {counts.total():,} inputs, {counts['refused']:,} refused"
            for target, counts in sorted(by_target.items())
        ]
        for (target, kind, where), found in sorted(classes.items(), key=lambda item: -len(item[1])):
            first = min(found, key=lambda answer: len(answer.get("changed", "?" * 9)))
            lines += [
                f"{len(found)} × {kind} in {where} ({target})",
                f"    {first.get('message', '')[:200]!r}",
                f"    after {', '.join(first.get('changed', []))}",
                f"    python -m tests.fuzz --seed {self.seed} --only {first['number']} --keep kept",
            ]
        return "\n".join(lines)

"""What agents fail with: the texts of the labelled corpus, by family.

Each is (what it must be kept apart by, text with holes). Texts of one family that differ
only in an exit code, an exception, a status, a signal or a model are different failures.
"""

from __future__ import annotations

from stateanalytics.core.package_tables import table_rows

_EXCEPTION = "exception"
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


def _traceback(shape: str, function: str, raised: str) -> str:
    return shape.replace("{function}", function).replace("{raised}", raised)


TRACEBACKS: dict[str, tuple[tuple[str, str], ...]] = {
    "python": (
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "KeyError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "ValueError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "workers._errors.TimeoutError: {duration}")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "workers._errors.RateLimitError: {duration}")),
        ("", _traceback(_PYTHON, "load_memory", "KeyError: 'step_{count}'")),
    ),
    "node": (
        (_EXCEPTION, _traceback(_NODE, "runStep", "TypeError: cannot read property {count}")),
        (_EXCEPTION, _traceback(_NODE, "runStep", "RangeError: cannot read property {count}")),
        ("", _traceback(_NODE, "spawnAgent", "TypeError: cannot read property {count}")),
    ),
}

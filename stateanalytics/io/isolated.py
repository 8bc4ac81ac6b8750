"""How a Python process of ours is started that sees nothing of this one's surroundings."""

from __future__ import annotations

import sys
from pathlib import Path

# An isolated process (-I -S) sees no libraries, and some packages import them: empty
# modules stand for those above the one to run, so that it is found without them.
_START = """
import importlib, sys, types
above = sys.argv[2].split(".")[:-1]
for level in range(1, len(above) + 1):
    package = types.ModuleType(".".join(above[:level]))
    package.__path__ = ["/".join([sys.argv[1], *above[1:level]])]
    sys.modules[package.__name__] = package
importlib.import_module(sys.argv[2]).main()
"""


def isolated(module: str, *arguments: str) -> list[str]:
    """The command that runs ``main`` of a module of this package in a process of its own.

    Parameters
    ----------
    module : str
        Its full name. It finds modules of this package, and no libraries but Python's own;
        neither the environment nor the working directory change what it imports.
    *arguments : str
        The last of its ``sys.argv``.
    """
    root = str(Path(__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _START, root, module, *arguments]

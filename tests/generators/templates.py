"""The ways to fail that generated messages are made from."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from tests.generators.failure_corpus import HOLE


@dataclass(frozen=True)
class Template:
    """One way to fail: a text with holes, the code it is stored under, and its true cause."""

    template_id: str
    reason_code: str
    exception_class: str
    cause: str
    text: str

    @property
    def holes(self) -> tuple[str, ...]:
        """Names of the holes, in order."""
        return tuple(HOLE.findall(self.text))

    @property
    def pattern(self) -> str:
        """The text with every hole written ``<*>``."""
        return HOLE.sub("<*>", self.text)

    def fill(self, **values: object) -> str:
        """The text with its holes filled.

        Examples
        --------
        >>> BY_ID["tool_exit_137"].fill(path="/tmp/a.rs")
        'ToolError: Bash exited with code 137: killed while building /tmp/a.rs'
        """
        return self.text.format(**values)


# Exit codes and exception classes are constants, not holes: in a failure they are
# the information, so messages that differ in them belong to different templates.
with Path(__file__).with_name("templates.csv").open(encoding="utf-8", newline="") as file:
    TEMPLATES = tuple(Template(**row) for row in csv.DictReader(file))
BY_ID = {template.template_id: template for template in TEMPLATES}

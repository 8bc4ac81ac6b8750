"""Lines of sources and templates fit next to each other on a screen."""

import re

from tests.conftest import ROOT

LONGEST = 100
SUFFIXES = (".py", ".pyi", ".j2", ".css")
PRAGMA = re.compile(r"  # (type: ignore|noqa)\b.*")


def test_no_line_of_a_source_or_template_is_longer_than_a_hundred_characters():
    long_lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "stateanalytics").rglob("*"))
        if path.suffix in SUFFIXES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        # An address cannot be broken.
        if len(PRAGMA.sub("", line)) > LONGEST and "https://" not in line
    ]
    assert not long_lines

"""What a report shows, made fit to be shown: no secrets, nothing hidden, not too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from stateanalytics.core.redaction import redact_texts
from stateanalytics.core.text import shortened, visible

# Longer text is cut before it is made visible; what is shown is shorter still.
LONGEST_READ = 4_000
LONGEST_SHOWN = 400


def clean(plain: Any, *, secrets: bool) -> tuple[Any, Counter[str]]:
    """Plain data with every text made safe to show, and the count of what was taken out.

    Parameters
    ----------
    plain : dict, list, str, float, int, bool or None
        A summary. Keys are ours and stay; every text is taken to be hostile.
    secrets : bool
        Whether to mask secrets too; control characters are always made visible and
        long texts always cut.
    """
    texts = list(_texts(plain))
    # Half of a surrogate pair fits in no column; it is shown as an escape.
    whole = pl.Series(
        [text.encode(errors="backslashreplace").decode() for text in texts], dtype=pl.String
    )
    # Before they are cut: half of a secret has no shape.
    masked, n_masked = redact_texts(whole) if secrets else (whole, Counter[str]())
    shown = {text: _shown(left) for text, left in zip(texts, masked, strict=True)}

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            return shown[part]
        if isinstance(part, Mapping):
            return {key: walk(value) for key, value in part.items()}
        return [walk(value) for value in part] if isinstance(part, list) else part

    return walk(plain), n_masked


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping | list):
        for value in part.values() if isinstance(part, Mapping) else part:
            yield from _texts(value)


def _shown(text: str) -> str:
    visibly = visible(text[:LONGEST_READ])
    return shortened(visibly + "…" if len(text) > LONGEST_READ else visibly, LONGEST_SHOWN)

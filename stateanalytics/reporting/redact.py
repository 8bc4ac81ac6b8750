"""Secrets and strange characters, taken out of everything that a report shows.

The masks look at shapes, not at meaning: they catch what people paste by accident, and
promise nothing about a secret that looks like a word. Every mask is linear, or bounded
by the cap on length, so that hostile text costs no more than friendly text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stateanalytics.core.text import shortened, visible

# Longer text is cut before any mask sees it; what is shown is shorter still.
LONGEST_READ = 4_000
LONGEST_SHOWN = 400

_KEY_SHAPES = (
    r"sk-[A-Za-z0-9_-]{16,}",
    r"[prs]k_(?:live|test)_[A-Za-z0-9]{10,}",
    r"gh[oprsu]_[A-Za-z0-9]{16,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"(?:hf|npm)_[A-Za-z0-9]{20,}",
    r"pypi-[A-Za-z0-9_-]{40,}",
)
# Name of what was found -> (its shape, what stands there instead). In this order: the
# first ones are whole, the later ones could match a part of them.
MASKS: Mapping[str, tuple[re.Pattern[str], str]] = MappingProxyType(
    {
        "private key": (
            re.compile(
                r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?"
                r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
            ),
            "[private key]",
        ),
        "JSON web token": (
            re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+){0,4}"),
            "[JSON web token]",
        ),
        "API key": (re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEY_SHAPES)})"), "[API key]"),
        "bearer token": (
            re.compile(r"(?i)\b((?:bearer|basic)\s{1,8})[A-Za-z0-9._~+/=-]{12,}"),
            r"\1[token]",
        ),
        "named secret": (
            re.compile(
                r"(?i)((?:api[_-]?key|secret|passw(?:or)?d|token|access[_-]?key)"
                r"[\"']?\s{0,4}[:=]\s{0,4}[\"']?)(?=[^\s\"',;]{0,64}\d)[^\s\"',;\[\]]{6,200}"
            ),
            r"\1[secret]",
        ),
        "password in a URL": (
            re.compile(r"(://)[^/\s:@]{0,100}:[^/\s@]{1,200}@"),
            r"\1[user]:[password]@",
        ),
        "e-mail address": (
            re.compile(
                r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@"
                r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
            ),
            "[e-mail]",
        ),
        "home directory": (
            re.compile(r"(/(?:home|Users)/|[A-Za-z]:\\{1,2}Users\\{1,2})[^/\\\s:\"'<>|\[\]]{1,64}"),
            r"\1[user]",
        ),
    }
)


def redact(text: str) -> tuple[str, Counter[str]]:
    """The text without what looks like a secret, and how many of each kind were taken out.

    Parameters
    ----------
    text : str
        At most the first `LONGEST_READ` characters are kept.

    Returns
    -------
    tuple of str and Counter
        Kinds are keys of `MASKS`.

    Examples
    --------
    >>> redact("key sk-abcdefghijklmnopqrst for ann@example.org")
    ('key [API key] for [e-mail]', Counter({'API key': 1, 'e-mail address': 1}))
    """
    masked: Counter[str] = Counter()
    left = text[:LONGEST_READ]
    for kind, (shape, instead) in MASKS.items():
        left, n = shape.subn(instead, left)
        if n:
            masked[kind] = n
    return left, masked


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
    masked: Counter[str] = Counter()

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            shown, taken = _clean_text(part, secrets=secrets)
            masked.update(taken)
            return shown
        if isinstance(part, Mapping):
            return {key: walk(value) for key, value in part.items()}
        if isinstance(part, list):
            return [walk(value) for value in part]
        return part

    return walk(plain), masked


def _clean_text(text: str, *, secrets: bool) -> tuple[str, Counter[str]]:
    capped = text[:LONGEST_READ]
    first, masked = redact(capped) if secrets else (capped, Counter[str]())
    shown = visible(first)
    if secrets:
        # An escape sequence inside a secret hides it until it is taken out.
        shown, later = redact(shown)
        masked = masked + later
    if len(text) > LONGEST_READ:
        shown += "…"
    return shortened(shown, LONGEST_SHOWN), masked

"""Masking: replace what varies in messages by placeholders, the first half of mining templates.

All heavy passes replace matches by literals, because a regular expression that returns groups
is ten times slower. Parts that must be kept are therefore taken out as a whole first, and put
back into each distinct pattern.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

import polars as pl

from stateanalytics.core.joins import collected, collected_all
from stateanalytics.core.package_tables import table_rows
from stateanalytics.failures.traces import CUT, IS_TRACE, LIMITS, VIA, reduce_traces, trace_as_shown

# Characters of the private use area that mark places while a message is worked on. No
# message can hold them: they are removed first. A placeholder stands between the first two;
# the others stand for what was kept, for a name with a number, and between the cause of a
# trace and its rest.
OPEN, CLOSE = "\ue000", "\ue001"
KEPT_HERE, NUMBERED_HERE, TRACE_HERE = "\ue002", "\ue003", "\ue004"
#: How a placeholder without a kind is shown.
WILDCARD = "<*>"

#: Characters that separate words.
PARTING = r"""\s,;:=|"'()\[\]{}<>!#"""

WEEKDAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"

#: Values with a recognisable shape, in order: name of the placeholder, pattern.
MASKS: tuple[tuple[str, str], ...] = (
    ("UUID", r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("TIME", rf"\b\d{{4}}-\d\d-\d\d[T ]{CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"),
    ("TIME", rf"\b{WEEKDAY},? {MONTH} +\d+ {CLOCK}(?: [A-Z]{{3,4}})? \d{{4}}\b"),
    ("TIME", rf"\b{MONTH} \d\d? {CLOCK}\b"),
    (
        "TIME",
        rf"\b{MONTH} \d\d?(?:st|nd|rd|th)?(?:, \d{{4}})?,?(?: at)? \d\d?(?::\d\d)? ?[AaPp][Mm]\b",
    ),
    ("EMAIL", r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
    ("SIZE", r"\b\d+(?:\.\d+)? ?[kKMGTP]?i?B\b"),
    ("TIME", r"\b(?:\d+h )?\d+m \d+(?:\.\d+)?s\b"),
)
#: An API key whose middle was redacted.
SECRET = r"\b(?:sk|pk|ghp|gho|xox[bp])[-_][\w-]*\*{2,}\w*"
#: Addresses, which are only looked for in texts with enough colons.
ADDRESSES: tuple[tuple[str, str], ...] = (
    ("MAC", r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"),
    (
        "IP",
        r"\b(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\b"
        r"|\b[0-9A-Fa-f]{3,4}:(?:[0-9A-Fa-f]{1,4}:){0,5}(?::[0-9A-Fa-f]{1,4}){1,6}\b",
    ),
)

#: How host names end; Java packages begin so.
HOST_ENDINGS = "com|org|net|io|ai|dev|app|cloud|edu|gov|internal|local"

#: A link. Its scheme is kept, as a problem with http differs from one with file. A colon at the
#: end does not belong to it.
LINK = r"""\b([A-Za-z][A-Za-z0-9+.-]*)://[^\s'"\])>,;|]*[^\s'"\])>,;|:]"""

_UNIT = r"(?:bytes|[kKMGTP]?i?B|ms|s|secs?|seconds?|mins?|minutes?|h|hours?)"
_AMOUNT = rf"[0-9][0-9.,]* ?{_UNIT}"
_AGAIN = rf"(?:{_AMOUNT}|(?:[0-9]+:)?[0-9]+:[0-9]{{2}}(?:\.[0-9]+)?)"
#: An amount that is repeated in another unit counts once: ``1190 bytes (1.16 KB)``.
SAID_AGAIN = (rf"(?-u:\b)({_AMOUNT}) \({_AGAIN}(?:, {_AGAIN})*\)", "${1}")
#: How long something took is one value, as a clock or as less than a unit.
DURATION = (
    r"(?i)(?-u:\b)(lifetime|duration|elapsed|uptime|runtime|took|eta)([:=]? ?)"
    rf"(?:<\*>(?::<\*>){{1,2}}|< ?<\*>(?: {_UNIT}(?-u:\b))?)",
    "${1}${2}<TIME>",
)
METHODS = "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS"
#: In the first line of an HTTP request only the path is replaced.
REQUEST = (rf"(?-u:\b)({METHODS}) [^\s\"']+ (HTTP/[0-9])", f"${{1}} {OPEN}{CLOSE} ${{2}}")

#: Numbers and names that distinguish failures: (kind, pattern). A word that begins with a match
#: is kept and never merged.
KEPT: tuple[tuple[str, str], ...] = (
    (
        "exit code",
        r"(?i:exit(?:ed|s)?(?: with)?(?: non-?zero)?(?:[ -](?:code|status))?|exit_?code|exit_status"
        r"|return(?:ed)? code|returncode|rc|code)(?:[\"' =:]+|\()-?\d{1,3}\b",
    ),
    (
        "HTTP status",
        r"(?i:HTTP(?:/\d(?:\.\d)?)?(?: (?:error|status|code))*|(?:http[ _])?status(?:[ _]?code)?"
        r"|response(?: code)?|request failed|returned|responded with|got)"
        r"(?:[\"' =:_]+|\()[45]\d\d\b",
    ),
    (
        "error with a status",
        r"(?:(?i:(?:api |server )?error(?: code)?)(?:[\"' =:]+| \()[1-5]\d\d"
        r"|\w+Error(?: |\()[45]\d\d|(?i:error) \d{1,3})\b",
    ),
    (
        "exception of a numbered package",
        r"[A-Za-z_]+[0-9]+[A-Za-z0-9_.]*\.[A-Z]\w*(?:Error|Exception|Timeout|Warning)\b",
    ),
    ("HTTP status and phrase", r"[45]\d\d [A-Z][a-z]+\b"),
    ("HTTP status in brackets", r"[\[(](?:4[0-3]\d|5[0-3]\d)[\])]"),
    ("error number", r"(?i:errno|error number)[ =:]*-?\d+\b"),
    (
        "error code",
        r"(?:(?:ERR|SQLSTATE|TS|CS|LNK|MSB|NU|SC|RUF|PLR|[EFWC])[-_ ]?\d{3,5}"
        r"|(?:ORA-|AADSTS|NETSDK|PGRST)\d{3,7}|ERR_[A-Z0-9_]+)\b",
    ),
    ("signal", r"(?i:signal)(?i: number)?[ =:]+\d{1,2}\b"),
    ("language version", r"(?i:python|node|java|php|ruby|perl|lua|gcc|clang)[ -]?v?\d+\.\d+\b"),
    (
        "model",
        r"(?i:(?:[a-z][a-z_-]*[/.])*(?:gpt|claude|opus|sonnet|haiku|gemini|gemma"
        r"|llama|mistral|mixtral"
        r"|codestral|devstral|magistral|fable|mythos|qwen|deepseek|grok|phi|codex|kimi|glm|minimax"
        r"|nemotron)"
        r"\d*(?:[-.:][A-Za-z0-9]+)*|o[134](?:-[a-z]+)?)\b",
    ),
)

KEPT_KINDS = tuple(kind for kind, _ in KEPT)

#: A word with one short number inside is a name: jk2_init, log4j, Slf4jLogger, base64url.
NAME_WITH_NUMBER = r"[A-Za-z]{2,}[0-9]{1,2}[A-Za-z_]+\b"

#: Words that reverse the meaning of a message. They are never merged.
OPPOSITES = frozenset(
    """
    failed failure fail succeeded success succeed ok passed rejected accepted denied
    granted allowed refused true false yes no on off open opened close closed start
    started starting stop stopped stopping begin end up down enabled disabled add added
    remove removed create created delete deleted connect connected disconnect disconnected
    valid invalid found missing present absent before after above
    below over under not without timeout timed cancelled canceled aborted completed killed
    retry retrying retried warning error info debug critical fatal
""".split()
)

#: Names of what went wrong: exceptions, with their package, signals, system errors.
NAMES = (
    r"^(?:(?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Fault|Failure)s?"
    r"|(?:[a-z_]\w*\.)+error|[a-z]+(?:_[a-z]+)*_(?:error|failed|exceeded)"
    r"|(?:\w+\.)*\w+(?:Timeout|Expired|Denied|Refused|Rejected|Cancelled|Canceled"
    r"|Disconnected|Aborted"
    r"|Unavailable|Exceeded|Overloaded|Iteration|Requests|Reset|Pipe|Pool)"
    r"|Unauthorized|Forbidden|NotFound|CONFLICT|SIG[A-Z]+|E[A-Z]{4,})$"
)


#: Of messages longer than the first number, so many characters of both ends are kept.
LONGEST, HEAD, TAIL = 4_000, 3_000, 900

_ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
# Frames and bullets that the terminals of agents put around a message, and those of jest.
_OF_PANES = r"^\s*(?:[⎿■│┃⏺✗×❯]\s+)+|\s+[│┃]\s*$|^\s*●\s+([^›\n]*(?:\n|$))"
_WRAPPED = r"^[^\n]+(?:\n {5}\S[^\n]*)+\s*$"
# Node lists the files that required a module between a message and its frames.
_REQUIRED_BY = r"\nRequire stack:(?:\n- [^\n]*)+"
_UNSEEN = r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ue000-\ue004]"
# A message without these, and with ASCII characters only, is clean already.
_UNCLEAN = ("  ", "\t", "\n", "\r", "\x1b", r"\"")
_LINE_BREAKS, _SPACES = r"\s*[\n\r]\s*", r"[^\S\n]{2,}|[\t\x0b\x0c]"

_MARKS = OPEN + CLOSE + KEPT_HERE + NUMBERED_HERE
_INSIDE = rf"[^{PARTING}{_MARKS}]"
_ENDING = rf"[^{PARTING}{_MARKS}.?]"
_START = rf"(?:^|[{PARTING}{CLOSE}])"
# Dots between a label and its number, as in `ready......1`, belong to neither.
_NUMBERED = rf"{_START}(?:[A-Za-z][A-Za-z_]*\.+|\.{{3,}})[0-9]+(?:[{PARTING}?]|$)"
# The test in a file, as pytest names it.
_TEST = r"(?:(?:::[A-Za-z0-9_]+)+(?:\[[^\]\s]*\])?)?"
# Several patterns are twice as fast as one: each has literals that the engine searches first.
_PATHS = (
    rf"(?-u:\b)[A-Za-z]:\\{_INSIDE}*{_ENDING}",
    rf"\B\.{{0,2}}~?/{_INSIDE}*{_ENDING}{_TEST}",
    # A relative path has an extension or two folders: and/or, text/html are words.
    rf"(?-u:\b)(?:[A-Za-z0-9_.@+-]+/)+(?:[A-Za-z0-9_.@+-]*\.[A-Za-z]{{1,5}}"
    rf"|(?:[A-Za-z0-9_@+-]+/)[A-Za-z0-9_.@+-]+)(?-u:\b){_TEST}",
)
_HOST = rf"(?-u:\b)(?:[A-Za-z0-9_-]+\.)+(?:{HOST_ENDINGS})(\.?(?:[{PARTING}/]|$))"
_PATH = f"{OPEN}PATH{CLOSE}"
_REPLACED: tuple[tuple[str | None, tuple[tuple[str, str], ...]], ...] = (
    (
        "(?:[:-][0-9A-Fa-f]{0,4}){2}[:-]",
        tuple((pattern, f"{OPEN}{name}{CLOSE}") for name, pattern in ADDRESSES),
    ),
    (r"[A-Za-z] \([0-9]", (SAID_AGAIN,)),
    (None, tuple((pattern, f"{OPEN}{name}{CLOSE}") for name, pattern in MASKS)),
    (" HTTP/[0-9]", (REQUEST,)),
    (r"\*\*", ((SECRET, f"{OPEN}KEY{CLOSE}"),)),
    (
        r"[/\\]",
        (
            (LINK, f"${{1}}{OPEN}LINK{CLOSE}"),
            *((pattern, _PATH) for pattern in _PATHS),
            # A list of paths becomes one placeholder, because its length varies.
            (rf"{_PATH}(?:,?\s+{_PATH})+", _PATH),
        ),
    ),
    (
        rf"\.(?:{HOST_ENDINGS})(?-u:\b)|localhost",
        ((_HOST, f"{OPEN}HOST{CLOSE}$1"), (r"(?-u:\b)localhost(?-u:\b)", f"{OPEN}HOST{CLOSE}")),
    ),
)
_WORD = rf"{_INSIDE}*[0-9]{_INSIDE}*{_ENDING}|{_INSIDE}*[0-9]"
_KINDS = dict.fromkeys(["PATH", "HOST", "KEY", *(name for name, _ in (*MASKS, *ADDRESSES))])
_SHOWN = f"<({'|'.join(_KINDS)})>"
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_HEX = re.compile(r"\W?[0-9a-f]{7,}")


def mask(distinct: pl.DataFrame, keep: Collection[str] = KEPT_KINDS) -> pl.DataFrame:
    """Patterns of messages: what varies is replaced by placeholders.

    Parameters
    ----------
    distinct : polars.DataFrame, shape (n_messages, 2)
        ``number`` and ``message``, without null.
    keep : collection of str
        Which of `KEPT_KINDS` are not replaced.

    Returns
    -------
    polars.DataFrame, shape (n_patterns, 2)
        Distinct ``pattern``, a cleaned message with placeholders such as ``<UUID>``; and the
        list of the ``numbers`` of its messages. In any order.
    """
    text, kept = pl.col("text"), _kept(keep)
    taken = text.str.extract_all(_NUMBERED).list.join(KEPT_HERE)
    marked = text.str.replace_all(_NUMBERED, NUMBERED_HERE)
    patterns = collected(
        _cleaned(distinct)
        .pipe(_changed_where, text.str.contains("<", literal=True), as_placeholders(text))
        .pipe(_mask_known)
        .pipe(_mask_shapes)
        .lazy()
        .with_columns(
            kept=text.str.extract_all(kept).list.join(KEPT_HERE),
            text=text.str.replace_all(kept, KEPT_HERE),
        )
        .with_columns(
            numbered=taken.str.replace_all("[0-9]+", OPEN),
            text=marked.str.replace_all(_WORD, f"{OPEN}{CLOSE}"),
        )
        .group_by("text", "kept", "numbered", "trace")
        .agg(numbers="number")
    )
    whole = [_put_back(*row) for row in patterns[["text", "kept", "numbered"]].rows()]
    shown = as_shown(pl.lit(pl.Series(whole, dtype=pl.String))).str.replace_all(*DURATION)
    return collected(
        patterns.lazy()
        .group_by(pattern=pl.concat_str(shown, "trace"))
        .agg(pl.col("numbers").explode())
    )


def patterns_of(messages: pl.Series) -> pl.Series:
    """The pattern of each message: equal where only files, ids, times and the like differ.

    Parameters
    ----------
    messages : polars.Series of str

    Returns
    -------
    polars.Series of str
        In the order of ``messages``; null of null.
    """
    distinct = messages.to_frame("message").lazy().drop_nulls().unique()
    numbered = distinct.pipe(collected).with_row_index("number")
    masked = mask(numbered).lazy().explode("numbers")
    of_each = masked.join(numbered.lazy(), left_on="numbers", right_on="number").pipe(collected)
    return messages.replace_strict(of_each["message"], of_each["pattern"], return_dtype=pl.String)


def _kept(keep: Collection[str]) -> str:
    """A pattern for words of these kinds, and for names with a number."""
    patterns = [*(pattern for kind, pattern in KEPT if kind in keep), NAME_WITH_NUMBER]
    # Placeholders are not ASCII, and searching for Unicode word boundaries next to them is slow.
    return f"{_START}(?:{'|'.join(patterns)})".replace(r"\b", r"(?-u:\b)").replace(r"\d", "[0-9]")


def clean_lines(distinct: pl.DataFrame) -> pl.DataFrame:
    """Messages as one clean line each, traces reduced to their cause and own frame.

    Parameters
    ----------
    distinct : polars.DataFrame, shape (n_messages, 2)
        ``number`` and ``message``, without null.

    Returns
    -------
    polars.DataFrame, shape (n_messages, 2)
        ``number`` and ``text``. In any order.
    """
    return _cleaned(distinct).select(
        "number",
        text=as_line(
            pl.concat_str(
                pl.col("text").str.strip_suffix(f" {CUT}"), trace_as_shown(pl.col("trace"))
            )
        ),
    )


def _cleaned(distinct: pl.DataFrame) -> pl.DataFrame:
    """Clean messages with their line breaks; ``trace`` is what follows the cause of a trace."""
    message = pl.col("message")
    is_cut = message.str.len_chars().is_in(LIMITS) & ~message.str.ends_with(f" {CUT}")
    # Checking is much cheaper than cleaning, and most messages are clean already.
    needs_cleaning = (
        (message.str.len_bytes() != message.str.len_chars())
        | pl.any_horizontal(message.str.contains(part, literal=True) for part in _UNCLEAN)
        | is_cut
    )
    flagged = distinct.lazy().with_columns(needs_cleaning=needs_cleaning, is_cut=is_cut)
    text = shortened(message).str.strip_chars()
    dirty, neat = collected_all(
        flagged.filter("needs_cleaning"),
        flagged.filter(~pl.col("needs_cleaning")).select("number", text=text, trace=pl.lit("")),
    )
    if dirty.is_empty():
        return neat
    is_reduced = message.str.contains(VIA, literal=True)
    raw = dirty.filter(~is_reduced).with_columns(message=_unwrapped(message))
    is_trace = message.str.contains(IS_TRACE)
    text = pl.col("text")
    traces = pl.concat(
        [
            dirty.filter(is_reduced).select("number", text="message"),
            reduce_traces(raw.filter(is_trace).select("number", "message")),
        ]
    )
    cut = pl.when("is_cut").then(pl.lit(f" {CUT}")).otherwise(pl.lit(""))
    has_cause, ends = text.str.contains(VIA, literal=True), text.str.splitn("\n\t", 2).struct
    no_trace, clean = pl.lit(""), _one_space(shortened(text))
    parts = [
        raw.filter(~is_trace).select(
            "number", text=_one_space(shortened(message)) + cut, trace=no_trace
        ),
        # As one line it will not be taken for a trace again.
        traces.filter(~has_cause).select("number", text=as_line(clean), trace=no_trace),
        traces.filter(has_cause).select(
            "number",
            text=_one_space(shortened(ends.field("field_0"))),
            trace=pl.lit("\n\t") + ends.field("field_1"),
        ),
    ]
    return pl.concat([neat, *parts])


def _unwrapped(message: pl.Expr) -> pl.Expr:
    """A message without the frames of terminals, JSON around it and the lists of Node."""
    seen = message.str.replace_all(_ANSI, "").str.replace_all(_UNSEEN, "")
    own = seen.str.replace_all(_OF_PANES, "${1}").str.replace(_REQUIRED_BY, "")
    # JSON inside a text of JSON is unescaped, so that its depth does not matter.
    flat = own.str.replace_all(r'\\+"', '"').str.replace_all(r':\s*"([{\[])"', ': ${1}"')
    text = pl.when(own.str.contains(r"\"", literal=True)).then(flat).otherwise(own)
    joined = text.str.replace_all(r"\n {5}", " ")
    return pl.when(text.str.contains(_WRAPPED)).then(joined).otherwise(text)


def _changed_where(
    texts: pl.DataFrame, is_changed: pl.Expr | pl.Series, changed: pl.Expr
) -> pl.DataFrame:
    """The texts without the condition unchanged, then the others changed."""
    rows = texts.lazy()
    parts = [rows.filter(~is_changed), rows.filter(is_changed).with_columns(text=changed)]
    return pl.concat(parts).pipe(collected)


def shortened(text: pl.Expr) -> pl.Expr:
    """A text, or the beginning and the end of a long one."""
    ends = pl.concat_str(text.str.head(HEAD), pl.lit(" … "), text.str.tail(TAIL))
    return pl.when(text.str.len_chars() > LONGEST).then(ends).otherwise(text)


def _one_space(text: pl.Expr) -> pl.Expr:
    """A text with one space, or one line break, between words."""
    return text.str.replace_all(_LINE_BREAKS, "\n").str.replace_all(_SPACES, " ").str.strip_chars()


_SLOTS = {
    "{}": r"[^\n]{1,300}?",
    "{w}": r"""\S{0,300}[^\s,;:.)\]'"]""",
    "{l}": r"[^\n]{1,300}",
    "{*}": r"(?s:.){1,2000}?",
}


@cache
def _known_messages() -> tuple[tuple[str, str, str], ...]:
    """The messages of ``core/data/known_messages.csv``: needle, pattern and replacement.

    A slot is a value from the first message on: ``{}`` some text, ``{w}`` a word, ``{l}`` the
    rest of a line, ``{*}`` several lines.
    """
    found = []
    slot = "|".join(map(re.escape, _SLOTS))
    for row in table_rows("stateanalytics.core", "known_messages.csv"):
        parts = re.split(f"({slot})", row["text"].replace("\\n", "\n"))
        needle = max((part for part in parts if part not in _SLOTS), key=len)
        pattern = "".join(_SLOTS.get(part) or re.escape(part) for part in parts)
        # A dollar sign in a replacement would refer to a group.
        texts = (f"{OPEN}{CLOSE}" if part in _SLOTS else part for part in parts)
        found.append((needle, pattern, "".join(texts).replace("$", "$$")))
    return tuple(found)


def _mask_known(texts: pl.DataFrame) -> pl.DataFrame:
    """Texts with placeholders for the values in messages of known tools."""
    needles = list({needle for needle, _, _ in _known_messages()})
    has_any = texts["text"].str.contains_any(needles)
    if not has_any.any():
        return texts
    found = pl.col("text").filter(has_any).str.extract_many(needles, overlapping=True)
    there = set(texts.select(found.explode()).to_series())
    masked = pl.col("text")
    for needle, pattern, replacement in _known_messages():
        if needle in there:
            masked = masked.str.replace_all(pattern, replacement)
    return _changed_where(texts, has_any, masked)


def _mask_shapes(texts: pl.DataFrame) -> pl.DataFrame:
    """Texts with placeholders for values with a recognisable shape.

    A shape that needs a certain character is looked for only in texts that have it.
    """
    text = pl.col("text")
    for needed, replacements in _REPLACED:
        shaped = text
        for pattern, replacement in replacements:
            shaped = shaped.str.replace_all(pattern, replacement)
        if needed is None:
            texts = texts.with_columns(text=shaped)
            continue
        has_it = texts["text"].str.contains(needed)
        # Skipped if no text has it, because compiling the patterns is slow.
        if has_it.any():
            texts = _changed_where(texts, has_it, shaped)
    return texts


def is_blank(text: pl.Expr) -> pl.Expr:
    """Whether a text holds nothing but escapes, invisible characters and spaces."""
    return text.str.contains(rf"^(?:{_ANSI}|{_UNSEEN}|\s)*$")


def as_line(text: pl.Expr) -> pl.Expr:
    """A text without its line breaks."""
    return text.str.replace_all("\n", " ", literal=True)


def as_placeholders(text: pl.Expr) -> pl.Expr:
    """Texts with shown placeholders, such as ``<UUID>``, in the internal form.

    This makes a message that was masked before, such as a template, its own template.
    """
    return (
        text.str.replace_all(_SHOWN, f"{OPEN}$1{CLOSE}")
        .str.replace_all("://<LINK>", f"{OPEN}LINK{CLOSE}", literal=True)
        .str.replace_all(WILDCARD, OPEN + CLOSE, literal=True)
    )


def as_shown(text: pl.Expr) -> pl.Expr:
    """The inverse of `as_placeholders`."""
    return (
        # The slashes of a link are only added now, because they would look like a path.
        text.str.replace_all(f"{OPEN}LINK{CLOSE}", "://<LINK>", literal=True)
        .str.replace_all(OPEN + CLOSE, WILDCARD, literal=True)
        .str.replace_all(f"{OPEN}([A-Z]+){CLOSE}", "<$1>")
    )


def _put_back(text: str, kept: str, numbered: str) -> str:
    """The text with the parts that were taken out, except hashes that looked like names."""
    kept = KEPT_HERE.join(map(_without_hash, kept.split(KEPT_HERE)))
    for mark, taken in ((NUMBERED_HERE, numbered.replace(OPEN, OPEN + CLOSE)), (KEPT_HERE, kept)):
        if mark in text:
            parts = text.split(mark)
            pieces = [*taken.split(KEPT_HERE)[: len(parts) - 1], ""]
            text = "".join(part + piece for part, piece in zip(parts, pieces, strict=True))
    # Control characters are rare; texts without them skip the replacement.
    return re.sub("  +", " ", _CONTROL.sub("", text)).strip() if _CONTROL.search(text) else text


def _without_hash(kept: str) -> str:
    """A placeholder for a hash like ``aafee13a``, which looks like a name such as ``log4j``."""
    if not _HEX.fullmatch(kept):
        return kept
    return (kept[0] if not kept[0].isalnum() else "") + OPEN + CLOSE

"""Which parts of a failure message vary, and which never do: patterns as data.

Every pattern runs in time linear in the text (the regex engine of polars has neither
backtracking nor look-around).
"""

from __future__ import annotations

# A placeholder stands between the first two of these characters of the private use area
# while a message is worked on; the others stand for what was kept, and for a name with a
# number, until they are put back. No message can hold them: they are removed first.
OPEN, CLOSE, KEPT_HERE, NUMBERED_HERE = "\ue000", "\ue001", "\ue002", "\ue003"

#: How a placeholder without a kind is shown.
WILDCARD = "<*>"

#: Characters that part words. What stands between two of them is one word.
PARTING = r"""\s,;:=|"'()\[\]{}<>!#"""

WEEKDAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"

#: Things with a shape of their own, in order: name of the placeholder, pattern.
MASKS: tuple[tuple[str, str], ...] = (
    ("UUID", r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("TIME", rf"\b\d{{4}}-\d\d-\d\d[T ]{CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"),
    ("TIME", rf"\b{WEEKDAY},? {MONTH} +\d+ {CLOCK}(?: [A-Z]{{3,4}})? \d{{4}}\b"),
    ("TIME", rf"\b{MONTH} \d\d? {CLOCK}\b"),
    ("EMAIL", r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
    ("SIZE", r"\b\d+(?:\.\d+)? ?[KMGTP]?i?B\b"),
)

#: A link keeps its scheme: what is wrong with http differs from what is wrong with file.
LINK = r"""\b([A-Za-z][A-Za-z0-9+.-]*)://[^\s'"\])>,;|]+"""

#: Numbers and names that *are* the information of a failure: (what it is, pattern).
#: Matched where a word begins; the word stays as it stands and is never merged away.
KEPT: tuple[tuple[str, str], ...] = (
    (
        "exit code",
        r"(?i:exit(?:ed|s)?(?: with)?(?: non-?zero)?(?:[ -](?:code|status))?|exit_?code|exit_status"
        r"|return(?:ed)? code|returncode|rc|code)(?:[\"' =:]+|\()-?\d{1,3}\b",
    ),
    (
        "HTTP status",
        r"(?i:HTTP(?:/\d(?:\.\d)?)?(?: (?:error|status|code))*|(?:http[ _])?status(?:[ _]?code)?"
        r"|response(?: code)?|returned|responded with|got)(?:[\"' =:_]+|\()[1-5]\d\d\b",
    ),
    (
        "error with a status",
        r"(?:(?i:(?:api |server )?error(?: code)?)(?:[\"' =:]+| \()[1-5]\d\d"
        r"|\w+Error(?: |\()[45]\d\d|(?i:error) \d{1,3})\b",
    ),
    ("HTTP status and phrase", r"[45]\d\d [A-Z][a-z]+\b"),
    ("HTTP status in brackets", r"[\[(](?:4[0-3]\d|5[0-3]\d)[\])]"),
    ("error number", r"(?i:errno|error number)[ =:]*-?\d+\b"),
    ("error code", r"(?:ERR|SQLSTATE|TS|CS|LNK|MSB|SC|RUF|PLR|[EFWC])[-_ ]?\d{3,5}\b"),
    ("signal", r"(?i:signal)(?i: number)?[ =:]+\d{1,2}\b"),
    (
        "language version",
        r"(?i:python|node|java|php|ruby|perl|lua|gcc|clang)[ -]?v?\d+(?:\.\d+)?\b",
    ),
    (
        "model",
        r"(?i:(?:[a-z][a-z_-]*[/.])*(?:gpt|claude|opus|sonnet|haiku|gemini|gemma|llama|mistral|mixtral"
        r"|codestral|devstral|magistral|qwen|deepseek|grok|phi|codex|kimi|glm|minimax|nemotron)"
        r"\d*(?:[-.:][A-Za-z0-9]+)*|o[134](?:-[a-z]+)?)\b",
    ),
)

#: A word with one short number inside is a name: jk2_init, log4j, Slf4jLogger, base64url.
NAME_WITH_NUMBER = r"[A-Za-z]{2,}[0-9]{1,2}[A-Za-z_]+\b"

#: Words that turn a message into its opposite: never merged over.
OPPOSITES = frozenset(
    """
    failed failure fail succeeded success succeed ok passed rejected accepted denied
    granted allowed refused true false yes no on off open opened close closed start
    started starting stop stopped stopping begin end up down enabled disabled add added
    remove removed create created delete deleted connect connected disconnect disconnected
    valid invalid found missing present absent read write input output before after above
    below over under not without timeout timed cancelled canceled aborted completed killed
    retry retrying retried warning error info debug critical fatal
""".split()
)

#: Names that say what went wrong: exceptions, with their package, signals, system errors.
NAMES = (
    r"^(?:(?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Fault|Failure)s?"
    r"|(?:[a-z_]\w*\.)+(?:[A-Z]\w*|error)"
    r"|\w+(?:Timeout|Expired|Denied|Refused|Rejected|Cancelled|Canceled|Disconnected|Aborted"
    r"|Unavailable|Exceeded|Overloaded|Iteration|Requests|Reset|Pipe|Pool)"
    r"|Unauthorized|Forbidden|NotFound|SIG[A-Z]+|E[A-Z]{4,})$"
)

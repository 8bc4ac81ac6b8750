"""Text and frames without what looks like a secret, and what secrets look like.

A key of a service is known by its beginning, which services publish so that scanners find
it. Everything else is known by what stands before it: a name, a flag, a header, a link.
Nothing is taken for a secret only because it looks random; hashes and ids would go, too.

One regular expression looks for what every shape begins with; only texts in which it finds
something are gone through shape by shape. The engine never backtracks, so that hostile text
costs no more than friendly text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.text import ANSI, UNSEEN, visible

#: Service -> how its keys begin and go on. A word may stand right before only with a ``_``.
SERVICE_KEYS = {
    row["service"]: row["shape"] for row in table_rows("stateanalytics.core", "service_keys.csv")
}

#: Kind of secret -> what stands there instead.
PLACEHOLDERS: dict[str, str] = {
    "private key": "[private key]",
    "webhook": "[webhook]",
    "JSON web token": "[JSON web token]",
    "API key": "[API key]",
    "cookie": "[cookie]",
    "bearer token": "[token]",
    "password in a URL": "[user]:[password]@",
    "named secret": "[secret]",
    "e-mail address": "[e-mail]",
    "home directory": "[user]",
}
# One character of the private use area for each kind, while a text is worked on. No shape
# reaches over one, so nothing is masked twice, and what was masked before stays as it is.
MARKS = {kind: chr(0xE0F0 + place) for place, kind in enumerate(PLACEHOLDERS)}
#: The mark before what must stay readable although a shape would take it.
READABLE = "\ue0ff"
ANY_MARK = "\ue0f0-\ue0ff"

# Behind a colour, a word, a ``_``, an escape of JSON (``\n``) or of a link (``%20``). The edge of
# a word is that of ASCII: Unicode's is slow to look for.
_EDGE = r"\x1b\[[0-9;]*m|(?-u:\b)|\\[abfnrtv]|%[0-9A-Fa-f]{2}"
_BORDER = f"({_EDGE}|_)"
_QUOTE = r"(?:\\*[\"'`])"

_SERVICE = (
    "(?:open_?ai|anthropic|claude|azure|gemini|google|groq|mistral|cohere|deepseek|xai|grok"
    "|together|openrouter|perplexity|hugging_?face|hf|databricks|datadog|dd|sentry|stripe|twilio"
    "|sendgrid|mailgun|cloudflare|github|gh|gitlab|gl|npm|aws|gcp|slack|shopify|telegram|algolia)"
)
# Names of what is always a secret; longer names may end in them.
_STRONG = (
    "(?:passw(?:or)?d|passwd|passphrase|passcode|[_.-]pass|pwd|credentials?|authkey"
    "|secret(?:[_.-]?(?:access[_.-]?)?key(?:[_.-]?base)?)?"
    "|(?:api|app|private|access|account|subscription|master|encryption|signing|admin|auth"
    f"|storage|license|{_SERVICE}[a-z_-]*)[_. -]?key"
    "|(?:access|auth|refresh|bearer|bot|session|security|id|csrf|xsrf|api|private|personal"
    f"|{_SERVICE}[a-z_-]*)[_. -]?token)(?:[_.-]?(?:value|base64|b64|[0-9]))?"
)
# Names that other things have, too: a value must look the part.
_WEAK = r"(?:token|_auth|secret[_-]?id|connect\.sid|phpsessid|jsessionid)"
_ENVIRONMENT = "(?:PASS|PASSWD|PASSWORD|PASSPHRASE|SECRET|SECRET_KEY|API_KEY|TOKEN|CREDENTIALS?)"

_STOP = rf"\s\"'`,;&<>{ANY_MARK}"
# Brackets and the dot at the end belong to the sentence.
# A line break may be written as an escape; what follows it is another value.
_SIGN = rf"(?:[^{_STOP}\\]|\\+[^{_STOP}nrt\\])"
_VALUE = rf"{_SIGN}*[^{_STOP})\]}}.\\]"
_UNLIKE_WORDS = rf"{_SIGN}*(?:[0-9!@#$%^*+=~]|[a-z][A-Z])(?:{_VALUE})?"
_MIXED = rf"{_SIGN}*(?:[A-Za-z]{_SIGN}*[0-9]|[0-9]{_SIGN}*[A-Za-z])(?:{_VALUE})?"
_IS = rf"{_QUOTE}?\s{{0,4}}(?:=>|:=|==?|:|%3[ADad])"
_IS_LOOSELY = rf"{_IS}\s{{0,4}}"
# ``name=value`` and ``name = value``, but not ``name: value``, which is prose as well.
_EQUALS = rf"(?:{_IS}|{_QUOTE}?\s{{0,4}}==?>?\s{{0,4}})"

_ENCODED, _PADDED = "[J-Za-e][A-Za-z0-9+/]{3}", "[J-Za-e][A-Za-z0-9+/]{1,2}={1,2}"
_COMMAND = r"[^|;&\n]*?\s"
_PASSWORD_FLAG = r"--?[A-Za-z0-9_-]*(?:password|passwd|passphrase|pass|pwd)"
_TOKEN_FLAG = r"--?[A-Za-z0-9_-]*(?:token|secret|key|auth|credentials?)"
_HEADER = rf"(?:proxy-)?authorization{_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}?"

#: (kind, shape), what comes before the secret in a group, and what must follow in a second; in
#: this order: what is whole in itself first, since a shape below could match a part of it.
SHAPES: tuple[tuple[str, str], ...] = (
    (
        "private key",
        r"()-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("private key", r"()PuTTY-User-Key-File-[0-9]:[\s\S]*?(?:Private-MAC:\s*[0-9a-f]+|\z)"),
    (
        "webhook",
        r"((?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|webhook\.office\.com"
        r"/webhookb2|discord(?:app)?\.com/api/webhooks|hooks\.zapier\.com/hooks/catch)/)"
        rf"[^{_STOP}]{{8,}}",
    ),
    ("JSON web token", _BORDER + r"eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)*"),
    ("API key", f"{_BORDER}(?:{'|'.join(SERVICE_KEYS.values())})"),
    # Of Cursor; behind a ``_``, as in ``cache_key_…``, it is a digest.
    ("API key", f"({_EDGE})key_[0-9a-f]{{64}}"),
    (
        "cookie",
        rf"(?i)((?:set-)?cookie{_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}?)[^\s=;\"']+=[^\r\n\"']+",
    ),
    ("bearer token", rf"(?i)({_HEADER}digest\s)[^\r\n]+"),
    (
        "bearer token",
        rf"((?i:{_HEADER}(?:[a-z][a-z0-9-]*\s+)?))(?:[^{_STOP}\\]{{16,}}|{_UNLIKE_WORDS})",
    ),
    (
        "bearer token",
        r"((?-u:\b)(?i:bearer|basic|ssws)\s{1,8})(?:[A-Za-z._~+/=-]*(?:[0-9]|[a-z][A-Z]))"
        r"[A-Za-z0-9._~+/=-]{8,}",
    ),
    (
        "password in a URL",
        rf"(://)[^\s:/@\"'<>{ANY_MARK}]*:[^\s\"'<>@{ANY_MARK}]+(?:@[^\s\"'<>@/?#,{ANY_MARK}]+)*@",
    ),
    ("password in a URL", "(://)[A-Za-z_-]*[0-9][A-Za-z0-9_-]{18,}@"),
    # DSN of Go, where only what follows shows that it is one.
    (
        "named secret",
        rf"((?-u:\b)[A-Za-z0-9_.-]+:)[^\s\"'`@(){ANY_MARK}]+(@(?:tcp|udp|unix)[46]?\()",
    ),
    # A line of .pgpass; of ports only its own, since compilers write places in the same way.
    (
        "named secret",
        r"((?:[A-Za-z0-9_.-]+:(?:543[0-9]|6432):[^\s:\"']+|\*:\*:\*):[^\s:\"']+:)"
        rf"[^\s\"'`\\{ANY_MARK}]+",
    ),
    # Hashes of passwords, as htpasswd and /etc/shadow have them.
    (
        "named secret",
        r"()\$(?:2[abxy]?\$[0-9]{2}\$|(?:apr1|[156])\$(?:rounds=[0-9]+\$)?[./A-Za-z0-9]{1,16}\$)"
        r"[./A-Za-z0-9]{22,}",
    ),
    # What Docker keeps of a login: base64 of a name, a colon and a password, so each four signs
    # begin as three characters of ASCII do.
    (
        "named secret",
        rf"((?-u:\b)(?i:auth){_IS_LOOSELY}{_QUOTE})"
        rf"(?:(?:{_ENCODED}){{4,}}(?:{_PADDED})?|(?:{_ENCODED}){{2,}}{_PADDED})",
    ),
    # Assignments. In capitals, as in an environment, all up to a space belongs to the value.
    (
        "named secret",
        rf"((?-u:\b)[A-Z0-9_]*{_ENVIRONMENT}=)"
        rf"(?:[^\s\"'`<>\\{ANY_MARK}]|\\[^\s\"'`<>nrt{ANY_MARK}])+",
    ),
    ("named secret", rf"(?i)({_STRONG}{_IS_LOOSELY}\\+\")(?:[^\"\\{ANY_MARK}]|\\[^\"])+"),
    ("named secret", rf"(?i)({_STRONG}{_IS_LOOSELY}\")(?:[^\"\\\n{ANY_MARK}]|\\.)+"),
    ("named secret", rf"(?i)({_STRONG}{_IS_LOOSELY}(?:\\?'|`))(?:[^'`\\\n{ANY_MARK}]|\\[^'])+"),
    ("named secret", rf"(?i)({_STRONG}{_EQUALS}){_VALUE}"),
    ("named secret", rf"((?i:{_STRONG}{_IS_LOOSELY})){_UNLIKE_WORDS}"),
    ("named secret", rf"(?i)((?:{_WEAK}{_IS_LOOSELY}|(?-u:\b)pass=){_QUOTE}?){_MIXED}"),
    (
        "named secret",
        r"(?i)((?-u:\b)(?:sig|signature|x-(?:amz|goog)-(?:signature|security-token))=)"
        r"[A-Za-z0-9%+/=_-]{20,}",
    ),
    ("named secret", rf"(?i)(<[a-z0-9_:.-]*(?:{_STRONG}|token)>)[^\s<>{ANY_MARK}]+"),
    # Commands.
    ("named secret", rf"(?i)((?-u:\B){_PASSWORD_FLAG} \")[^\"\\\n{ANY_MARK}]+"),
    ("named secret", rf"(?i)((?-u:\B){_PASSWORD_FLAG} ')[^'\\\n{ANY_MARK}]+"),
    ("named secret", rf"(?i)((?-u:\B){_PASSWORD_FLAG}[ =]{_QUOTE}?)(?:{_VALUE})"),
    ("named secret", rf"(?i)((?-u:\B){_TOKEN_FLAG}[ =]{_QUOTE}?)(?:{_MIXED})"),
    (
        "named secret",
        rf"((?:sshpass|(?:docker|podman|helm registry|oras|skopeo|buildah) login){_COMMAND}"
        rf"-p ?{_QUOTE}?){_VALUE}",
    ),
    ("named secret", rf"((?:mysql|mariadb)[a-z]*{_COMMAND}-p)[^\s{ANY_MARK}]+"),
    ("named secret", rf"(redis-cli{_COMMAND}-a ){_VALUE}"),
    (
        "named secret",
        rf"((?:curl|http|https|wget){_COMMAND}(?:-u|-a|--user|--auth|--proxy-user)[ =]?"
        rf"{_QUOTE}?[^\s:\"'`{ANY_MARK}]+:)[^\s\"'`{ANY_MARK}]+",
    ),
    ("named secret", rf"(?i)(login\s+\S+\s+password\s+)[^\s{ANY_MARK}]+"),
    ("named secret", rf"(?i)((?:identified\s+by|password)\s+')[^'\n{ANY_MARK}]+"),
    # PHP: salts of WordPress, arguments of a connection.
    (
        "named secret",
        rf"(?i)(define\(\s*{_QUOTE}(?:(?:(?:secure_)?auth|logged_in|nonce)_(?:key|salt)"
        rf"|[a-z_]*(?:passw(?:or)?d|secret|api_key|token)){_QUOTE}\s*,\s*{_QUOTE})"
        rf"[^'\"\n{ANY_MARK}]+",
    ),
    (
        "named secret",
        rf"(?i)((?:(?:mysqli?_p?connect|new\s+mysqli)\(\s*|mysqli_real_connect\([^,()\n]+,\s*)"
        rf"(?:[^,()\n]+,\s*){{2}}{_QUOTE})[^'\"\\\n{ANY_MARK}]+",
    ),
    # Twelve words and more behind a name: words alone are prose.
    (
        "named secret",
        rf"(?i)((?:mnemonic|(?:seed|recovery)[ _-]?(?:phrase|words))(?:{_IS_LOOSELY}|\s+is\s+)"
        rf"{_QUOTE}?)(?:[a-z]{{3,8}}[ ,]{{1,2}}){{11,23}}[a-z]{{3,8}}",
    ),
    # Prose: "the password is hunter2".
    (
        "named secret",
        rf"(?i)((?:passw(?:or)?d|passphrase|passcode|secret|token|api[ _-]?key)\s+(?:is|was)\s+"
        rf"{_QUOTE}?){_MIXED}",
    ),
    (
        "named secret",
        r"(?i)((?-u:\b)(?:passw(?:or)?d|passphrase|secret|token|api[ _-]?key)\s+[\"'`]?)"
        r"(?:[a-z+/_=-]*[0-9][a-z0-9+/_=-]{15,}|[a-z+/_=-]{16,}[0-9][a-z0-9+/_=-]*)",
    ),
    (
        "e-mail address",
        r"((?-u:\b))[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}",
    ),
    (
        "home directory",
        rf"(/(?:home|Users)/|[A-Za-z]:\\{{1,2}}Users\\{{1,2}})[^/\\\s:\"'<>|\[\]{ANY_MARK}]+",
    ),
)

# Values that mean nothing, or code that shows where the value comes from.
_HARMLESS = (
    "(?:none|null|nil|undefined|true|false|yes|no|on|off|str|string|int|bool|bytes|object|any"
    "|required|missing|invalid|expired|empty|unset|wrong|incorrect|redacted|hidden|masked"
    "|same-origin|include|omit|[*•x.]+[a-z0-9]{0,4}|[a-z_]+(?:\\.[a-z_]+)+)"
)
_CODE = r"(?:[A-Za-z_][A-Za-z0-9_.]*[(\[]|[$%]?\{|\$[A-Za-z_(]|%[sdr(]|<|\[|\()"
_ORDINARY = (
    "(?:is|are|was|and|or|options?|flags?|arguments?|parameters?|requires?|required|must|to|for"
    "|from|in|with|not|cannot|needs?|given|missing|value|may|can|will|should|has|if|when|as|but"
    "|on|at|via|instead|only|does|did|then|stdin|file|prompt|the|an?|string|text)"
)
_NAMED = rf"(?:(?:{_STRONG}|{_WEAK}){_IS_LOOSELY}|{_PASSWORD_FLAG}[ =]|{_TOKEN_FLAG}[ =])"
_THEN_STOP = rf"(?:[{_STOP})\]}}\\.:]|$)"
# In quotes the word must be all there is: a passphrase may begin with "no" and a space.
_HARMLESS_IN_QUOTES = "|".join(
    f"{quote}{_HARMLESS}(?:{quote}|$)" for quote in ('"', "'", "`", r"\\+\"", r"\\+'")
)
#: What stays readable: its beginning, behind which a mark is put, and how it goes on.
KEPT_READABLE: tuple[str, ...] = (
    rf"(?i)({_NAMED})({_HARMLESS}{_THEN_STOP}|{_HARMLESS_IN_QUOTES})",
    rf"(?i)({_NAMED}{_QUOTE}?)({_CODE})",
    rf"(?i)((?:{_PASSWORD_FLAG}|{_TOKEN_FLAG}) )({_ORDINARY}{_THEN_STOP}|-)",
    rf"(?i)((?-u:\b)token:\s{{1,4}}{_QUOTE}?)([^{_STOP}]{{1,11}}{_THEN_STOP})",
    # Where the shell stands, and the port of a host.
    r"(?i)((?-u:\b)(?:old)?pwd[=:]\s?)([/~]|[a-z]:\\)",
    rf"(://[^\s:/@\"'<>{ANY_MARK}]*)(:[0-9]{{1,5}}(?:[/?#,;)\s\"']|$))",
    r"((?-u:\b)git)(@)",
)

# A key by its beginning only: what may be long is cut to one character.
_STEMS = (re.sub(r"\{\d+(?:,\d*)?\}", "+", keys) for keys in SERVICE_KEYS.values())
_WORDS = "passw(?:or)?d|passphrase|passcode|pwd|secret|token|key|credentials?"
#: What stands in every text with a secret, in ASCII and short, so that it is quickly found.
HINTS: tuple[str, ...] = (
    f"{_BORDER}(?:" + "|".join(_STEMS) + "|eyJ)",
    r"-----BEGIN|PuTTY-User|hooks\.|webhook",
    r"://[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]+@|://[^\s/@]*:[^\s@]+@",
    "(?i-u:cookie|authorization|phpsessid|jsessionid|connect\\.sid|signature=|identified)",
    "(?i-u:sig=|security-token=|_auth|sshpass|redis-cli|mysql|mariadb|curl|wget)",
    r"(?i-u:bearer|basic|ssws|https?|login)\s",
    r"key_[0-9a-f]{9}|\$(?:2[abxy]?|apr1|[156])\$|@(?:tcp|udp|unix)[46]?\("
    r"|:(?:543[0-9]|6432):|\*:\*:\*:",
    r"(?i-u:define\(\s*\\*['\"]|mnemonic|(?:seed|recovery)[ _-]?(?:phrase|words))",
    # A name, and then what gives it a value.
    rf"(?i-u:(?:pass|{_WORDS}|key_base|secret[_-]?id|auth)"
    r"(?:[_.-]?(?:value|base64|b64|[0-9]))?[\\\"'`]*\s*(?:[:=>]|%3))",
    rf"(?i-u:-[a-z0-9_-]*(?:pass|{_WORDS}|auth) )",
    rf"(?i-u:(?:{_WORDS})\s+(?:is\s|was\s|['\"`]|[a-z+/_=-]*[0-9]))",
    r"@[A-Za-z0-9-]+\.|/(?:home|Users)/|:\\\\?Users\\",
)


def as_pairs(column: pl.Series) -> pl.Series:
    """The column with maps, however deep, as lists of ``key`` and ``value``.

    Examples
    --------
    >>> maps = pl.Series("n", [{"a": 1}], dtype=pl.Map(pl.String, pl.Int64))
    >>> as_pairs(maps).to_list()
    [[{'key': 'a', 'value': 1}]]
    """
    if not column.dtype.is_nested():
        return column
    dtype = _without_maps(column.dtype)
    return column if dtype == column.dtype else column.cast(dtype)


def _without_maps(dtype: Any) -> pl.DataType:
    match dtype:
        case pl.Map():
            pair = {"key": _without_maps(dtype.key), "value": _without_maps(dtype.value)}
            return pl.List(pl.Struct(pair))
        case pl.List():
            return pl.List(_without_maps(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: _without_maps(field.dtype) for field in dtype.fields})
    known: pl.DataType = dtype
    return known


_HINT = "|".join(HINTS)
_MARK = "[" + "".join(MARKS.values()) + "]"
# The longest first: the placeholder of a home directory begins that of a password in a URL.
_BY_LENGTH = sorted(PLACEHOLDERS, key=lambda kind: -len(PLACEHOLDERS[kind]))


def redact(frame: pl.DataFrame) -> tuple[pl.DataFrame, Counter[str]]:
    """A frame without what looks like a secret, and how many of each kind were taken out.

    Parameters
    ----------
    frame : polars.DataFrame
        Any. Every text is looked at, inside lists and structs as well.

    Returns
    -------
    tuple of polars.DataFrame and Counter
        The same rows and columns. In a text, a secret gives way to the placeholder of its
        kind, such as ``[API key]``, always the same; all else stays, but that a map is a list
        of its pairs (in a map, keys with the same mask would be one). The kinds that are
        counted are the keys of `stateanalytics.core.redaction.PLACEHOLDERS`.

    Notes
    -----
    Shapes are looked for, not meaning: a password in prose that looks like a word stays.
    Redacting twice is redacting once. Time grows with the length of the text.

    Examples
    --------
    >>> import polars as pl
    >>> messages = pl.DataFrame({"message": ["DB_PASS=hunter2 for ann@example.org", "exit code 1"]})
    >>> masked, n_masked = redact(messages)
    >>> masked["message"].to_list()
    ['DB_PASS=[secret] for [e-mail]', 'exit code 1']
    >>> sorted(n_masked.items())
    [('e-mail address', 1), ('named secret', 1)]
    """
    n_masked: Counter[str] = Counter()
    columns = []
    for column in frame.get_columns():
        masked, n_in_column = redact_column(column)
        columns.append(masked)
        n_masked += n_in_column
    return pl.DataFrame(columns, height=frame.height), n_masked


def redact_with_names(frame: pl.DataFrame) -> tuple[pl.DataFrame, Counter[str]]:
    """As `redact`, the names of columns included: of raw tables they are a store's."""
    masked, n_masked = redact(frame)
    return masked.rename(
        dict(zip(frame.columns, redact_names(frame.columns), strict=True))
    ), n_masked


def redact_names(names: Sequence[str]) -> list[str]:
    """Names without secrets and without signs that nobody sees, none twice.

    Examples
    --------
    >>> redact_names(["id", "sk-abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrsu"])
    ['id', '[API key]', '[API key]_1']
    """
    shown = [visible(name) for name in redact_texts(pl.Series(names, dtype=pl.String))[0]]
    # Names that stay keep their name, whatever comes before them.
    taken = {name.casefold() for name, was in zip(shown, names, strict=True) if name == was}
    apart = []
    for name, was in zip(shown, names, strict=True):
        free, number = name, 0
        while name != was and free.casefold() in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        apart.append(free)
    return apart


def redact_column(column: pl.Series) -> tuple[pl.Series, Counter[str]]:
    """A column of any type without what looks like a secret, and how many of each kind."""
    column = as_pairs(column)
    dtype = column.dtype
    if dtype == pl.String:
        return redact_texts(column)
    if dtype == pl.Categorical:
        masked, n_masked = redact_texts(column.cast(pl.String))
        return (masked.cast(dtype) if n_masked else column), n_masked
    if not dtype.is_nested() or not column.len():
        return column, Counter()
    if isinstance(dtype, pl.Struct):
        fields, n_masked = redact(column.struct.unnest())
        whole = fields.to_struct(column.name)
        is_null = column.is_null()
        return (whole.set(is_null, None) if is_null.any() else whole), n_masked
    listed = column.cast(pl.List(dtype.inner)) if isinstance(dtype, pl.Array) else column
    rows = listed.alias("was").to_frame().with_row_index("at")
    values = rows.filter(pl.col("was").list.len() > 0).explode("was")
    masked, n_masked = redact_column(values["was"])
    if not n_masked:
        return column, n_masked
    lists = values.select("at", now=masked).group_by("at", maintain_order=True).agg("now")
    joined = rows.join(lists, on="at", how="left", maintain_order="left")
    both = joined.select(pl.coalesce("now", "was").cast(dtype).alias(column.name))
    return both.to_series(), n_masked


def redact_texts(texts: pl.Series) -> tuple[pl.Series, Counter[str]]:
    """Texts without what looks like a secret, and how many of each kind; null stays null.

    Examples
    --------
    >>> redact_texts(pl.Series(["key sk-abcdefghijklmnopqrst", None]))[0].to_list()
    ['key [API key]', None]
    """
    found = texts.filter(texts.str.contains(_HINT) | texts.str.contains(UNSEEN))
    if not found.len():
        return texts, Counter()
    counted = found.value_counts(name="n_times").rename({found.name: "text"})
    masked = _masked(counted["text"])
    is_new = masked.select(pl.any_horizontal(pl.col(*MARKS) > 0)).to_series()
    changed = pl.concat([counted, masked], how="horizontal").filter(is_new)
    if not changed.height:
        return texts, Counter()
    sums = changed.select(pl.col(*MARKS) * pl.col("n_times")).sum().row(0, named=True)
    left = texts.replace(changed["text"], changed["masked"])
    return left, Counter({kind: n for kind, n in sums.items() if n})


def _masked(texts: pl.Series) -> pl.DataFrame:
    """``masked``, and a column per kind: how many were taken out."""
    marked = texts.alias("was").to_frame().select(was=_with_marks(pl.col("was")))
    marked = marked.with_columns(now=_without_secrets(pl.col("was")))
    # An escape sequence or a sign that nobody sees inside a secret hides it from a shape.
    is_hiding = marked["now"].str.contains(UNSEEN)
    seen = pl.col("now").str.replace_all(ANSI, "").str.replace_all(UNSEEN, "")
    if is_hiding.any():
        # Most escapes are colours of a message that has no secret.
        is_hiding &= marked.select(seen.str.contains(_HINT)).to_series()
    if is_hiding.any():
        # A column of its own: shapes are made ready for every expression that names them.
        bare = marked.filter(is_hiding).with_columns(seen=_without_secrets(seen))
        n_seen, n_now = (pl.col(name).str.count_matches(_MARK) for name in ("seen", "now"))
        bare = bare.select(pl.when(n_seen > n_now).then("seen").otherwise("now"))
        marked = marked.with_columns(
            marked["now"].scatter(is_hiding.arg_true(), bare.to_series()).alias("now")
        )
    shown = pl.col("now").str.replace_all(READABLE, "", literal=True)
    for kind, mark in MARKS.items():
        shown = shown.str.replace_all(mark, PLACEHOLDERS[kind], literal=True)
    n_of = {kind: (_n(mark, "now") - _n(mark, "was")).clip(0) for kind, mark in MARKS.items()}
    return marked.select(masked=shown, **n_of)


def _with_marks(text: pl.Expr) -> pl.Expr:
    """Placeholders as marks, so that they are left alone; no text brings marks of its own."""
    text = text.str.replace_all(f"[{ANY_MARK}]", "\ufffd")
    for kind in _BY_LENGTH:
        text = text.str.replace_all(PLACEHOLDERS[kind], MARKS[kind], literal=True)
    return text


def _without_secrets(text: pl.Expr) -> pl.Expr:
    for shape in KEPT_READABLE:
        text = text.str.replace_all(shape, f"${{1}}{READABLE}${{2}}")
    for kind, shape in SHAPES:
        text = text.str.replace_all(shape, f"${{1}}{MARKS[kind]}${{2}}")
    return text


def _n(mark: str, column: str) -> pl.Expr:
    return pl.col(column).str.count_matches(mark, literal=True).cast(pl.Int64)

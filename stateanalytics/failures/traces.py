r"""Stack traces reduced to the innermost cause, what wrapped it, and the user's own frame.

A trace is read line by line, whatever its language, into exceptions and the frames of the
user's own code, in the order of the text. The result has lines that begin with a tab::

    httpx.ConnectError: cannot reach host 17
        then app.ProviderError
        in call_model (steps.py)
        via call_model (steps.py); ! httpx.ConnectError; main (cli.py); ! app.ProviderError

The last line keeps the order of events, so that a truncated trace (it ends in `CUT`) can
join the one whole trace that it is the beginning of.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

#: Whoever stored a text of one of these lengths probably truncated it.
LIMITS = (200, 250, 255, 256, 300, 400, 500, 512, 1000, 1024, 2000, 2048, 4096)
#: The end of a pattern that was probably truncated.
CUT = "…"
#: The cause of a trace that was truncated before its exception.
NO_CAUSE = "Traceback (most recent call last):"
#: Longer traces keep their beginning and their end.
HEAD, TAIL = 20_000, 60_000
#: Characters kept of an event, and events kept of a trace.
N_CHARS, N_EVENTS = 200, 40
THEN, IN, VIA = "\n\tthen ", "\n\tin ", "\n\tvia "

_CHAINED = "During handling of the above exception|The above exception was the direct cause"
_ERROR_NAME = r"[A-Za-z_$][\w.$]*(?:Error|Exception|Throwable|Failure|Exit|Cancelled)[\w$]*"
_WRAPPED = r"(?:Caused by:|\[cause\]:|--->)\s*"
_PREFIX = r'(?:Unhandled exception\.\s|Uncaught |\(node:\d+\) |Exception in thread "[^"]*"\s)'
_AT_FRAME = r"^\s+at \S"


@dataclass(frozen=True)
class _Language:
    """How traces of a language name exceptions and frames.

    Expressions read the columns ``line``, ``before`` and ``after``.
    """

    is_trace: str  # pattern that finds a trace in a message
    raised: pl.Expr  # the exception that the line names; else null
    frame: pl.Expr  # function and file of a frame of the user's own code; else null
    is_frame: pl.Expr  # whether the line belongs to a frame of any code
    starts_section: pl.Expr  # whether a new exception with frames of its own begins here
    cause_is_first: bool  # whether the innermost cause comes first in the text
    crash_is_first: bool  # whether the frame nearest to the crash comes first
    starts_chain: pl.Expr | None = None  # whether an unrelated trace begins; the last counts


_line, _after = pl.col("line"), pl.col("after")


def _with_file(function: pl.Expr, path: pl.Expr) -> pl.Expr:
    """``function (file)``, for languages whose functions do not name their module."""
    file = path.str.extract(r"([^/\\]*)$")
    return pl.concat_str(function.str.strip_chars().fill_null(""), pl.lit(" ("), file, pl.lit(")"))


def _python() -> _Language:
    path = _line.str.extract(r'^\s*File "([^"]+)", line \d+')
    foreign = r"site-packages|dist-packages|[/\\](?i:lib)(?:64)?[/\\]python|\\Lib\\|^<frozen"
    name = _line.str.extract(r"^\s*File .*, in (.+)$").fill_null("<module>")
    # The last line may be cut off in the middle of the function.
    is_whole = _after.is_not_null()
    # What cannot be imported is no fault of any file that imports it.
    is_import = _after.str.contains(r"^\s+(?:import|from) ")
    is_own = is_whole & ~is_import & ~path.str.contains(foreign)
    is_header = _line.str.contains(NO_CAUSE, literal=True)
    is_linked = pl.col("in_group") | pl.col("before").str.contains(_CHAINED).fill_null(value=False)
    raised = r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*|:)?$"
    is_raised = _line.str.contains(raised) & (pl.col("section") > 0) & ~is_header
    return _Language(
        is_trace=r"Traceback \(most recent call last\):",
        raised=pl.when(is_raised).then(_line),
        frame=pl.when(is_own).then(_with_file(name, path)),
        is_frame=path.is_not_null(),
        starts_section=is_header,
        cause_is_first=True,
        crash_is_first=False,
        starts_chain=is_header & ~is_linked,
    )


def _rust() -> _Language:
    function = _line.str.extract(r"^\s*\d+:\s+(?:0x[0-9a-f]+ - )?(\S.*)$")
    foreign = (
        r"^(?:rust_begin_unwind|_|main$|clone|start_thread"
        r"|<?(?:&?mut )?(?:core|std|alloc|tokio|futures\w*|backtrace)::)"
    )
    message = pl.coalesce(_line.str.extract(r"panicked at '(.*)', "), _after.str.strip_chars())
    is_panic = _line.str.contains("panicked at ", literal=True)
    bare = function.str.replace(r"::h[0-9a-f]{16}$", "")
    return _Language(
        is_trace=r"panicked at (?:(?s:.*)\n\s*stack backtrace:|[^\n]*:\d+:\n)",
        raised=pl.when(is_panic).then(pl.lit("panicked: ") + message),
        frame=pl.when(~function.str.contains(foreign)).then(bare),
        is_frame=function.is_not_null() | _line.str.contains(_AT_FRAME),
        starts_section=is_panic,
        cause_is_first=True,
        crash_is_first=True,
    )


def _go() -> _Language:
    function = _line.str.extract(r"^((?:created by )?[\w./*()$\[\]-]+?)\([^()]*(?:\(?|\))$")
    of_runtime = r"^(?:runtime|testing|panic|internal/|net/http|syscall|created by )"
    is_foreign = _after.str.contains(r"/go/src/|/pkg/mod/|/libexec/src/|/vendor/")
    is_foreign |= function.str.contains(of_runtime)
    signal = _after.str.extract(r"\[signal (SIG[A-Z]+)")
    is_raised = _line.str.contains(r"^\s*(?:panic|fatal error): ")
    return _Language(
        is_trace=r"(?m)^goroutine \d+ \[",
        raised=pl.when(is_raised).then(
            _line.str.strip_chars().str.replace(r" \[recovered\]$", "")
            + pl.format(" ({})", signal).fill_null("")
        ),
        # Only the first goroutine is the one that panicked.
        frame=pl.when(~is_foreign & (pl.col("section") == 1) & _after.is_not_null()).then(
            function.str.replace(r"^.*/", "")
        ),
        is_frame=function.is_not_null() | _line.str.contains(r"^\t"),
        starts_section=_line.str.contains(r"^goroutine \d+ \["),
        cause_is_first=True,
        crash_is_first=True,
    )


def _node() -> _Language:
    """Java and .NET, too: their frames all begin with ``at``."""
    in_brackets = _line.str.extract(r"^\s+at (?:async |new )*(.+?) \((.+?):\d+:\d+\)$", 1)
    path = pl.coalesce(
        _line.str.extract(r"^\s+at .+ \((.+?):\d+:\d+\)$"),
        _line.str.extract(r"^\s+at (?:async )?([^() ]+):\d+:\d+$"),
    )
    qualified = _line.str.extract(r"^\s+at (?:[\w.@-]+/)*([\w.$<>`]+?)\s?\(")
    foreign_file = r"node_modules|node:|^internal/|<anonymous>|^native|/\.(?:bun|deno)/"
    foreign_name = (
        r"^(?:javax?|jdk|sun|com\.sun|kotlinx?|scala|akka|reactor|io\.netty"
        r"|org\.(?:springframework|apache"
        r"|junit|hibernate|eclipse|gradle)|com\.google|System|Microsoft)\."
    )
    is_qualified = path.is_null() & qualified.str.contains(r"\.", literal=False)
    frame = (
        pl.when(path.is_not_null() & ~path.str.contains(foreign_file))
        .then(_with_file(in_brackets, path))
        .when(is_qualified & ~qualified.str.contains(foreign_name))
        .then(qualified)
    )
    is_wrapped = _line.str.contains(rf"^\s*{_WRAPPED}")
    is_first = ~_line.str.contains(_AT_FRAME) & (
        _line.str.contains(rf"^{_PREFIX}*{_ERROR_NAME}(?:\s\[\w+\])?(?::|$|\s+-*>)")
        | (_after.str.contains(_AT_FRAME) & (_line.str.contains(r"^\S")))
    )
    is_raised = is_wrapped | (is_first & (pl.col("n_frames") == 0))
    # .NET may write all causes on one line: the last of them is the innermost.
    text = _line.str.replace(rf"^\s*(?:{_WRAPPED})?{_PREFIX}*", "").str.strip_chars_end(" {")
    return _Language(
        is_trace=r"(?m)^\s+at \S+.*(?::\d+|\))",
        raised=pl.when(is_raised).then(text),
        frame=frame,
        is_frame=_line.str.contains(rf"{_AT_FRAME}|^\s+\.\.\. \d+ |--- End of "),
        starts_section=is_raised,
        cause_is_first=False,
        crash_is_first=True,
    )


#: Most specific first: a trace that fits several languages is read as the first of them.
LANGUAGES = (_python(), _rust(), _go(), _node())
IS_TRACE = "|".join(f"(?:{language.is_trace})" for language in LANGUAGES)


def reduce_traces(traces: pl.DataFrame) -> pl.DataFrame:
    """Reduce traces to the lines that the module describes.

    Parameters
    ----------
    traces : polars.DataFrame, shape (n_traces, 2)
        ``number`` and ``message``; with line breaks, without escapes.

    Returns
    -------
    polars.DataFrame, shape (n_traces, 2)
        ``number`` and ``text``, the message itself where nothing was raised. In any order.
    """
    message = pl.col("message")
    rest, parts = traces, []
    for language in LANGUAGES:
        is_trace = message.str.contains(language.is_trace)
        own, rest = rest.filter(is_trace), rest.filter(~is_trace)
        # Most stores hold traces of no language, or of one.
        if own.height:
            parts.append(_reduced(_events(own, language), language))
    if not parts:
        return traces.select("number", text="message")
    return traces.join(pl.concat(parts), on="number", how="left").select(
        "number", text=pl.coalesce("text", "message")
    )


def _events(traces: pl.DataFrame, language: _Language) -> pl.DataFrame:
    """One row for each line of a trace, with the exception or the own frame that it names."""
    message, line = pl.col("message"), pl.col("line")
    ends = pl.concat_str(message.str.head(HEAD), pl.lit("\n"), message.str.tail(TAIL))
    short = pl.when(message.str.len_chars() > HEAD + TAIL).then(ends).otherwise(message)
    is_cut = message.str.len_chars().is_in(LIMITS) | message.str.contains(r"(?:\.\.\.|…)\s*$")
    in_group = message.str.contains("Exception Group Traceback", literal=True)
    lines = (
        traces.select("number", is_cut=is_cut, in_group=in_group, line=short.str.split("\n"))
        .explode("line", empty_as_null=True)
        .with_columns(line.str.strip_chars_end())
        # Branches of a group of exceptions are drawn at the left.
        .with_columns(line.str.replace(r"^\s*(?:\+-[-+]*[- \d.]*$|[|+] )", ""))
        .filter(line != "")
        .with_columns(after=_neighbour(line, -1), before=_neighbour(line, 1))
        .with_columns(n_frames=_n_so_far(language.is_frame))
        .with_columns(section=_n_so_far(language.starts_section))
    )
    if language.starts_chain is not None:
        lines = lines.with_columns(chain=_n_so_far(language.starts_chain)).filter(
            pl.col("chain") == pl.col("chain").max().over("number")
        )
    raised = lines.with_columns(
        raised=language.raised, frame=language.frame.str.replace_all("[;\t]", " ")
    )
    # Only the first exception of a section: the rest are further lines of its message.
    nth = pl.col("raised").is_not_null().cast(pl.UInt32).cum_sum().over("number", "section")
    return raised.with_columns(raised=pl.when(nth == 1).then("raised")).select(
        "number", "is_cut", "section", "raised", "frame", is_end=pl.col("after").is_null()
    )


def _neighbour(line: pl.Expr, n: int) -> pl.Expr:
    """The line before or after this one; null: none of the same trace."""
    return pl.when(pl.col("number") == pl.col("number").shift(n)).then(line.shift(n))


def _n_so_far(condition: pl.Expr) -> pl.Expr:
    """How many lines of the message, up to this one, meet a condition."""
    return condition.fill_null(value=False).cast(pl.UInt32).cum_sum().over("number")


def _reduced(events: pl.DataFrame, language: _Language) -> pl.DataFrame:
    """The reduced text of each trace, from its events in the order of the text."""
    name = pl.col("raised").str.extract(r"^([^:\s(]+(?:::[^:\s(]+)*)")
    # The last word of a truncated text may be incomplete.
    is_part = pl.col("is_cut") & pl.col("is_end") & ~pl.col("raised").str.contains(": ")
    whole = pl.when(~is_part.fill_null(value=False)).then("raised")
    named = events.with_columns(raised=whole).with_columns(name=name)
    is_group = pl.col("name").str.ends_with("ExceptionGroup")
    is_plain = ~is_group | is_group.all().over("number")
    raised = named.drop_nulls("raised").with_columns(is_plain=is_plain)
    place, nearest = (
        0 if is_first else -1 for is_first in (language.cause_is_first, language.crash_is_first)
    )
    cause = (
        raised.filter("is_plain")
        .group_by("number", maintain_order=True)
        .agg(pl.col("raised", "name", "section").get(place))
        .rename({"raised": "cause", "section": "cause_section"})
    )
    of_cause = pl.col("site").filter(pl.col("section") == pl.col("cause_section"))
    sites = (
        named.group_by("number", "section", maintain_order=True)
        .agg(site=pl.col("frame").drop_nulls().get(nearest, null_on_oob=True))
        .drop_nulls()
        .join(cause.select("number", "cause_section"), on="number", how="left")
        .group_by("number", maintain_order=True)
        .agg(site=pl.coalesce(of_cause.get(0, null_on_oob=True), pl.col("site").get(place)))
    )
    others = (
        raised.join(cause.select("number", cause_name="name"), on="number")
        .filter(pl.col("name") != pl.col("cause_name"))
        .group_by("number", maintain_order=True)
        .agg(others=pl.col("name").unique(maintain_order=True).str.join(", "))
    )
    event = pl.coalesce(pl.concat_str(pl.lit("! "), "name"), "frame")
    # Recursion repeats the same frame.
    distinct = event.drop_nulls().str.head(N_CHARS).rle().struct.field("value")
    return (
        named.group_by("number", maintain_order=True)
        .agg(
            via=distinct.head(N_EVENTS).str.join("; "),
            is_cut=pl.col("is_cut").first() | pl.col("raised").is_null().all(),
        )
        .join(cause, on="number", how="left")
        .join(others, on="number", how="left")
        .join(sites, on="number", how="left")
        .filter(pl.col("cause").is_not_null() | pl.col("site").is_not_null())
        .select(
            "number",
            text=pl.concat_str(
                pl.col("cause").fill_null(NO_CAUSE),
                (pl.lit(THEN) + pl.col("others")).fill_null(""),
                (pl.lit(IN) + pl.col("site")).fill_null(""),
                pl.lit(VIA) + pl.col("via"),
                pl.when("is_cut").then(pl.lit(f"; {CUT}")).otherwise(pl.lit("")),
            ),
        )
    )


def trace_as_shown(trace: pl.Expr) -> pl.Expr:
    r"""What follows the cause in a template: the wrappers and the user's own frame.

    Examples
    --------
    >>> trace = "\n\tthen app.ProviderError\n\tin f (a.py)\n\tvia f (a.py); ! KeyError"
    >>> pl.select(trace_as_shown(pl.lit(trace))).item()
    ', then app.ProviderError in f (a.py)'
    """
    return (
        trace.str.replace(r"\n\tvia .*$", "")
        .str.replace(THEN, ", then ", literal=True)
        .str.replace(IN, " in ", literal=True)
    )

"""Every question that can be asked of a snapshot, each declared once.

The commands (`cli.questions`), tables of SQL (`sql.tables`), tools for agents (`mcp_server`)
and the tables of docs/commands.md are made from `QUESTIONS`. To add a question: write the
function, list it in the stub of its package, and add an entry here. An option that
`cli.options` does not have is made from the function's signature and docstring.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Tool:
    """How agents ask a question.

    Attributes
    ----------
    name : str
        Of the tool.
    columns : sequence of str
        What an answer has; few, since every word of it costs the agent.
    options : tuple of str
        Parameters besides ``limit``, and ``week`` where the question has a window.
    about : str
        What an agent reads of the tool after the first line of the function's docstring.
    limit : int
        Rows of an answer, where the agent asks for no other number.
    """

    name: str
    columns: Sequence[str]
    options: tuple[str, ...] = ()
    about: str = ""
    limit: int = 20


@dataclass(frozen=True)
class Question:
    """One question, the function that answers it, and how the answer is shown.

    Attributes
    ----------
    gives : str
        What is listed, as a phrase that ends a sentence.
    function : str
        The public function that answers, without ``sa.``; empty for a table of SQL.
    asked_by : str
        The ``command`` that asks it, and the ``mode`` that makes the command ask this of its
        questions: ``failures --show codes``, ``thresholds --review``; empty where none does.
        The first question of a command is its default.
    options : tuple of str
        Keys of `cli.options.OPTIONS`, or parameters of the function.
    columns : sequence of str
        What a table on the terminal shows; files hold all. Empty: everything.
    over : str
        What the function takes first: the snapshot, or what is derived from it before.
    part : str
        Attribute of the result that is the frame, where the result is no frame.
    view : str
        How a terminal shows the rows: a key of `cli.questions.VIEWS`.
    quiet : tuple of str
        A column, and those of its words whose rows a terminal only counts.
    default_with : str
        The option that makes this the default question of its command.
    table : str
        Its name in SQL, where it has one.
    tool : Tool, optional
        How agents ask it.
    """

    gives: str
    function: str = ""
    asked_by: str = ""
    options: tuple[str, ...] = ()
    columns: Sequence[str] = ()
    over: Literal["snapshot", "table", "runs", "curve", "limited", "detections", "nothing"] = (
        "snapshot"
    )
    part: str = ""
    view: str = ""
    quiet: tuple[str, ...] = ()
    default_with: str = ""
    table: str = ""
    tool: Tool | None = None

    @property
    def command(self) -> str:
        """The command that asks it; empty where none does."""
        return self.asked_by.partition(" ")[0]

    @property
    def mode(self) -> str:
        """The option that chooses it among the questions of its command."""
        return self.asked_by.partition(" ")[2]

    @property
    def shown_as(self) -> str:
        """The word after ``--show``; empty where another option asks the question."""
        return self.mode.removeprefix("--show ") if self.mode.startswith("--show ") else ""

    def answer(self) -> Callable[..., Any]:
        """The function, which is imported when it is first needed."""
        package = importlib.import_module("stateanalytics")
        function: Callable[..., Any] = operator.attrgetter(self.function)(package)
        return function

    def accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that the function has a parameter for."""
        parameters = inspect.signature(self.answer()).parameters
        return {name: value for name, value in values.items() if name in parameters}


@dataclass(frozen=True)
class Command:
    """A command that asks questions, as its ``--help`` describes it.

    Attributes
    ----------
    summary : str
        The first line of its help.
    details : str
        What follows, one paragraph a line.
    examples : tuple of str
        Command lines, without the name of the program.
    """

    summary: str
    details: str
    examples: tuple[str, ...]


COMMANDS = {
    "attention": Command(
        "List what needs attention: critical items and warnings, still open ones first.",
        "A table groups similar items into one row: the 20 longest silent open items first, then "
        "what has ended, the other open items, and what somebody stopped on purpose. Other "
        "formats list each item, most severe first. Items that an operator has dismissed, and "
        "rows that repeat another row, such as branches, are excluded and counted. Without a "
        "window everything is listed; with one, the items that the report of that window counts.",
        (
            "attention state.db",
            "attention state.db --severity critical -o attention.csv",
            "attention state.db --show states --type session --limit 200",
            "attention state.db --show findings --severity error --format json",
            "attention state.db --show audit -o contradictions.csv",
        ),
    ),
    "failures": Command(
        "Show why runs fail, one row for what one person would fix, the most expensive first.",
        "Without a window, everything is counted, and --show change and --show life compare the "
        "seven days up to as-of with the seven before. `failures own` records the owner of a "
        "failure.",
        (
            "failures state.db --week 2026-W21",
            "failures state.db --week 2026-W21 --rules rules.toml",
            "failures state.db --show change --against last-week/state.db",
            "failures ~/.claude --of calls",
            "failures state.db --show clusters --cluster f1:31a8fa48",
            "failures state.db --cluster 3dd4831b",
            "failures state.db --cluster 3dd4831b -o rows.csv",
            "failures history/ --show life --ledger owners.csv",
            "failures history/ --show registry --registry faults.csv --write",
            "failures own v1:3dd4831bf7f3 --owner ada --ticket OPS-17",
        ),
    ),
    "detectors": Command(
        "List where rules for stale, stuck and slow contradict each other, and why.",
        "The first line explains the worst contradiction. Rules about runs come first: pairs that "
        "one page showed together, then pairs with the most disagreements.",
        (
            "detectors state.db",
            "detectors state.db --detectors all",
            "detectors state.db --at 2026-05-20T12:00 --detectors B2,B4",
            "detectors state.db --rows -o disagreements.csv",
            "detectors --list",
        ),
    ),
    "costs": Command(
        "Show what runs cost: as reported, and estimated from tokens.",
        "Estimates use list prices. Reported and estimated costs are given in total, per "
        "completed run, per merged run, and for runs that failed. Without a window, everything "
        "is counted.",
        (
            "costs state.db --week 2026-W21",
            "costs --by day,model --tz Europe/Berlin",
            "costs --by project --prices my.toml",
            "costs history/ --by system,model,project -o costs.csv",
        ),
    ),
    "durations": Command(
        "Show how long runs take, and which runs were stopped by time limits.",
        "A run that is still open, or that was stopped by its limit, took at least that long "
        "(censored). Durations that cannot be trusted are excluded and counted on standard error. "
        "Limits are read from checkpoints and metadata; a limit that is declared nowhere is "
        "inferred where many runs end after the same time.",
        (
            "durations state.db",
            "durations state.db --by agent --prob 0.5 --prob 0.9",
            "durations state.db --show change --week 2026-W21 --by agent",
            "durations state.db --show compare --by model",
            "durations state.db --by teams.owner --table teams=teams.csv",
            "durations state.db --show curve -o curve.csv",
            "durations state.db --show limits",
            "durations state.db --show candidates --candidate 1800 --candidate 3600",
        ),
    ),
    "thresholds": Command(
        "Recommend a value for every threshold, with the evidence.",
        "Costs are minutes of a person's attention; only their ratios matter. A change is "
        "recommended only if it saves significantly more than noise; to keep today's value only "
        "if no other value could save much.",
        (
            "thresholds state.db",
            "thresholds state.db --false-alarm 20 -o thresholds.csv",
            "thresholds state.db --settings toml -o thresholds.toml",
            "thresholds state.db --covering --loses 0.01",
            "thresholds history/ --review",
            "thresholds state.db --policy v1 --against operator",
        ),
    ),
}
"""The commands that are made from questions; the others are written by hand."""

_FAILURES = ("code", "cluster", "rules", "window")
_OF = ("of", *_FAILURES)
"""Options of questions that can also be asked of calls."""
_DURATIONS = ("by", "own", "window")
_DETECTIONS = ("at", "detectors")

QUESTIONS: tuple[Question, ...] = (
    Question(
        "items that are critical or a warning",
        "attention",
        "attention --show items",
        options=("entity_type", "severity", "standing", "window"),
        columns=("severity", "n", "message", "entity", "display", "since_at", "name"),
        view="similar items",
        table="attention",
        tool=Tool(
            "attention",
            "severity entity_type entity_id name display code message since_at source".split(),
            ("severity",),
            "severity: critical or warning.",
        ),
    ),
    Question(
        "the state of every entity (ADR-0033)",
        "states",
        "attention --show states",
        options=("entity_type", "severity"),
        columns=("severity", "entity", "display", "silence_s", "reason_codes"),
        view="entities",
        table="states",
    ),
    Question(
        "what is wrong in the data, and what was done about it",
        "",
        "attention --show findings",
        options=("entity_type", "severity"),
        columns="severity code n_rows message table column example action".split(),
        over="table",
        view="similar findings",
        table="findings",
    ),
    Question(
        "where the data contradict themselves, with both sides of the evidence",
        "audit",
        "attention --show audit",
        options=("entity_type", "severity"),
        # Both sides and what they are about fit 80 columns.
        columns=("entity", "says", "against", "severity", "code", "what_to_do"),
        over="table",
        view="entities",
        table="audit",
    ),
    Question("the reasons of every state", "reasons", table="reasons"),
    Question(
        "the entities that a reaper would close, with which status and reason",
        "phantoms",
        table="phantoms",
    ),
    Question(
        "what one person would fix, by cost: clusters of one cause, and where it is concentrated",
        "failures.faults",
        "failures --show faults",
        options=(*_OF, "registry"),
        columns="title n_incidents cost_usd fault_id where run_s n_clusters".split(),
    ),
    Question(
        "one row for each reason code and message template, by cost",
        "failures.clusters",
        "failures --show clusters",
        options=(*_OF, "ledger", "registry"),
        columns="state title n_incidents cost_usd id owner run_s code last_at n_rows".split(),
        view="clusters",
        default_with="ledger",
        tool=Tool(
            "failures",
            (
                "cluster_id fault_id title code template n_causes n_rows n_incidents first_at "
                "last_at run_s cost_usd meaning what_to_do"
            ).split(),
            ("of",),
            about="By default everything is counted, without a window. of: runs, or calls of tools "
            "inside of runs.",
        ),
    ),
    Question(
        "which tools fail most, by calls inside of runs",
        "failures.tools",
        "failures --show tools",
        columns=(
            "system tool n_calls n_with_result n_failed share low high n_expected n_denied "
            "n_interrupted failed_s"
        ).split(),
    ),
    Question(
        "signs of struggle inside of runs: loops, refusals, tests that end red",
        "failures.signs",
        "failures --show signs",
        options=("window",),
        columns="sign n_calls tool target lost_s n_tokens message thread_id first_at".split(),
        table="signs",
        tool=Tool(
            "struggles",
            (
                "sign n_calls tool target lost_s n_tokens session_id first_call first_at message"
            ).split(),
            about="Runs that completed can have signs, too: a loop of equal calls, for example.",
        ),
    ),
    Question(
        "how hard each session and turn was: smooth, struggled, stuck or given up, and why",
        "failures.effort",
        "failures --show effort",
        options=("window",),
        columns=("effort", "entity_type", "why", "n_calls", "n_failed", "lost_s", "entity_id"),
        quiet=("effort", "smooth"),
        view="sessions",
        table="effort",
    ),
    Question(
        "every call of a tool, and how it ended",
        "failures.calls",
        "failures --show calls",
        columns="started_at tool target outcome duration_s message thread_id entity_id".split(),
        table="calls",
    ),
    Question(
        "the same for every level of the reason codes: run, run.failed, …",
        "failures.codes",
        "failures --show codes",
        options=_OF,
        columns="code n_rows n_sessions n_incidents cost_usd last_at what_to_do".split(),
    ),
    Question(
        "the failed rows, each with its cluster (the default with --cluster)",
        "failures.members",
        "failures --show members",
        options=(*_OF, "registry"),
        columns=("failed_at", "message", "entity", "code", "cluster_id"),
        view="entities",
        default_with="cluster",
    ),
    Question(
        "the values that templates show as <*>",
        "failures.parameters",
        "failures --show parameters",
        options=_OF,
        columns=("template", "position", "value", "n_rows", "n_distinct"),
    ),
    Question(
        "what is new, back (reappeared), growing, shrinking or gone (no longer seen), and why: "
        "the window against the one of the same length before it, or against the store of "
        "--against",
        "failures.change",
        "failures --show change",
        options=(*_OF, "earlier", "leave_out_mass"),
        columns=(
            "status template id n_incidents_before n_incidents cost_usd_before cost_usd code why"
        ).split(),
        view="clusters",
        quiet=("status", "unclear", "steady"),
    ),
    Question(
        "what explains that more or fewer runs complete than before, in parts that add up",
        "failures.explained_change",
        "failures --show explained",
        options=("rules", "window"),
        columns="title dimension value n_before n change low high".split(),
    ),
    Question(
        "each failure over its whole history: new, renamed, back (reappeared), flapping, growing, "
        "ongoing, quiet or gone (no longer seen), its cost in the window, its owner from --ledger",
        "failures.life",
        "failures --show life",
        options=(*_OF, "ledger", "registry"),
        columns=(
            "state template id n_incidents_before n_incidents cost_usd owner code last_at"
        ).split(),
        view="clusters",
    ),
    Question(
        "which faults are new, merged, split or renamed in a registry, which keeps their ids",
        "failures.register",
        "failures --show registry",
        options=("of", "rules", "registry", "write"),
        columns="change title n_clusters n_rows fault_id other_id".split(),
    ),
    Question(
        "agents, models, providers, playbooks, projects, kinds, hours and versions that are "
        "more frequent in a cluster than in all runs",
        "failures.lift",
        "failures --show lift",
        options=_FAILURES,
        columns="code template dimension value n_in n_cluster lift q_value".split(),
    ),
    Question(
        "failures that belong together: by request, in time, at a provider",
        "failures.incidents",
        "failures --show incidents",
        options=_OF,
        columns="since title duration_s n_sessions n_causes linked_by code".split(),
    ),
    Question(
        "runs started and failed hour by hour, and whether almost all of them failed",
        "failures.mass_failures",
        "failures --show mass",
        options=_FAILURES,
        columns=("since", "until", "n_starts", "n_failed", "share", "is_mass"),
        view="periods",
    ),
    Question(
        "clusters that may share a cause, across tools and systems: a suggestion",
        "failures.related",
        "failures --show related",
        options=_OF,
        columns=("cause_group", "code", "template", "related_code", "related_template", "score"),
    ),
    Question(
        "how many failures each rule of --rules matched, and how many an earlier rule took first",
        "failures.rules",
        "failures --show rules",
        options=_FAILURES,
        columns=("rule", "name", "action", "n_rows", "n_lost", "lost_to"),
    ),
    Question(
        "pairs of rules, how many entities only the first flags, and the cause",
        "detectors.disagreements",
        "detectors",
        options=_DETECTIONS,
        columns=("a", "b", "label_a", "n_a", "n_b", "cause", "n", "words"),
        over="detections",
        part="causes",
        tool=Tool(
            "disagreements",
            ("a", "b", "label_a", "n_a", "n_b", "cause", "n", "words"),
            ("detectors",),
            'Worst first. detectors names rules; ["all"] adds those of past releases, '
            '["system@version"] takes those of one release. Default: about a dozen of each '
            "system's current release.",
        ),
    ),
    Question(
        "each entity that two rules disagree about, instead of the totals",
        "detectors.disagreements",
        "detectors --rows",
        options=_DETECTIONS,
        columns=(*("entity_type", "entity_id", "a", "b", "label_a", "says_b", "cause", "words"),),
        over="detections",
        part="rows",
    ),
    Question(
        "the known detectors, and which of them are evaluated by default; no store is read",
        "detectors.known",
        "detectors --list",
        columns="name known_as is_default since until construct comparison threshold rule".split(),
        over="nothing",
    ),
    Question(
        "reported and estimated costs, the most expensive first",
        "failures.costs",
        "costs",
        options=("cost_by", "prices", "own", "window", "tz"),
        columns=(
            "n_runs n_completed n_first_pass n_merged run_s total_usd retries_usd reported_usd "
            "reported_per_completed_usd reported_lost_usd estimated_usd estimated_n "
            "estimated_per_completed_usd estimated_lost_usd"
        ).split(),
        view="periods",
    ),
    Question(
        "quantiles of the durations, with intervals",
        "survival.quantiles",
        "durations --show quantiles",
        options=(*_DURATIONS, "probs"),
        columns=("in_words", "n_units"),
        over="curve",
    ),
    Question(
        "the share of runs that are still open after each duration",
        "survival.kaplan_meier",
        "durations --show curve",
        options=_DURATIONS,
        over="runs",
    ),
    Question(
        "the share of runs with each outcome after each duration",
        "survival.cumulative_incidence",
        "durations --show outcomes",
        options=_DURATIONS,
        over="runs",
    ),
    Question(
        'what each threshold of "slow" would have flagged',
        "survival.slow_thresholds",
        "durations --show slow",
        options=_DURATIONS,
        columns=("threshold_s", "known_as", "n_runs", "n_flagged", "n_finished_well", "n_open"),
        over="runs",
    ),
    Question(
        "this window compared with the one before, regressions first",
        "survival.duration_change",
        "durations --show change",
        options=_DURATIONS,
        columns=("verdict", "in_words"),
        quiet=("verdict", "no_difference", "not_enough_data"),
    ),
    Question(
        "each value of --by compared with the most frequent one: raw, and for the same mix of work",
        "survival.compare",
        "durations --show compare",
        options=_DURATIONS,
        columns=("method", "verdict", "in_words"),
        over="runs",
    ),
    Question(
        "the share of runs that never end",
        "survival.never_ending",
        "durations --show never-ending",
        options=_DURATIONS,
        columns=("n_units", "in_words"),
        over="runs",
    ),
    Question(
        "each run with its duration, and why it is excluded",
        "survival.spells",
        "durations --show spells",
        options=_DURATIONS,
        columns=("entity_id", "kind", "ending", "duration_s", "cut_off_by", "left_out"),
        over="runs",
        table="spells",
    ),
    Question(
        "why runs are excluded", "", "durations --show left-out", options=_DURATIONS, over="runs"
    ),
    Question(
        "each time limit, where it is recorded, and how many runs it stopped",
        "",
        "durations --show limits",
        options=_DURATIONS,
        columns=(
            "limit_s limit_from n_runs n_timed_out stopped n_at_limit stopped_low stopped_high"
        ).split(),
        over="limited",
    ),
    Question(
        "each run with its time limit",
        "survival.timeouts",
        "durations --show timeouts",
        options=_DURATIONS,
        columns=("entity_id", "kind", "ending", "elapsed_s", "limit_s", "limit_from", "fits"),
        over="limited",
        table="timeouts",
    ),
    Question(
        "the effect of other limits: those of --candidate, or 5 min to 24 h",
        "survival.timeout_candidates",
        "durations --show candidates",
        options=(*_DURATIONS, "candidates_s"),
        columns=("in_words",),
        over="runs",
    ),
    Question(
        "limits that are declared nowhere: many runs end after the same time",
        "survival.implicit_timeouts",
        "durations --show implicit",
        options=_DURATIONS,
        columns=("in_words",),
        over="runs",
    ),
    Question(
        "today's value of every threshold, the recommended one, and the verdict",
        "thresholds.recommend",
        "thresholds",
        options=("costs", "settings"),
        columns=("name", "today_s", "recommended_s", "in_words"),  # begins with the verdict
        part="frame",
        tool=Tool(
            "thresholds",
            "name system kind setting meaning today_s recommended_s verdict n in_words".split(),
            limit=200,
        ),
    ),
    Question(
        "a time limit for each kind that stops few runs that would end well; needs no costs",
        "thresholds.covering",
        "thresholds --covering",
        options=("loses",),
        columns="system kind limit_s n n_censored in_words".split(),
    ),
    Question(
        "what changes of time limits achieved: before, as predicted, since",
        "thresholds.review",
        "thresholds --review",
        columns="name changed_at measure before promised since verdict in_words".split(),
    ),
    Question(
        "the entities whose severity differs between --policy and the policy of --against",
        "compare_policies",
        "thresholds --against",
        options=("other_policy",),
        columns="entity_type entity_id severity_a severity_b display_a display_b".split(),
    ),
)


def questions_of(command: str) -> tuple[Question, ...]:
    """The questions that a command asks, its default first."""
    return tuple(question for question in QUESTIONS if question.command == command)

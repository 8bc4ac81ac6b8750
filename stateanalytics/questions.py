"""Every question that can be asked of a snapshot, each declared once.

The commands (`cli.questions`), tables of SQL (`sql.tables`), tools for agents (`mcp_server`)
and the tables of docs/commands.md are made from `QUESTIONS`, the table
``core/data/questions.csv``. To add a question: write the function, list it in the stub of its
package, and add a row there; for a tool of agents, one in ``tools.csv``. An option that
`cli.options` does not have is made from the function's signature and docstring.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from stateanalytics.core.package_tables import package_table

_TAKEN = ("snapshot", "table", "runs", "curve", "limited", "detections", "nothing")


@dataclass(frozen=True)
class Tool:
    """How agents ask a question.

    Attributes
    ----------
    name : str
        Of the tool.
    columns : tuple of str
        What an answer has; few, since every word of it costs the agent.
    options : tuple of str
        Parameters besides ``limit``, and ``week`` where the question has a window.
    about : str
        What an agent reads of the tool after the first line of the function's docstring.
    limit : int
        Rows of an answer, where the agent asks for no other number.
    asked_by : str
        That of its question.
    """

    name: str
    columns: tuple[str, ...]
    options: tuple[str, ...] = ()
    about: str = ""
    limit: int = 20
    asked_by: str = ""


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
    columns : tuple of str
        What a table on the terminal shows, 80 characters wide; files hold all. Empty: everything.
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
    columns: tuple[str, ...] = ()
    over: Annotated[str, _TAKEN] = "snapshot"
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

_TOOLS = {tool.asked_by: tool for tool in package_table("stateanalytics.core", "tools.csv", Tool)}
QUESTIONS = tuple(
    replace(question, tool=_TOOLS.get(question.asked_by))
    for question in package_table("stateanalytics.core", "questions.csv", Question)
)


def questions_of(command: str) -> tuple[Question, ...]:
    """The questions that a command asks, its default first."""
    return tuple(question for question in QUESTIONS if question.command == command)

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from stateanalytics.core.package_tables import keyed_table, package_table, place_of, wrong_cell
from stateanalytics.errors import did_you_mean

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


class Command(NamedTuple):
    """A command, as its ``--help`` describes it.

    Attributes
    ----------
    name : str
        What people type.
    heading : str
        The part of the page of all commands that lists it.
    module : str
        The module of `cli` that has it; ``questions``: it is made from its questions.
    summary : str
        The first line of its help.
    details : str
        What follows, where the command is made from questions; others have a docstring.
    """

    name: str
    heading: str
    module: str
    summary: str
    details: str = ""


_HERE = "stateanalytics.core"
ALL_COMMANDS = keyed_table(_HERE, "commands.csv", Command, "name")
COMMANDS = {name: known for name, known in ALL_COMMANDS.items() if known.module == "questions"}
"""The commands that are made from questions; the others are written by hand."""


class _Example(NamedTuple):
    """A line to copy, of a command, of ``failures own``, or of the program."""

    command: Annotated[str, ("", "own", *ALL_COMMANDS)]
    line: str


def examples_of(command: str) -> list[str]:
    """Command lines to copy; of no command those of the program."""
    rows = package_table(_HERE, "examples.csv", _Example)
    return [example.line for example in rows if example.command == command]


def _joined(questions: Sequence[Question], tools: Mapping[str, Tool]) -> tuple[Question, ...]:
    """The questions, each with its tool; a question of no command is an error, as is a tool."""
    for number, question in enumerate(questions, 1):
        if question.asked_by and question.command not in COMMANDS:
            needed = "a command of questions" + did_you_mean(question.command, COMMANDS)
            place = place_of(_HERE, "questions.csv")
            raise wrong_cell(place, number, "asked_by", needed, question.asked_by)
    asked = [question.asked_by for question in questions if question.asked_by]
    for number, asked_by in enumerate(tools, 1):
        if asked_by not in asked:
            needed = "what asks a question" + did_you_mean(asked_by, asked)
            raise wrong_cell(place_of(_HERE, "tools.csv"), number, "asked_by", needed, asked_by)
    return tuple(replace(question, tool=tools.get(question.asked_by)) for question in questions)


QUESTIONS = _joined(
    package_table(_HERE, "questions.csv", Question),
    keyed_table(_HERE, "tools.csv", Tool, "asked_by"),
)


def questions_of(command: str) -> tuple[Question, ...]:
    """The questions that a command asks, its default first."""
    return tuple(question for question in QUESTIONS if question.command == command)

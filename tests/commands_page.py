"""The parts of docs/commands.md that `make docs` makes from the table of questions."""

import re
from collections.abc import Iterator

import click

from stateanalytics.cli.options import OPTIONS, READING
from stateanalytics.cli.output import FORMATS, takes
from stateanalytics.cli.questions import command_of
from stateanalytics.questions import COMMANDS, Question, examples_of, questions_of
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "commands.md"
END = "<!-- end -->\n"


def with_questions(page: str) -> str:
    """The page with the part between the marks of each command made from its questions."""
    for name in COMMANDS:
        begin = f"<!-- {name}: made by `make docs` -->\n"
        before, _, rest = page.partition(begin)
        assert rest, f"docs/commands.md has no line {begin!r}"
        _, _, after = rest.partition(END)
        page = before + begin + "".join(f"{line}\n" for line in _described(name)) + END + after
    return page


def _described(name: str) -> Iterator[str]:
    command, questions = COMMANDS[name], questions_of(name)
    yield from ("```sh", *examples_of(name), "```", "")
    yield from (f"{command.summary} {command.details}", "")
    yield from ("| option | lists | in Python | in SQL | tool |", "|---|---|---|---|---|")
    for question in questions:
        yield _row(question)
    yield from ("", "| option | meaning |", "|---|---|")
    for option in command_of(name).params:
        if isinstance(option, click.Option) and option.name not in _shared() | {"show"}:
            yield f"| {', '.join(_flags(option))} | {_cell(option.help or '')} |"
    yield ""


def _row(question: Question) -> str:
    shown = f"`{question.mode}`" if question.mode else "no option"
    python = f"`sa.{question.function}`" if question.function else ""
    sql = f"`{question.table}`" if question.table else ""
    tool = f"`{question.tool.name}`" if question.tool else ""
    return f"| {shown} | {_cell(question.gives)} | {python} | {sql} | {tool} |"


def _flags(option: click.Option) -> list[str]:
    first, *others = (*option.opts, *option.secondary_opts)
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('')))}"
    return [f"`{_cell(first + value)}`", *(f"`{flag}`" for flag in others)]


def _cell(text: str) -> str:
    return re.sub(r"(<\*>)", r"`\1`", text).replace("|", "\\|")


def _shared() -> set[str]:
    """Names of the options that stand in the table of all commands."""

    def command() -> None: ...

    with_all = takes(READING, formats=FORMATS)(command)
    for option in (OPTIONS["limit"], OPTIONS["window"], OPTIONS["own"]):
        with_all = option(with_all)
    return {parameter.name for parameter in with_all.__click_params__} | {None, "budget"}


if __name__ == "__main__":
    PAGE.write_text(with_questions(PAGE.read_text("utf-8")), "utf-8")

"""What the pages say is what there is."""

import importlib
import inspect
import operator
import re
from contextlib import suppress
from pathlib import Path

import pytest

import stateanalytics as sa
from stateanalytics.cli import COMMANDS as LISTED
from stateanalytics.cli import RENAMED, cli, run
from stateanalytics.reporting.sections.appendix import as_markdown
from tests.commands_page import with_questions
from tests.conftest import ROOT
from tests.examples import a_few
from tests.systems_page import with_coverage

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(path.read_text("utf-8") for path in PAGES)
COMMANDS = (ROOT / "docs" / "commands.md").read_text("utf-8")
API = (ROOT / "docs" / "api.md").read_text("utf-8")
SQL = (ROOT / "docs" / "sql.md").read_text("utf-8")


PUBLIC = [
    *sa.__all__,
    *(f"errors.{name}" for name in ("StateAnalyticsError", "MaskedWarning", "TruncatedWarning")),
    *(
        f"{space.__name__.rpartition('.')[2]}.{name}"
        for space in (sa.failures, sa.survival, sa.detectors, sa.thresholds)
        for name in space.__all__
    ),
]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_pages(name):
    assert re.search(rf"\bsa\.{name}\b", TEXT), f"{name} is in no page"


def test_names_in_pages_hints_and_docstrings_exist():
    code = [path.read_text("utf-8") for path in Path(sa.__file__).parent.rglob("*.py")]
    for path in set(re.findall(r"\bsa((?:\.[A-Za-z_]\w*)+)", "\n".join([TEXT, *code]))):
        found = sa
        for name in path.strip(".").split("."):
            assert hasattr(found, name), f"sa{path} is told somewhere, and is nowhere"
            found = getattr(found, name)


@pytest.mark.parametrize("name", cli.list_commands(None))
def test_every_command_and_option_is_in_the_pages(name):
    assert f"stateanalytics {name}" in COMMANDS
    for parameter in cli.get_command(None, name).params:
        if parameter.param_type_name == "option":
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{option}" in COMMANDS, f"{name} {option} is in no page"


def test_commands_in_the_pages_exist():
    """Nor is an old one anywhere that people read or that runs it."""
    for command in re.findall(r"stateanalytics ([a-z]+)\b", "\n".join(_blocks(TEXT, "sh"))):
        assert command in cli.list_commands(None), command
    old = re.compile(rf"(?:stateanalytics|\bsa|\$run) ({'|'.join(RENAMED)})\b(?!\w*\()")
    places = "stateanalytics docs deploy notebooks site benchmarks .github".split()
    kinds = {*".py .md .yml .ipynb .j2 .csv .json .html .sh".split()}
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for place in places
        for path in (ROOT / place).rglob("*")
        if path.suffix in kinds
        for match in old.finditer(path.read_text("utf-8"))
    ]
    found += [match[0] for match in old.finditer(TEXT + (ROOT / "Makefile").read_text("utf-8"))]
    assert found == []


def test_a_release_is_told_in_600_words_at_most():
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.split(r"^## (.+)$", log, flags=re.M)[1:]
    assert releases[0] == "Unreleased"
    assert all(len(text.split()) <= 600 for text in releases[1::2])


@pytest.mark.parametrize("name", cli.list_commands(None))
def test_the_list_of_commands_says_what_each_says_of_itself(name):
    assert LISTED[name].summary == cli.get_command(None, name).get_short_help_str(200)


def test_the_page_of_the_schema_is_current(capsys):
    """`make docs` writes it again."""
    assert run(["sql", "--schema", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "schema.md").read_text("utf-8")


def test_the_page_of_commands_is_made_from_the_questions():
    """`make docs` writes it again."""
    assert with_questions(COMMANDS) == COMMANDS


def test_the_page_of_the_systems_says_what_is_read():
    """`make docs` writes it again."""
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    assert with_coverage(page) == page


def test_the_page_of_the_numbers_is_current():
    """`make docs` writes it again."""
    assert as_markdown() == (ROOT / "docs" / "numbers.md").read_text("utf-8")


def test_the_queries_of_the_page_run(demo):
    snap = demo
    queries = [one for block in _blocks(SQL, "sql") for one in block.split(";") if one.strip()]
    assert len(queries) > 5
    for query in queries:
        assert snap.sql(query).width, query


PRINTED = {"detectors.md": "The dashboard shows", "thresholds.md": "[lionagi"}
RUN_ELSEWHERE = ("fleet.md", "adding_a_system.md")


@pytest.mark.parametrize(
    "page",
    a_few(
        page for page in PAGES if page.name not in RUN_ELSEWHERE and "```python" in page.read_text()
    ),
    ids=lambda page: page.name,
)
def test_the_python_of_the_pages_runs(page, request, demo, tmp_path, monkeypatch, capsys):
    """As it stands, one block after another; whatever store it names, it reads the sample."""
    text = page.read_text("utf-8")
    if "sa.report(" in text:
        weeks = {"2026-W21": request.getfixturevalue("demo_week")}
        monkeypatch.setattr(sa, "report", lambda _, window: weeks[window])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teams.csv").write_text("project,team\nbilling,red\nmobile,blue\n")
    monkeypatch.setattr(sa, "read", lambda *paths, **options: demo)
    monkeypatch.setattr(sa, "demo", lambda: demo)
    scope = {"sa": sa}
    for block in _blocks(text, "python"):
        exec(compile(block, page.name, "exec"), scope)
    assert PRINTED.get(page.name, "") in capsys.readouterr().out


def test_each_question_of_a_stranger_is_answered_in_two_lines():
    page = (ROOT / "docs" / "questions.md").read_text("utf-8")
    answers = re.findall(r"\*\*(.+?\?)\*\*\n\n```python\n(.+?)```", page, flags=re.DOTALL)
    assert len(answers) >= 8
    assert [asked for asked, code in answers if len(code.splitlines()) > 2] == []


def test_parameters_in_the_page_of_functions_exist():
    for path, given in re.findall(r"^\| `sa\.([\w.]+)\((.*?)\)` \|", API, re.M):
        function = operator.attrgetter(path)(sa)
        names = set(inspect.signature(function).parameters)
        assert set(re.findall(r"(\w+)=", given)) <= names, f"sa.{path}({given})"


def test_modules_in_the_pages_exist():
    for path in set(re.findall(r"\bstateanalytics((?:\.[A-Za-z_]\w*)+)", TEXT)):
        found = sa
        for name in path.strip(".").split("."):
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{name}")
            assert hasattr(found, name), f"stateanalytics{path} is in a page, and nowhere else"
            found = getattr(found, name)


def places(path):
    """The names of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_links_lead_to_a_file_or_to_a_heading_of_the_page():
    for path in PAGES:
        text = path.read_text("utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
        for place in re.findall(r"\]\(#([^)]+)\)", text):
            assert place in places(path), f"{path.name} has no heading {place}"


def test_the_error_tree_of_the_page_is_current():
    from stateanalytics import errors

    drawn = [line.strip() for line in errors.__doc__.splitlines() if "──" in line]
    assert len(drawn) == len([name for name in errors.__all__ if name.endswith("Error")]) - 1
    for line in drawn:
        assert line in TEXT, line


def test_methods_of_a_snapshot_are_in_the_pages():
    own = [name for name in vars(sa.Snapshot) if not name.startswith("_")]
    fields = ("stores", "has_bodies")
    for name in own:
        assert name in fields or f"`.{name}" in TEXT, name


def test_every_module_says_what_it_is():
    for path in Path(sa.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        assert not text.strip() or text.lstrip("r").startswith('"""'), path


def _blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)

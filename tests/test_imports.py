"""Imports run with the data, left to right, and cost little."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import stateanalytics

PACKAGE = Path(stateanalytics.__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
)
MODULES += sorted(path.relative_to(PACKAGE) for path in PACKAGE.glob("*/**/__init__.py"))

# What stands in a line may be imported by the lines below it, by nothing else.
ORDER = (
    ("text", "salvage"),
    ("errors", "progress", "distributions", "multiplicity", "chance"),
    ("schema", "windows", "intervals", "demo_data", "vocabulary"),
    ("facts", "dictionary"),
    ("sources",),
    ("rules",),
    ("population",),
    ("failures", "durations", "audit"),
    ("detectors",),
    ("advice",),
    ("sql", "answers"),
    ("snapshot",),
    ("summaries",),
    ("live",),
    ("charts",),
    ("report",),
    ("widgets", "magics"),
    ("cli",),
    ("__main__",),
)
# How the records of a system add up to facts is a rule of that system: its sources may
# import its own rules, which in turn import no source.
SYSTEMS = ("agent_orchestrator", "opencode")
PLACE = {name: place for place, names in enumerate(ORDER) for name in names}

# The only packages that may use a library, wherever in a file.
ONLY_IN = {
    "sqlite3": {"sources", "salvage", "testing"},
    "adbc_driver_sqlite": {"sources", "testing"},
    "altair": {"charts"},
    "vl_convert": {"charts"},
    "jinja2": {"report"},
    "IPython": {"magics"},
    "ipywidgets": {"widgets"},
    "click": {"cli"},
    "lionagi": {"testing"},
    "duckdb": {"sources", "rules", "sql", "testing"},
}
HEAVY = (
    *("altair", "ipywidgets", "duckdb", "pyarrow", "adbc_driver_sqlite", "rich"),
    *("jinja2", "vl_convert", "narwhals", "click", "sqlite3"),
)


def top(path):
    return path.parts[0].removesuffix(".py")


def imported(path):
    """Full names of what a file imports, outside of blocks for type checkers."""
    tree = ast.parse((PACKAGE / path).read_text("utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    for name in imported(path):
        head, _, rest = name.partition(".")
        if head == "stateanalytics" and not is_own_rule(path, rest):
            yield rest.split(".")[0]


def is_own_rule(path, name):
    return path.parts[0] == "sources" and any(
        path.parts[1] == system and f"{name}.".startswith(f"rules.{system}.") for system in SYSTEMS
    )


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_run_from_left_to_right(path):
    own = top(path)
    for other in ours(path):
        if own == "testing":
            assert other in ("errors", "schema", "facts", "chance", "testing"), (
                f"{path} imports {other}"
            )
        elif other != own:
            assert own in PLACE, f"{own} has no place in ORDER"
            assert other in PLACE, f"{path} imports {other}, which has no place in ORDER"
            assert PLACE[other] < PLACE[own], f"{path} imports {other}, which is to its right"


@pytest.mark.parametrize("system", SYSTEMS)
def test_rules_of_one_system_import_no_source(system):
    for path in MODULES:
        if path.parts[:2] == ("rules", system):
            assert "sources" not in ours(path), path


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_libraries_stay_where_they_belong(path):
    for name in imported(path):
        library = name.split(".")[0]
        assert top(path) in ONLY_IN.get(library, {top(path)}), f"{path} imports {library}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_polars_never_runs_sql(path):
    """Its SQL reads files and Python variables."""
    calls = {
        node.attr
        for node in ast.walk(ast.parse((PACKAGE / path).read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("pl", "polars")
    }
    assert not calls & {"sql", "SQLContext", "sql_expr"}


def in_a_fresh_process(code):
    command = [sys.executable, "-c", f"import sys, json; {code}"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def test_the_import_loads_nothing_heavy():
    loaded = in_a_fresh_process("import stateanalytics; print(json.dumps(list(sys.modules)))")
    assert not {name.split(".")[0] for name in loaded} & {*HEAVY, "polars"}
    assert [name for name in loaded if name.startswith("stateanalytics")] == ["stateanalytics"]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "sa.Snapshot",
            ("altair", "ipywidgets", "duckdb", "rich", "jinja2", "vl_convert", "click"),
        ),
        ("sa.Policy.v1()", ("altair", "duckdb", "pyarrow", "rich", "jinja2", "click")),
        ("sa.QueryError", ("polars", "duckdb")),
    ],
)
def test_a_name_loads_what_it_needs_and_no_more(code, absent):
    loaded = in_a_fresh_process(
        f"import stateanalytics as sa; {code}; print(json.dumps(list(sys.modules)))"
    )
    assert not {name.split(".")[0] for name in loaded} & set(absent)


def test_every_public_name_is_there_and_only_those():
    for name in stateanalytics.__all__:
        assert getattr(stateanalytics, name) is not None
        assert name in dir(stateanalytics)
    assert sorted(stateanalytics.__all__) == sorted(stateanalytics._WHERE)
    public = [name for name in dir(stateanalytics) if not name.startswith("_")]
    assert sorted(public) == sorted(stateanalytics.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stateanalytics.nothing  # noqa: B018


@pytest.mark.parametrize(
    "before",
    [
        "sa.Report",
        "import stateanalytics.report.render",
        "from stateanalytics.report import Report",
    ],
)
def test_report_stays_a_function_whatever_was_imported(before):
    code = f"import stateanalytics as sa; {before}; print(json.dumps(callable(sa.report)))"
    assert in_a_fresh_process(code) is True


def test_the_whole_error_tree_is_public():
    from stateanalytics import errors

    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert ours <= set(stateanalytics.__all__)

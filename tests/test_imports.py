"""Imports run with the data, left to right, and cost little."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import stateanalytics
from stateanalytics.failures.failure_rates import count_starts
from stateanalytics.reporting.material import Material
from stateanalytics.snapshot import read_for_once
from tests.lionagi_stores import session, write_store

PACKAGE = Path(stateanalytics.__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
)
MODULES += sorted(path.relative_to(PACKAGE) for path in PACKAGE.glob("*/**/__init__.py"))

# What stands in a line may be imported by the lines below it, by nothing else.
ORDER = (
    ("core.text",),
    ("errors",),
    ("core",),
    ("stats", "questions"),
    ("io", "demo_data"),
    ("systems",),
    ("state",),
    ("failures", "survival", "auditing"),
    ("plugin", "detectors"),
    ("thresholds",),
    ("queries", "weekly", "timeline", "summaries.shapes"),
    ("weekly_limits",),
    ("sql",),
    ("comparing",),
    ("snapshot",),
    ("summaries",),
    ("live", "metrics", "otlp"),
    ("charts",),
    ("reporting",),
    ("widgets", "magics", "mcp_server"),
    ("cli",),
    ("__main__",),
)
PLACE = {name: place for place, names in enumerate(ORDER) for name in names}

# The only packages that may use a library, wherever in a file.
ONLY_IN = {
    "sqlite3": {"io", "systems"},
    "adbc_driver_sqlite": {"io"},
    "altair": {"charts"},
    "quickjs": {"charts"},
    "jinja2": {"reporting"},
    "IPython": {"magics"},
    "ipywidgets": {"widgets"},
    "anywidget": {"widgets"},
    "click": {"cli"},
    "prometheus_client": {"metrics"},
    "mcp": {"mcp_server"},
    "croniter": {"systems"},
    "lionagi": set(),
    "pyarrow": set(),
    "tests": set(),
    "duckdb": {"core", "io", "systems", "state", "sql"},
}
HEAVY = (
    *("altair", "ipywidgets", "duckdb", "pyarrow", "nanoarrow", "adbc_driver_sqlite"),
    *("jinja2", "quickjs", "narwhals", "click", "sqlite3", "croniter", "rich"),
    "prometheus_client",
)


NEEDED_FOR_HELP = (
    *("cli", "cli.options", "core", "core.package_tables", "core.text", "errors", "questions"),
)


def top(path):
    return path.parts[0].removesuffix(".py")


def parsed(path):
    """The tree of a file, which nobody keeps: a million nodes would be looked through for ever."""
    return ast.parse((PACKAGE / path).read_text("utf-8"))


def statements(body):
    """Every statement, however deep, outside of blocks for type checkers; no expression."""
    for node in body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from statements(node.orelse)
                continue
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            yield from statements(inner if isinstance(inner, list) else ())


@cache
def imported(path):
    """Full names of what a file imports, outside of blocks for type checkers."""
    return tuple(_imported(path))


def _imported(path):
    for node in statements(parsed(path).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from imported_when_called(path)


def imported_when_called(path):
    """Full names of the functions that a system's value names by texts."""
    names = re.findall(r'\b_later\("(\w+):(\w+)"\)', (PACKAGE / path).read_text("utf-8"))
    return [f"{name_of(path)}.{module}.{function}" for module, function in names]


def ours(path):
    for name in imported(path):
        head, _, rest = name.partition(".")
        if head == "stateanalytics":
            yield place_name(rest)


def place_name(name):
    """The line's name that a module stands under: its own, else its package's."""
    module = ".".join(name.split(".")[:2])
    return module if module in PLACE else name.split(".")[0]


@pytest.mark.slow
def test_imports_run_from_left_to_right():
    wrong = [
        f"{path} imports {other}"
        for path in MODULES
        for own in [place_name(".".join(path.with_suffix("").parts))]
        for other in ours(path)
        if other != own and not is_to_the_left(other, own)
    ]
    assert not wrong


def test_what_systems_import_when_it_is_called_exists():
    names = [name for path in MODULES for name in imported_when_called(path)]
    assert len(names) > 50
    for module, _, function in (name.rpartition(".") for name in names):
        assert callable(getattr(importlib.import_module(module), function)), (module, function)
    texts = "".join(path.read_text("utf-8") for path in PACKAGE.glob("systems/*/__init__.py"))
    assert len(names) == texts.count("_later(")


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    """Imports for types included; those inside of functions are made to run later."""
    graph = {name_of(path): set(imported_at_top(path)) for path in MODULES}
    assert sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()  # an error names the circle


def name_of(path):
    return ".".join(("stateanalytics", *path.with_suffix("").parts)).removesuffix(".__init__")


def imported_at_top(path):
    names = {name_of(other) for other in MODULES}
    waiting = list(ast.parse((PACKAGE / path).read_text("utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If | ast.Try):
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.ImportFrom):
            for part in node.names:
                whole = f"{node.module}.{part.name}"
                name = whole if whole in names else node.module
                if name in names and name != name_of(path):
                    yield name


def is_to_the_left(other, own):
    assert own in PLACE, f"{own} has no place in ORDER"
    assert other in PLACE, f"{other} has no place in ORDER"
    return PLACE[other] < PLACE[own]


def test_no_module_outside_of_systems_names_a_system():
    """What differs from system to system is an attribute of `systems.base.System`."""
    names = re.compile(r"lionagi|agent.?orchestrator|opencode|\bAO\b", re.IGNORECASE)
    texts = [
        path
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".pyi", ".j2", ".css", ".js", ".csv", ".sql", ".toml")
        and path.relative_to(PACKAGE).parts[0] != "systems"
        and not path.name.endswith(".min.js")  # of others
    ]
    naming = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(texts)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if names.search(line)
    ]
    assert len(texts) > 100
    assert not naming


@pytest.mark.slow
def test_libraries_stay_where_they_belong():
    wrong = [
        f"{path} imports {name}"
        for path in MODULES
        for name in imported(path)
        if top(path) not in ONLY_IN.get(name.split(".")[0], {top(path)})
    ]
    assert not wrong


DISTRIBUTIONS = {
    **{"adbc_driver_manager": "adbc-driver-sqlite", "adbc_driver_sqlite": "adbc-driver-sqlite"},
    **{"backports": "backports.zstd", "compression": "backports.zstd", "quickjs": "quickjs-ng"},
    **{"lazy_loader": "lazy-loader", "prometheus_client": "prometheus-client"},
    **{"IPython": "ipywidgets", "traitlets": "ipywidgets"},
    **{"markupsafe": "jinja2", "mcp_types": "mcp", "numpy": "statsmodels"},
}
# What only an extra brings, and who may want it.
EXTRAS = {
    "notebook": {"widgets", "magics", "charts"},
    "excel": {"io"},
    "delta": {"io"},
    "mcp": {"mcp_server"},
    "models": {"survival", "stats"},
    "spark": {"core", "state"},
}


def test_a_plain_install_has_what_the_report_and_its_charts_import():
    """Every library is a dependency; or of an extra, and named in the parts that need that."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    plain = {names_of(line) for line in project["dependencies"]}
    extras = {
        names_of(line): EXTRAS[extra]
        for extra, lines in project["optional-dependencies"].items()
        if extra in EXTRAS
        for line in lines
    }
    missing = {
        (library, top(path))
        for path in MODULES
        for name in imported(path)
        for library in [name.split(".")[0]]
        if library not in sys.stdlib_module_names and library != "stateanalytics"
        for distribution in [DISTRIBUTIONS.get(library, library)]
        if distribution not in plain and top(path) not in extras.get(distribution, ())
    }
    assert not missing


def names_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].removesuffix("-python")


def test_polars_never_runs_sql():
    """Its SQL reads files and Python variables."""
    calls = {
        (path, node.attr)
        for path in MODULES
        if re.search(r"\b(sql|SQLContext|sql_expr)\b", (PACKAGE / path).read_text("utf-8"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("pl", "polars")
    }
    assert not [path for path, name in calls if name in ("sql", "SQLContext", "sql_expr")]


def in_a_fresh_process(code):
    command = [sys.executable, "-c", f"import sys, json; {code}"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def test_the_import_loads_nothing_heavy():
    loaded = in_a_fresh_process("import stateanalytics; print(json.dumps(list(sys.modules)))")
    assert not {name.split(".")[0] for name in loaded} & {*HEAVY, "polars"}
    assert [name for name in loaded if name.startswith("stateanalytics")] == ["stateanalytics"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("sa.Snapshot", ("altair", "ipywidgets", "duckdb", "rich", "jinja2", "quickjs", "click")),
        ("sa.Policy.v1()", ("altair", "duckdb", "pyarrow", "rich", "jinja2", "click")),
        ("sa.errors.QueryError", ("polars", "duckdb")),
        ("sa.report(sa.demo()).as_html()", ("altair",)),
        ("from stateanalytics.charts import svg", ("polars", "altair")),
    ],
)
def test_a_name_loads_what_it_needs_and_no_more(code, absent):
    names = "print(json.dumps(list(sys.modules)))"
    loaded = in_a_fresh_process(f"import stateanalytics as sa; {code}; {names}")
    assert not {name.split(".")[0] for name in loaded} & set(absent)


def loaded_by(*arguments):
    """The modules that a command has loaded when it ends."""
    return in_a_fresh_process(
        "import contextlib, os; from stateanalytics.cli import run\n"
        f"with contextlib.redirect_stdout(open(os.devnull, 'w')): assert run({arguments}) == 0\n"
        "print(json.dumps(list(sys.modules)))"
    )


def test_help_loads_no_command():
    loaded = loaded_by("--help")
    assert not {name.split(".")[0] for name in loaded} & {*HEAVY, "polars"} - {"click"}
    ours = {name for name in loaded if name.startswith("stateanalytics.")}
    assert ours == {f"stateanalytics.{name}" for name in NEEDED_FOR_HELP}


@pytest.mark.slow
def test_a_list_of_one_system_loads_nothing_of_others_and_no_engine(tmp_path):
    store = write_store(tmp_path / "state.db", sessions=[session("a", status="failed")])
    loaded = loaded_by("attention", str(store))
    assert not {name.split(".")[0] for name in loaded} & {"duckdb", "altair", "jinja2"}
    ours = {name.removeprefix("stateanalytics.") for name in loaded}
    parts = {"sql", "survival", "auditing", "detectors", "reporting", "charts"}
    assert not {name.split(".")[0] for name in ours} & parts
    of_failures = {name.removeprefix("failures.") for name in ours if "failures." in name}
    assert of_failures <= {"masking", "traces"}  # for grouping similar messages
    of_others = {name for name in ours if name.startswith("systems.agent_orchestrator.")}
    assert of_others <= {f"systems.agent_orchestrator.{name}" for name in ("frames", "places")}
    assert "systems.opencode.reading" not in ours


NAMESPACES = ("", "failures", "survival", "detectors", "thresholds", "charts")


def namespace(name):
    return importlib.import_module(f"stateanalytics.{name}".rstrip("."))


@pytest.mark.parametrize("name", NAMESPACES)
def test_every_public_name_is_there_and_only_those(name):
    space = namespace(name)
    for public in space.__all__:
        assert getattr(space, public) is not None
    assert dir(space) == sorted(space.__all__)


def test_the_face_is_small():
    assert len(stateanalytics.__all__) <= 33
    with pytest.raises(AttributeError, match="stateanalytics has no nothing"):
        stateanalytics.nothing  # noqa: B018


def test_names_that_are_gone_say_what_to_type():
    with pytest.raises(AttributeError, match=r"snap\.compare"):
        stateanalytics.failures.rates  # noqa: B018
    with pytest.raises(AttributeError, match=r"chart_compare\(snap\.compare"):
        stateanalytics.charts.chart_rate  # noqa: B018


@pytest.mark.parametrize("name", NAMESPACES)
def test_no_module_has_the_name_of_a_public_function(name):
    """Importing the module would hide the function, whoever imports it."""
    space = namespace(name)
    modules = {module.name for module in pkgutil.iter_modules(space.__path__)}
    functions = {
        public for public in space.__all__ if not isinstance(getattr(space, public), ModuleType)
    }
    assert not modules & functions


def test_errors_are_listed_where_they_stand():
    from stateanalytics import errors

    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert ours == set(errors.__all__)


@pytest.mark.parametrize("function", [count_starts, Material.of, read_for_once])
def test_a_misspelt_argument_is_seen_by_type_checkers(function):
    parameters = inspect.signature(function).parameters.values()
    assert not [one.name for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD]


def test_the_version_is_the_one_that_was_installed():
    assert stateanalytics.__version__ == version("stateanalytics")


def test_no_private_part_of_narwhals_or_altair_is_used():
    """Their minor releases may change what has no public name."""
    names = r"_to_compliant_expr|\._nodes\b|\b_kwds\b|\._get\("
    doors = re.compile(names + r"|\"__class__\"|\.__mro__\[|class \w+\(nw\.")
    found = [path for path in PACKAGE.rglob("*.py") if doors.search(path.read_text("utf-8"))]
    assert not found

"""Small wrong changes to the program, each against the tests nearest to it.

``python -m tests.mutants --seed 7 --number 40`` prints which changes no test noticed.
A survivor is either a change that means the same (judge it by hand) or a test to write.
"""

import argparse
import ast
import difflib
import functools
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

PACKAGE = "stateanalytics"
TOP = "."  # the modules of the package itself, of which no folder is drawn
COPIED = "stateanalytics tests data docs notebooks benchmarks".split()
NEVER = "slow or spark or browser or lab"
# Files that walk the whole tree or start kernels say nothing about one line of a rule.
FAR = {"test_imports", "test_notebooks", "test_jupyterlab", "test_report_axe", "test_slow"}

SWAPPED_COMPARISON = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
SWAPPED_OPERATOR = {ast.BitAnd: "|", ast.BitOr: "&", ast.Add: "-", ast.Sub: "+", ast.Mult: "/"}
SWAPPED_METHOD = {
    "is_null": "is_not_null", "is_not_null": "is_null", "min": "max", "max": "min",
    "any": "all", "all": "any", "any_horizontal": "all_horizontal",
    "all_horizontal": "any_horizontal", "first": "last", "last": "first",
    "min_horizontal": "max_horizontal", "max_horizontal": "min_horizontal",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One edit of one file: what stands between two offsets is written otherwise."""

    path: str
    kind: str
    start: int
    end: int
    text: str
    near: str  # the function or table around it

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


class Sites(ast.NodeVisitor):
    """Every place of a file where a small change can be made."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.near: list[str] = []
        self.found: list[Mutation] = []
        self.visit(ast.parse(source))

    def place(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def add(self, kind: str, start: int, end: int, text: str) -> None:
        self.found.append(
            Mutation(self.path, kind, start, end, text, self.near[0] if self.near else "")
        )

    def between(self, left: ast.AST, right: ast.AST, sign: str) -> tuple[int, int] | None:
        """Where the operator stands between two operands."""
        start, end = self.place(left)[1], self.place(right)[0]
        # Brackets of the operands stand there as well: look for the sign itself.
        match = re.search(re.escape(sign).encode(), self.source[start:end])
        return (start + match.start(), start + match.end()) if match else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.near.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.near.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.near.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.near.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        named = isinstance(node.targets[0], ast.Name) and not self.near
        if named:
            if node.targets[0].id == "__all__":
                return
            self.near.append(node.targets[0].id)
        self.visit(node.value)
        if named:
            self.near.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        leaves = isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
        if leaves and not node.orelse:
            self.add("dropped statement", *self.place(node), "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if not isinstance(node.value, ast.Yield | ast.YieldFrom):
            self.add("dropped statement", *self.place(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add("dropped statement", *self.place(node), "pass")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            sign = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))[2:-2]
            if place := self.between(left, right, sign):
                self.add("comparison", *place, SWAPPED_COMPARISON[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            if place := self.between(left, right, sign):
                self.add("Boolean word", *place, other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(
            isinstance(side, ast.JoinedStr)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in (node.left, node.right)
        )
        if type(node.op) in SWAPPED_OPERATOR and not texts:
            sign = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[2:-2]
            if place := self.between(node.left, node.right, sign):
                kind = "Boolean word" if sign in "&|" else "arithmetic"
                self.add(kind, *place, SWAPPED_OPERATOR[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            start, end = self.place(node)
            inner = self.source[slice(*self.place(node.operand))].decode()
            self.add("Boolean word", start, end, f"({inner})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in SWAPPED_METHOD:
            end = self.place(node.func)[1]
            name = node.func.attr
            self.add("Boolean word", end - len(name), end, SWAPPED_METHOD[name])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add("constant", *self.place(node), str(not node.value))
        elif isinstance(node.value, int | float):
            self.add("constant", *self.place(node), str(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are left alone."""

    def rows(self, parts: list[tuple[ast.AST, ast.AST]]) -> None:
        if len(parts) < 3 or not self.near or not self.near[0].isupper():
            return
        for first, last in parts:
            start, end = self.place(first)[0], self.place(last)[1]
            comma = re.match(rb"\s*,", self.source[end:])
            self.add("table row", start, end + (comma.end() if comma else 0), "")

    def visit_Dict(self, node: ast.Dict) -> None:
        pairs = zip(node.keys, node.values, strict=True)
        self.rows([(key or value, value) for key, value in pairs if key is not None])
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if all(isinstance(part, ast.Tuple | ast.Call) for part in node.elts):
            self.rows([(part, part) for part in node.elts])
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        self.rows([(part, part) for part in node.elts])
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_Set = visit_List  # noqa: N815


def folders_of(tree: Path) -> list[str]:
    """Every folder of the package that holds modules, and the package itself."""
    return [TOP, *sorted(path.parent.name for path in (tree / PACKAGE).glob("*/__init__.py"))]


def sample(tree: Path, folders: list[str], number: int, seed: int) -> list[Mutation]:
    """Draw evenly over folders, then over kinds, so that no long table takes them all."""
    chance = random.Random(seed)
    pools: dict[str, dict[str, list[Mutation]]] = {}
    for folder in folders:
        kinds: dict[str, list[Mutation]] = {}
        place = tree / PACKAGE / folder
        for path in sorted(place.glob("*.py") if folder == TOP else place.rglob("*.py")):
            for site in Sites(str(path.relative_to(tree)), path.read_bytes()).found:
                if parses(site.applied(path.read_bytes())):
                    kinds.setdefault(site.kind, []).append(site)
        for path in [] if folder == TOP else sorted(place.rglob("data/*.csv")):
            kinds.setdefault("table row", []).extend(rows_of(path, tree))
        for kind in sorted(kinds):
            chance.shuffle(kinds[kind])
        pools[folder] = kinds
    drawn: list[Mutation] = []
    while len(drawn) < number and any(pools.values()):
        for folder in folders:
            left = [kind for kind, sites in sorted(pools[folder].items()) if sites]
            if left and len(drawn) < number:
                drawn.append(pools[folder][chance.choice(left)].pop())
    return drawn


def rows_of(path: Path, tree: Path) -> Iterator[Mutation]:
    """Every row of a table of the package, without which the table still stands."""
    end = len(next(lines := iter(path.read_bytes().splitlines(keepends=True))))
    for line in lines:
        start, end = end, end + len(line)
        yield Mutation(str(path.relative_to(tree)), "table row", start, end, "", path.name)


def parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class Nearness:
    """Which test files stand nearest to a module, by imports and by names."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.tests = {
            path.stem: path.read_text("utf-8")
            for path in sorted((tree / "tests").rglob("*.py"))
            if path.stem != "mutants"
        }
        self.paths = {
            path.stem: str(path.relative_to(tree)) for path in (tree / "tests").rglob("*.py")
        }
        modules = {
            ".".join(path.relative_to(tree).with_suffix("").parts).removesuffix(".__init__"): path
            for path in sorted((tree / PACKAGE).rglob("*.py"))
        }
        trees = {name: ast.parse(path.read_bytes()) for name, path in modules.items()}
        self.defined: dict[str, set[str]] = {}
        for name, body in trees.items():
            for statement in body.body:
                if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    self.defined.setdefault(statement.name, set()).add(name)
        self.importers: dict[str, set[str]] = {}
        for name, body in trees.items():
            for other in self.imported(body, set(modules), name):
                self.importers.setdefault(other, set()).add(name)
        for name, text in self.tests.items():
            body = ast.parse(text)
            used = self.imported(body, set(modules))
            for node in ast.walk(body):
                if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("sa."):
                    used |= self.defined.get(node.attr, set())
            for other in used:
                self.importers.setdefault(other, set()).add(f"tests.{name}")

    def imported(self, body: ast.Module, modules: set[str], own: str = "") -> set[str]:
        names = set()
        for node in ast.walk(body):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
                names.add(node.module)
            # The values of systems name what they import when it is called.
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(f"{own}.{node.value.partition(':')[0]}")
        tests = {f"tests.{name}" for name in self.tests}
        return {name for name in names if name in modules or name in tests} - {PACKAGE}

    def reader(self, path: Path) -> Path:
        """The module itself; of a table the one beside its folder that names it, or the frames."""
        if path.suffix == ".py":
            return path
        beside = sorted((self.tree / path.parents[1]).glob("*.py"))
        named = [module for module in beside if path.name in module.read_text("utf-8")]
        usual = [module for module in beside if module.stem in ("frames", "__init__")]
        return (named or usual[::-1])[0].relative_to(self.tree)

    def nearest(self, mutation: Mutation, most: int) -> list[str]:
        path = self.reader(Path(mutation.path))
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        distance = {module: 0}
        queue = deque([module])
        while queue:
            name = queue.popleft()
            for importer in self.importers.get(name, ()):
                if importer not in distance:
                    distance[importer] = distance[name] + 1
                    queue.append(importer)
        words = set(re.split(r"\W|_", module.replace("agent_orchestrator", "ao").lower()))
        ranked = sorted(
            (
                -bool(re.search(rf"\b{mutation.near}\b", self.tests[name]) if mutation.near else 0),
                steps - 2 * len(words & set(name.split("_"))),
                name,
            )
            for name, steps in (
                (name.removeprefix("tests."), steps)
                for name, steps in distance.items()
                if name.startswith("tests.test_")
            )
            if name not in FAR
        )
        return [self.paths[name] for *_, name in ranked[:most]]


def run(copy: Path, python: str, target: str, limit: int) -> tuple[str, str, float]:
    """Run one test file against the copy: its verdict, what failed, and its processor seconds."""
    command = [python, "-m", "pytest", "-x", "-q", "--tb=no", "-m", f"not ({NEVER})", target]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "100"}
    environment.pop("CI", None)
    # Processor time, not the clock's: a busy machine must not look like an endless loop.
    bounded = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (limit, limit + 5))
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=bounded,  # noqa: PLW1509 - nothing of ours runs in threads there
        )
        asleep = threading.Timer(20 * limit, process.kill)
        asleep.start()
        _, status, used = os.wait4(process.pid, 0)
        asleep.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    seconds = used.ru_utime + used.ru_stime
    if code < 0:
        return "out of time", target, seconds
    if code in (0, 5):  # 5: nothing was collected, as in a file of slow tests only
        return "survived", "", seconds
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return "died", failed[1] if failed else target, seconds


def trial(
    mutation: Mutation, copy: Path, near: Nearness, options: argparse.Namespace
) -> tuple[str, str]:
    """The verdict over one mutation, and the test that noticed or the files that were asked."""
    path = copy / mutation.path
    before = path.read_bytes()
    asked: list[str] = []
    spent = 0.0
    try:
        written(path, mutation.applied(before))
        # The examples in the docstring of the file stand nearest of all.
        examples = str(near.reader(Path(mutation.path)))
        for target in [examples, *near.nearest(mutation, options.files)]:
            if spent > options.budget:
                break
            asked.append(target)
            verdict, by, seconds = run(copy, options.python, target, options.timeout)
            spent += seconds
            if verdict == "survived":
                continue
            # What fails without the change as well has noticed nothing.
            written(path, before)
            if run(copy, options.python, by, options.timeout)[0] == "survived":
                return verdict, by
            written(path, mutation.applied(before))
        return "survived", " ".join(asked)
    finally:
        written(path, before)


def written(path: Path, source: bytes) -> None:
    """Write a module and forget its compiled form, which is judged by size and second only."""
    path.write_bytes(source)
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        old.unlink()


def copied(tree: Path, folder: Path) -> Path:
    """A private copy of a tree, the folder of real stores beside it."""
    copy = folder / "checkout"
    for name in COPIED:
        if (tree / name).exists():
            skip = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(tree / name, copy / name, ignore=skip, symlinks=True)
    for path in tree.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, copy)
    shared = tree.parent / "shared"
    if shared.is_dir():
        (folder / "shared").symlink_to(shared.resolve())
    return copy


def shown(mutation: Mutation, tree: Path) -> Iterator[str]:
    before = (tree / mutation.path).read_bytes()
    after = mutation.applied(before)
    lines = difflib.unified_diff(
        before.decode().splitlines(),
        after.decode().splitlines(),
        mutation.path,
        mutation.path,
        lineterm="",
        n=1,
    )
    yield from list(lines)[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=40, help="how many mutations")
    parser.add_argument("--packages", nargs="+", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--files", type=int, default=10, help="test files to ask of each at most")
    parser.add_argument("--budget", type=int, default=150, help="processor seconds of each")
    parser.add_argument("--timeout", type=int, default=240, help="those of one test file")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--list", action="store_true", help="print the mutations, run nothing")
    options = parser.parse_args()

    tree = options.tree.resolve()
    drawn = sample(tree, options.packages or folders_of(tree), options.number, options.seed)
    if options.list:
        for mutation in drawn:
            print(f"\n{mutation.path} ({mutation.kind}, {mutation.near})")
            print(*shown(mutation, tree), sep="\n")
        return
    near = Nearness(tree)
    verdicts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(copied(tree, Path(folder) / str(number)))

        def judge(mutation: Mutation) -> tuple[Mutation, str, str]:
            copy = copies.get()
            try:
                return mutation, *trial(mutation, copy, near, options)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            for mutation, verdict, by in pool.map(judge, drawn):
                part = Path(mutation.path).parts[1]
                verdicts.setdefault(part, Counter())[verdict] += 1
                print(f"\n{verdict}: {mutation.path} ({mutation.kind}, {mutation.near or '-'})")
                if verdict == "survived":
                    print(*shown(mutation, tree), sep="\n")
                print("asked:" if verdict == "survived" else "by:", by, flush=True)
    print()
    for part, counts in sorted(verdicts.items()):
        print(f"{part:12} {counts.total() - counts['survived']} of {counts.total()} noticed")
    total = sum(verdicts.values(), Counter())
    died = total.total() - total["survived"]
    print(f"all {died} of {total.total()} noticed, {total['out of time']} of them by time")


if __name__ == "__main__":
    main()

"""Pages of the site that are made by its build, and links that lead out of ``docs/``."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAMESPACES = ("", "failures", "survival", "detectors", "thresholds", "charts", "errors")
# Pages of the repository's root, and where the site has them.
AT_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CHANGES.md": "changes.md",
}
# What pages tell people to use is handed out by the site.
TAKEN_ALONG = ("deploy/", "notebooks/")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_CATALOGUE = (
    *("name", "known_as", "system", "question", "is_default", "since", "until"),
    *("threshold", "rule"),
)


def as_file(path: str) -> str:
    """Where the site has a file of `TAKEN_ALONG`: as it is, and no page is made of it."""
    return path.removesuffix(".md") + ".txt" if path.endswith(".md") else path


def public_names(namespace: str) -> dict[str, str]:
    """What a user types, and where the docstring of it stands."""
    module = importlib.import_module(f"stateanalytics.{namespace}".rstrip("."))
    prefix = ".".join(filter(None, ("sa", namespace)))
    names = {name: getattr(module, name) for name in module.__all__}
    return {
        f"{prefix}.{name}": f"{thing.__module__}.{thing.__qualname__}"
        if inspect.isclass(thing) or inspect.isfunction(thing)
        else f"{module.__name__}.{name}"
        for name, thing in sorted(names.items())
        if not isinstance(thing, ModuleType)
    }


def reference(namespace: str) -> str:
    """A page of docstrings, one for each public name."""
    title = ".".join(filter(None, ("sa", namespace)))
    module = importlib.import_module(f"stateanalytics.{namespace}".rstrip("."))
    parts = [f"# {title}", (module.__doc__ or "").split("\n")[0]]
    for name, path in public_names(namespace).items():
        parts.append(f"::: {path}\n    options:\n      heading: {name}\n      toc_label: {name}")
        picture = PurePosixPath("gallery", "charts", f"{path.rpartition('.')[2]}.svg")
        if (ROOT / "docs" / picture).is_file():
            parts.append(f"![{name}](../{picture})")
    return "\n\n".join(parts) + "\n"


def catalogue() -> str:
    """Every rule of every detector as a table."""
    import stateanalytics as sa

    rows = sa.detectors.known().select(_CATALOGUE)
    lines = ["# Catalogue of detectors", "", "`sa.detectors.known()` as a page: the rules in the"]
    lines += ["words of each, in which releases they stand, and with which limits.", ""]
    lines += ["| " + " | ".join(rows.columns) + " |", "|---" * rows.width + "|"]
    for row in rows.iter_rows():
        cells = ("" if cell is None else str(cell).replace("|", r"\|") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def made_pages() -> dict[str, str]:
    """Pages that are not in ``docs/``, by their path."""
    pages = {
        there: relinked((ROOT / here).read_text("utf-8"), PurePosixPath())
        for here, there in AT_ROOT.items()
    }
    for namespace in NAMESPACES:
        pages[f"reference/{namespace or 'stateanalytics'}.md"] = reference(namespace)
    pages["reference/catalogue.md"] = catalogue()
    pages["sample_report.md"] = (
        "# Sample report\n\n[The report on a week of the shipped sample](sample/report.html), as "
        "`stateanalytics report` wrote it when this site was built: one file, no script, no "
        "network.\n\n![The first screen of the report](report.png)\n"
    )
    return pages


def relinked(text: str, folder: PurePosixPath) -> str:
    """Links of a page that is in ``folder`` of the repository, as the site's own.

    What the site does not have stays as words: where the sources are is not known yet.
    """

    def link(match: re.Match[str]) -> str:
        mark, words, target, anchor = match.groups()
        path = normpath(str(folder / target))
        there = path.removeprefix("docs/") if path.startswith("docs/") else AT_ROOT.get(path)
        if there is None and (ROOT / path).is_file() and path.startswith(TAKEN_ALONG):
            there = as_file(path)
        if there is None:
            return words
        here = str(folder).removeprefix("docs").lstrip("/") or "."
        return f"{mark}[{words}]({relpath(there, here)}{anchor or ''})"

    return _LINK.sub(link, text)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages and the report that the build makes."""
    from mkdocs.structure.files import File

    import stateanalytics as sa

    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    for folder in TAKEN_ALONG:
        for file in sorted((ROOT / folder).rglob("*.*")):
            path = file.relative_to(ROOT).as_posix()
            if not file.is_file() or re.search(r"(^|/)[._]", path):
                continue
            files.append(File.generated(config, as_file(path), content=file.read_bytes()))
    with sa.demo() as snap:
        report = sa.report(snap, window="2026-W21").as_html()
    files.append(File.generated(config, "sample/report.html", content=report))
    for name in ("site.css", "site.js", "iframe-worker.js"):
        files.append(
            File.generated(config, name, content=(ROOT / "site" / name).read_text("utf-8"))
        )
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links of ``docs/`` that lead out of it; generated pages have theirs already."""
    is_made = page.file.generated_by is not None
    return (
        markdown if is_made else relinked(markdown, PurePosixPath("docs", page.file.src_uri).parent)
    )


def on_page_content(html: str, **_: Any) -> str:
    """A pipe in the code of a cell, which only Markdown needs escaped."""
    return re.sub(r"<td><code>[^<]*", lambda match: match[0].replace(r"\|", "|"), html)

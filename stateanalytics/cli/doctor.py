"""The command ``doctor``: what is installed, what is missing, and what works."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

import click

from stateanalytics.cli.options import examples, named, note
from stateanalytics.core.text import visible
from stateanalytics.core.words import count, size

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<range>[^;]*)(?:;.*extra == ['\"](?P<extra>\w+))?")
_ONLY_BEFORE = re.compile(r"python_version < ['\"](\d+)\.(\d+)['\"]")
_FOR_DEVELOPERS = ("dev", "site", "bench", "fleet", "lab", "buckets")


@click.command(epilog=examples("doctor"))
@named("doctor.demo", "doctor.calibrate")
@click.argument("sources", nargs=-1, metavar="[SOURCES]...")
def doctor(*, demo: bool, calibrate: int | None, sources: tuple[str, ...]) -> int:
    """Show what is installed, where stores are, and what works.

    Lists the usual places of stores, with the version and size of what is there. The exit code
    is 0 if the sample can be read, queried and drawn, even if optional parts are missing, and 1
    otherwise. With SOURCES it lists only what is at these, and the exit code is 1 where no
    command could read one. Nothing is sent anywhere.
    """
    if demo and (sources or calibrate):
        raise click.UsageError(
            "--demo names a sample; found SOURCES or --calibrate, too. "
            "Hint: stateanalytics doctor --demo"
        )
    if demo:
        click.echo(_sample())
        # Inside of `$(…)` the path is already being used as the note advises.
        if sys.stdout.isatty():
            note('try: stateanalytics attention "$(stateanalytics doctor --demo)"')
        return 0
    if calibrate:
        from stateanalytics.cli.calibration import page

        for line in page(sources, calibrate):
            click.echo(line)
        return 0
    if sources:
        found = [line for source in sources for line in _at(source)]
        for line, _ in found:
            click.echo(line)
        return 0 if all(is_known for _, is_known in found) else 1
    click.echo(
        f"stateanalytics {_version_of('stateanalytics')} on Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {visible(sys.executable)}"
    )
    is_whole = True
    for line, is_well in (*_libraries(), *_surroundings(), *_jobs()):
        is_whole &= is_well
        click.echo(line)
    click.echo(
        "Everything that reports and commands need is installed."
        if is_whole
        else "Something is missing. Hint: pip install --force-reinstall stateanalytics"
    )
    return 0 if is_whole else 1


def _sample() -> str:
    from stateanalytics.demo_data import demo_path

    return str(demo_path() / "history")


def _libraries() -> Iterator[tuple[str, bool]]:
    """A line for what is always needed, and one for each extra."""
    try:
        texts = requires("stateanalytics") or ()
    except PackageNotFoundError:
        yield "missing   the package's own record: it was copied, not installed", False
        return
    groups: dict[str, list[re.Match[str]]] = {"": []}
    for match in filter(None, map(_REQUIREMENT.match, filter(_is_for_this_python, texts))):
        groups.setdefault(match["extra"] or "", []).append(match)
    for extra, matches in groups.items():
        if extra in _FOR_DEVELOPERS:
            continue
        versions = [(match, _version_of(match["name"])) for match in matches]
        if installed := ", ".join(f"{match['name']} {n}" for match, n in versions if n):
            yield f"{f'extra {extra}' if extra else 'libraries'}: {installed}", True
        if missing := [match["name"] + match["range"].strip() for match, n in versions if not n]:
            what = f"stateanalytics[{extra}]" if extra else "stateanalytics"
            yield (
                f"{f'extra {extra}' if extra else 'libraries'}: not installed are "
                f"{', '.join(missing)}; pip install '{what}'",
                bool(extra),
            )


def _is_for_this_python(requirement: str) -> bool:
    before = _ONLY_BEFORE.search(requirement)
    return before is None or sys.version_info[:2] < (int(before[1]), int(before[2]))


def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _at(source: str) -> Iterator[tuple[str, bool]]:
    """A line for each input that commands would read there, and whether one reads it."""
    from stateanalytics.errors import StateAnalyticsError
    from stateanalytics.systems.places import UNKNOWN, description_of, find_places

    try:
        places, _ = find_places([source])
    except StateAnalyticsError as error:
        yield visible(f"place: {source}: {error.problem}"), False
        return
    roots = {at.archived.root if at.archived else at.path: at for at in places}
    for path, at in roots.items():
        content = description_of(path) or UNKNOWN
        shown = source if at.archived else at.label
        yield visible(f"place: {shown}: {content}"), not content.startswith(UNKNOWN)


def _surroundings() -> Iterator[tuple[str, bool]]:
    """The usual places of stores, and the free space for private copies of them."""
    from stateanalytics.io.cache import MOST_BYTES, VARIABLE, Cache
    from stateanalytics.systems.places import closed_part, description_of, usual_places

    for path in usual_places():
        closed = closed_part(path)
        is_known = closed is None or path.is_dir()
        content = (description_of(path) if is_known else None) or (
            "" if closed else "nothing there"
        )
        problem = f"no right to read {closed}" if closed else ""
        yield visible(f"place: {path}: {'; '.join(filter(None, (content, problem)))}"), True
    folder = tempfile.gettempdir()
    free_gb = shutil.disk_usage(folder).free / 1e9
    yield f"the sample: {visible(_sample())}", True
    chosen = os.environ.get("TMPDIR") or folder
    # Python silently takes another folder if TMPDIR cannot be used, but reading is an error.
    if os.path.realpath(chosen) == os.path.realpath(folder):
        yield f"private copies: {visible(folder)}, {free_gb:.1f} GB free", True
    else:
        yield f"private copies: nowhere, TMPDIR={visible(chosen)} cannot be used", False
    cache = Cache.of_user()
    if cache is None:
        yield f"cache: off, by {VARIABLE}", True
    else:
        n_files, n_bytes = cache.usage()
        used = f"{count(n_files, 'input')}, {size(n_bytes)} of {size(MOST_BYTES)}"
        yield f"cache: {visible(str(cache.root))}, {used}; it may be deleted", True


def _jobs() -> Iterator[tuple[str, bool]]:
    """The main job on the sample: read it, query it, draw a chart."""
    for words, job in {
        "the sample is read": _read,
        "a query is answered": _ask,
        "a chart is drawn": _draw,
    }.items():
        # Any error is caught, because showing it is the purpose of this command.
        try:
            job()
        except Exception as error:
            yield f"fails: {words}: {visible(f'{type(error).__name__}: {error}')}", False
        else:
            yield f"works: {words}", True


def _read() -> None:
    from stateanalytics.snapshot import demo

    demo().close()


def _ask() -> None:
    from stateanalytics.snapshot import demo

    with demo() as snap:
        snap.sql("SELECT count(*) FROM entities")


def _draw() -> None:
    import polars as pl

    from stateanalytics.charts import chart_severity, to_svg

    counts = pl.DataFrame(
        {"entity_type": ["session"], "critical": [1], "warning": [1], "info": [1]}
    )
    to_svg(chart_severity(counts), name="doctor", label="a chart")

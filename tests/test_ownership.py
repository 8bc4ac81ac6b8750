"""Who reads a directory: whoever can read the most of it, by evidence and not by its name."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import main
from stateanalytics.core.facts import losses_of
from stateanalytics.errors import SourceError
from stateanalytics.systems.places import claims_on, find_places
from tests.conftest import SHIPPED

LIVE = {
    **{"pid": 8640, "sessionId": "8d3f", "cwd": "/repo", "version": "2.1.330"},
    **{"kind": "interactive", "status": "idle", "procStart": "123", "statusUpdatedAt": 1},
}
TRANSCRIPT = json.dumps(
    {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}}
    | {"timestamp": "2026-05-01T10:00:00.000Z"}
)
ROLLOUT = json.dumps(
    {"timestamp": "2026-05-01T10:00:00.000Z", "type": "session_meta", "payload": {"id": "t"}}
)
RECORD = json.dumps({"worktree": "/w", "branch": "b", "status": "working"})
UNREAD = '{"a": "' + "b" * 5000 + '"}'
EVENT = json.dumps({"type": "session.created", "properties": {"sessionID": "ses_1"}})
STRAYS = {
    "a live process of Claude Code": ("sessions/8640.json", json.dumps(LIVE)),
    "a record of Agent Orchestrator": ("sessions/app-1.json", RECORD),
    "the same in a project": ("projects/app/sessions/app-1.json", RECORD),
    "a record of the first generation": ("sessions/app-2", "worktree=/w\nstatus=working\n"),
    "a log of Agent Orchestrator": ("activity.jsonl", "{}"),
    "a transcript": ("s.jsonl", TRANSCRIPT),
    "a transcript of a project": ("projects/p/s.jsonl", TRANSCRIPT),
    "a rollout": ("sessions/2026/05/01/rollout-2026-05-01T10-00-00-t.jsonl", ROLLOUT),
    "events of opencode": ("events.jsonl", EVENT),
}


def real_files() -> dict[str, tuple[str, bytes]]:
    """Of each system's sample a few files of every kind, by where they lie in it."""
    found: dict[str, tuple[str, bytes]] = {}
    n_seen: Counter[tuple[str, ...]] = Counter()
    for system, sample in SHIPPED.items():
        root = sample.parent if sample.is_file() else sample
        files = [sample] if sample.is_file() else sorted(sample.rglob("*"))
        for path in files:
            name = path.relative_to(root).as_posix()
            kind = (system, name.partition("/")[0], path.suffix)
            n_seen[kind] += 1
            if path.is_file() and n_seen[kind] <= 3:
                found[f"{system}: {name}"] = name, path.read_bytes()
    return found


REAL = real_files()
CHANGED = {
    "whole": lambda content: content,
    "half": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "noise": lambda content: bytes(len(content) % 500 + 1),
}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A copy of each system's sample, in a directory whose name says nothing."""
    root = tmp_path_factory.mktemp("homes")
    for name, sample in SHIPPED.items():
        if sample.is_file():
            (root / name).mkdir()
            shutil.copy(sample, root / name)
        else:
            shutil.copytree(sample, root / name)
    return {name: root / name for name in SHIPPED}


def transcripts(home: Path, n: int = 1) -> Path:
    """A home of Claude Code with so many transcripts."""
    (home / "projects" / "p").mkdir(parents=True)
    for number in range(n):
        (home / "projects" / "p" / f"s{number}.jsonl").write_text(TRANSCRIPT + "\n")
    return home


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def owners(place: Path) -> list[str]:
    with sa.read(place) as snap:
        return snap.sources["system"].unique().to_list()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    owner=st.sampled_from(sorted(SHIPPED)),
    stray=st.sampled_from([*sorted(STRAYS), *sorted(REAL)]),
    changed=st.sampled_from(sorted(CHANGED)),
    below=st.sampled_from(["", "deep/er", "projects/p", "sessions"]),
    is_bare=st.booleans(),
)
def test_one_stray_file_of_another_system_never_changes_the_owner(
    homes, owner, stray, changed, below, is_bare
):
    home = homes[owner]
    name, content = REAL[stray] if stray in REAL else (STRAYS[stray][0], STRAYS[stray][1].encode())
    path = home / below / (Path(name).name if is_bare else name)
    if path.exists() or stray.startswith(f"{owner}:") or any(map(Path.is_file, path.parents)):
        return
    before = claims_on(home)[0].system
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CHANGED[changed](content))
    try:
        claims = claims_on(home)
        # One file each proves nothing: that is an error, and no change of the owner.
        is_tie = len(claims) > 1 and claims[0].evidence == claims[1].evidence == 1
        assert is_tie or claims[0].system is before
    finally:
        path.unlink()
        for folder in made:
            folder.rmdir()


@pytest.mark.parametrize("n_live", [1, 30])
def test_live_processes_of_claude_code_hide_no_transcript(tmp_path, n_live):
    home = transcripts(tmp_path / "claude")
    for pid in range(1, n_live + 1):
        write(home / "sessions" / f"{pid}.json", json.dumps(LIVE | {"pid": pid}))
    assert owners(home) == ["claude_code"]


def test_a_database_of_another_system_does_not_hide_a_home_of_transcripts(homes, tmp_path):
    home = shutil.copytree(homes["claude_code"], tmp_path / "home")
    shutil.copy(SHIPPED["lionagi"], home / "state.db")
    assert owners(home) == ["claude_code"]


def test_systems_that_are_not_read_are_named_with_what_to_type(homes, tmp_path):
    home = shutil.copytree(homes["claude_code"], tmp_path / "home")
    write(home / "sessions" / "app-1.json", RECORD)
    for system in ("lionagi", "codex"):
        shutil.copytree(homes[system], home / "more" / system)
    with sa.read(home) as snap:
        [lost] = losses_of(snap.findings)["message"]
    assert lost.startswith(
        "files of Agent Orchestrator and Codex and a store lie in this directory"
    )
    with sa.read(home, *lost.partition("such as ")[2].split()) as snap:
        assert set(snap.sources["system"]) == {*homes} - {"opencode"}
        assert "source.other_system" not in snap.findings["code"]


def test_next_to_usual_places_nothing_is_lost_without_a_word(homes, tmp_path, monkeypatch):
    shutil.copytree(homes["claude_code"], tmp_path / ".claude")
    shutil.copytree(homes["codex"] / "sessions", tmp_path / "sessions")
    shutil.copy(SHIPPED["lionagi"], tmp_path / "state.db")
    monkeypatch.chdir(tmp_path)
    with sa.read(".") as snap:
        assert set(snap.sources["system"]) == {"claude_code", "lionagi"}
        assert [one[-8:] for one in losses_of(snap.findings)["message"]] == ["sessions"]


def test_a_tie_says_how_to_choose(tmp_path):
    write(transcripts(tmp_path) / "sessions" / "app-1.json", RECORD)
    with pytest.raises(SourceError, match=r"as many files of .*\n?Hint: name a part") as caught:
        sa.read(tmp_path)
    assert "app-1.json" in str(caught.value)
    assert "s0.jsonl" in str(caught.value)


@pytest.mark.slow
def test_most_of_a_directory_unread_is_the_first_line_of_commands_and_reports(tmp_path, capsys):
    home = transcripts(tmp_path / "home")
    write(home / "others" / "x.json", UNREAD)
    with sa.read(home) as snap:
        found = snap.findings.filter(code="source.mostly_unread")
        assert found["severity"].to_list() == ["warning"]
        page = sa.report(snap).as_html()
    assert "Data are missing" in page
    with pytest.raises(SystemExit):
        main(["attention", str(home)])
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("warning: ")
    assert "most of what lies here is not read: 5,009 bytes of records" in first


def test_caches_and_settings_are_not_missing(homes, tmp_path):
    home = shutil.copytree(homes["claude_code"], tmp_path / "home")
    write(home / "file-history" / "x.json", "x" * 10_000_000)
    with sa.read(home) as snap:
        assert not snap.findings["code"].eq("source.mostly_unread").any()


@pytest.mark.slow
def test_no_sample_is_mostly_unread(homes):
    for home in homes.values():
        with sa.read(home) as snap:
            assert not snap.findings["code"].eq("source.mostly_unread").any()


@pytest.mark.parametrize("n_transcripts", [1, 2])
def test_a_single_foreign_database_never_hides_transcripts(tmp_path, n_transcripts):
    shutil.copy(SHIPPED["lionagi"], transcripts(tmp_path, n_transcripts) / "state.db")
    if n_transcripts == 1:
        with pytest.raises(SourceError, match="name a part of it"):
            sa.read(tmp_path)
    else:
        assert owners(tmp_path) == ["claude_code"]


def test_at_the_usual_place_of_a_system_it_wins_a_tie(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for home in (tmp_path / ".lionagi", tmp_path / ".claude"):
        shutil.copy(SHIPPED["lionagi"], transcripts(home) / "state.db")
    assert owners(tmp_path / ".lionagi") == ["lionagi"]
    assert owners(tmp_path / ".claude") == ["claude_code"]


def test_archiving_a_place_that_is_mostly_unread_warns_first(tmp_path, capsys):
    home = transcripts(tmp_path / "home")
    write(home / "x.json", UNREAD)
    with pytest.raises(SystemExit):
        main(["archive", str(home), "--to", str(tmp_path / "history")])
    assert capsys.readouterr().err.startswith(f"warning: {home}: most of what lies here")
    with sa.read(tmp_path / "history") as snap:
        assert "source.mostly_unread" in snap.findings["code"]


USUAL = {
    "lionagi": ".lionagi",
    "agent_orchestrator": ".agent-orchestrator",
    "opencode": ".local/share/opencode",
    "claude_code": ".claude",
    "codex": ".codex",
}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(systems=st.sets(st.sampled_from(sorted(USUAL)), min_size=2), is_bare=st.booleans())
def test_a_home_of_several_systems_is_read_whole(homes, tmp_path_factory, systems, is_bare):
    home = tmp_path_factory.mktemp("home")
    for system in systems:
        usual = "" if is_bare and system == "lionagi" else USUAL[system]
        shutil.copytree(homes[system], home / usual, dirs_exist_ok=True)
    write(home / "notes" / "x.jsonl", TRANSCRIPT)
    places, again = find_places([home, home / "."])
    found = {place.system.name if place.system else "lionagi" for place in places}
    assert found == systems
    assert len(again) == len(places)


@pytest.mark.slow
def test_a_live_home_of_every_system(homes, tmp_path):
    for system, folder in USUAL.items():
        shutil.copytree(homes[system], tmp_path / folder)
    for pid in range(60):
        write(tmp_path / ".claude" / "sessions" / f"{pid}.json", json.dumps(LIVE | {"pid": pid}))
    with sa.read(tmp_path) as snap:
        assert set(snap.sources["system"]) == set(USUAL)
        codes = snap.findings["code"]
        assert not codes.is_in(["source.other_system", "source.mostly_unread"]).any()


def test_one_transcript_among_many_other_files_is_read(tmp_path):
    write(tmp_path / "s.jsonl", TRANSCRIPT)
    for number in range(30):
        write(tmp_path / f"{number}.json", json.dumps({"number": number}))
    assert owners(tmp_path) == ["claude_code"]

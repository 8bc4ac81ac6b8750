"""A fleet, counted store by store: merged equals read at once."""

import functools
import itertools
import json
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from hashlib import sha256

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.core import schema
from stateanalytics.core.windows import read_moment
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    MissingColumnsError,
    NotAStoreError,
    SourceError,
    SourceNotFoundError,
)
from stateanalytics.summaries import Summary, merge, summarize
from stateanalytics.summaries.counts import N_SAMPLED, work_samples
from stateanalytics.summaries.shapes import FRAMES
from stateanalytics.systems import reading
from tests.examples import a_few, examples
from tests.frames import ago, facts
from tests.lionagi_stores import NOW_S, session, write_store
from tests.samples import SAMPLES

AS_OF = "2026-11-22"


@pytest.fixture(scope="module")
def paths(shared_samples):
    return [
        SAMPLES / "state.db",
        shared_samples / "lionagi/0.36.0",
        shared_samples / "opencode/v2_20260717",
        shared_samples / "agent-orchestrator/v2_json",
    ]


@pytest.fixture(scope="module")
def shared_samples(request):
    return request.getfixturevalue("shared") / "samples"


@pytest.fixture(scope="module")
def parts(paths):
    return [summarize(path, as_of=AS_OF, k=1) for path in paths]


@pytest.fixture(scope="module")
def pooled(paths):
    return sa.read(*paths, as_of=AS_OF, progress=False)


def assert_same(one: Summary, other: Summary) -> None:
    for name in FRAMES:
        assert getattr(one, name).equals(getattr(other, name)), name
    assert (one.as_of, one.policy) == (other.as_of, other.policy)


@pytest.mark.slow
def test_merged_equals_read_at_once(parts, pooled):
    assert_same(merge(parts), summarize(pooled, k=1))


@pytest.mark.slow
def test_the_order_and_grouping_of_parts_do_not_matter(parts):
    everything = merge(parts)
    for some in itertools.islice(itertools.permutations(parts), 0, 24, 7):
        assert_same(merge(some), everything)
    assert_same(merge([merge(parts[2:]), merge(parts[:2])]), everything)


@pytest.mark.slow
def test_processes_count_and_send_their_counts_back(paths, parts):
    count = functools.partial(sa.summarize, as_of=AS_OF, policy=sa.Policy.v1(), k=1)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        [found] = executor.map(count, paths[2:3])
    assert_same(found, parts[2])


@pytest.mark.slow
def test_states_are_counted(parts, pooled):
    counted = merge(parts).states
    assert counted["n"].sum() == pooled.entities.height
    failed = sa.states(pooled).filter(severity="critical").height
    assert counted.filter(severity="critical")["n"].sum() == failed


@pytest.mark.slow
def test_curves_of_a_fleet_are_those_of_its_runs(parts, pooled):
    of_sums = merge(parts).runs()
    runs = sa.survival.spells(pooled).with_columns(pl.col("duration_s").ceil())
    # Sums do not know which runs hang together: each is a unit of its own.
    expected = sa.survival.kaplan_meier(runs.select(of_sums.columns), by=["system", "kind"])
    assert sa.survival.kaplan_meier(of_sums, by=["system", "kind"]).equals(expected)


@pytest.mark.slow
def test_quality_of_service_of_a_fleet_is_that_of_its_silences(parts, pooled):
    expected = sa.detectors.quality_of_service(pooled, by=["system", "kind"])
    assert sa.detectors.quality_of_service(merge(parts).silences).equals(expected)


@pytest.mark.slow
def test_agreement_of_a_fleet_is_that_of_its_detections(parts, pooled):
    whole = sa.detectors.agreement(sa.detectors.detect(pooled), n_resamples=0)
    expected = whole.pairs.filter(pl.col("n") > 0)
    found = merge(parts).agreement()
    cells = ["n", "n_both", "n_only_a", "n_only_b", "n_neither", "kappa", "mcc", "ac1", "pabak"]

    def by_pair(pairs):
        return {
            frozenset((row["a"], row["b"])): {
                row["a"]: row["n_only_a"], row["b"]: row["n_only_b"],
                **{name: row[name] for name in cells if "only" not in name},
            }
            for row in pairs.iter_rows(named=True)
        }  # fmt: skip

    assert by_pair(found) == by_pair(expected)


@pytest.mark.slow
def test_failures_of_a_fleet_have_the_templates_of_all_stores(parts, pooled):
    members = sa.failures.members(pooled)
    expected = members.group_by("code", "template").agg(n_rows=pl.len().cast(pl.Int64))
    found = merge(parts).failures()
    keys = ["code", "template"]
    assert found.select(*keys, "n_rows").sort(keys).equals(expected.sort(keys))
    assert found["n_rows"].is_sorted(descending=True)


def test_a_store_without_anything_adds_nothing(parts):
    empty = {shape.name: shape.empty() for shape in schema.FACTS}
    nothing = summarize(sa.Snapshot(**empty, as_of=read_moment(AS_OF)), k=1)
    assert nothing.runs().is_empty()
    assert nothing.agreement().is_empty()
    assert nothing.failures().is_empty()
    merged = merge([parts[0], nothing])
    for name in FRAMES[1:]:
        assert getattr(merged, name).equals(getattr(merge(parts[:1]), name)), name


def test_it_says_what_it_holds_and_what_to_do_next(parts):
    assert repr(merge(parts)).startswith("Summary as of 2026-11-22 00:00 UTC, policy v1: ")
    assert "4 inputs" in repr(merge(parts))
    assert "1 input\n" in repr(parts[0])
    hostile = replace(parts[0], policy="<b>\n\x1b[31m")
    assert "&lt;b&gt;" in hostile._repr_html_()
    assert "\x1b" not in repr(hostile)


def test_summaries_that_do_not_fit_together_are_refused(parts):
    with pytest.raises(ArgumentError, match="at least one summary; found none"):
        merge([])
    earlier = replace(parts[1], as_of=read_moment("2026-11-21T12:00"))
    with pytest.raises(ArgumentError, match="summaries of one as_of; found 2026-11-21"):
        merge([parts[0], earlier])
    with pytest.raises(ArgumentError, match="summaries of one policy; found adr0025, v1"):
        merge([parts[0], replace(parts[1], policy="adr0025")])
    with pytest.raises(ArgumentError, match="by the same columns"):
        merge([parts[0], replace(parts[1], by=("system",))])
    with pytest.raises(ArgumentError, match="summaries of one k; found 1, 3"):
        merge([parts[0], replace(parts[1], k=3)])
    with pytest.raises(ArgumentError, match=r"same data is in more than one summary: .*state\.db"):
        merge([parts[0], parts[0]])


def test_arguments_that_make_no_sense_are_refused():
    pooled = snapshot_of([failed(1, "it broke")])
    with pytest.raises(ArgumentError, match="A snapshot has its own as-of"):
        summarize(pooled, as_of=AS_OF)
    with pytest.raises(MissingColumnsError, match="summarize needs columns"):
        summarize(pooled, by=["colour"])
    with pytest.raises(ArgumentError, match="cannot group by raw_status: only names"):
        summarize(pooled, by=["kind", "raw_status"])
    with pytest.raises(ArgumentError, match="k needs a whole number from 1; found 0"):
        summarize(pooled, k=0)


SEVERAL = ("failed", "completed", "running")


def failed(n, message, **columns):
    """A run that failed, of its own session."""
    return {
        "entity_id": f"r{n}", "session_id": f"r{n}", "raw_status": "failed", "kind": "agent",
        "reason_code": "run.failed.exception", "reason_message": message,
        "started_at": ago(hours=9 + n), "ended_at": ago(hours=8 + n), **columns,
    }  # fmt: skip


def snapshot_of(rows):
    read = facts(rows)
    return sa.Snapshot(**{name: getattr(read, name) for name in vars(read)})


@pytest.mark.slow
def test_a_text_is_kept_where_k_sessions_have_it_and_never_otherwise(tmp_path):
    rows = [
        *(failed(n, f"worker {n} lost the lake of swans") for n in range(3)),
        *(failed(n + 10, "only I know of the purple otter") for n in range(2)),
        *(failed(20, "the same session says heron", entity_id=f"e{n}") for n in range(9)),
    ]
    summary = summarize(snapshot_of(rows))
    shown = set(summary.templates["pattern"].drop_nulls())
    assert [text for text in shown if "swans" in text] == list(shown)
    assert summary.templates["n_rows"].sum() == len(rows)
    octets = b"".join(path.read_bytes() for path in summary.write(tmp_path / "s").iterdir())
    written = pl.read_parquet(next((tmp_path / "s").glob("templates*")))["pattern"]
    assert b"swans" in octets or written.str.contains("swans").any()
    for frame in FRAMES:
        text = getattr(summary, frame).write_json()
        assert "otter" not in text, frame
        assert "heron" not in text, frame
    assert summarize(snapshot_of(rows), k=2).templates["pattern"].str.contains("otter").any()


@pytest.mark.slow
def test_a_secret_in_k_sessions_is_masked():
    rows = [failed(n, "DB_PASS=hunter2 was refused by the server") for n in range(9)]
    summary = summarize(snapshot_of(rows))
    assert summary.templates["pattern"].to_list() == ["DB_PASS=<*> was refused by the server"]
    assert all("hunter2" not in getattr(summary, frame).write_json() for frame in FRAMES)


WORDS = ("lost the lake", "worker 7 died", "quota of ann is gone", None, "")
RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "source": st.sampled_from("ab"),
            "raw_status": st.sampled_from(["failed", "completed", "running", "timed_out", "?"]),
            "reason_message": st.sampled_from(WORDS),
            "reason_code": st.sampled_from(["run.failed.exception", None, "own.code"]),
            "invocation_id": st.sampled_from(["i", "j", None]),
            "project": st.sampled_from(["shop", None]),
            "entity_type": st.sampled_from(["session", "play"]),
            "started_at": st.sampled_from([ago(days=1), ago(days=9), None]),
        }
    ),
    max_size=14,
)


@pytest.mark.slow
@given(RUNS, st.integers(1, 4))
@examples(40)
def test_merged_equals_pooled_on_every_count(rows, k):
    entities = [
        {**row, "entity_id": f"e{n}", "session_id": f"e{n}", "kind": "agent",
         "ended_at": None if row["started_at"] is None or row["raw_status"] == "running"
         else ago(hours=n + 1)}
        for n, row in enumerate(rows)
    ]  # fmt: skip
    whole = summarize(snapshot_of(entities), k=k)
    by_source = [[row for row in entities if row["source"] == name] for name in "ab"]
    merged = merge([summarize(snapshot_of(rows), k=k) for rows in by_source])
    for name in FRAMES:
        one, other = getattr(merged, name), getattr(whole, name)
        if name == "templates":  # texts that only all of them together have k times
            one, other = one.drop("pattern"), other.drop("pattern")
        if name == "detections":
            one, other = one.select(sorted(one.columns)), other.select(sorted(other.columns))
        assert one.equals(other), name


def test_what_was_written_is_read(parts, tmp_path):
    everything = merge(parts)
    folder = everything.write(tmp_path / "fleet")
    again = Summary.read(folder)
    assert_same(again, everything)
    assert (again.k, again.by) == (everything.k, everything.by)
    assert_same(merge([Summary.read(part.write(tmp_path / "p")) for part in parts]), everything)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".parquet"}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A store, a later backup of it without what was pruned, and a store of others."""
    folder = tmp_path_factory.mktemp("host")
    every = [session(f"s{n}", created_at=NOW_S - 3_600 * n) for n in range(60)]
    kept = {"store": every[10:50], "backup": every[:40], "other": every[50:]}
    for name, sessions in kept.items():
        write_store(folder / f"{name}.db", sessions=sessions)
    return {name: folder / f"{name}.db" for name in kept}


@pytest.mark.slow
def test_a_copy_that_reads_another_way_is_named(host):
    store, backup, other = (summarize(path, as_of=AS_OF) for path in host.values())
    assert merge([store, other]).losses.is_empty()
    everything = merge([store, backup, other])
    assert everything.states["n"].sum() == 90
    (lost,) = everything.losses.to_dicts()
    assert (lost["source"], lost["code"]) == (str(host["store"]), "summary.counted_twice")
    assert lost["message"] == f"it shares work with {host['backup']}"
    assert_same(merge([merge([other, backup]), store]), everything)
    page = " ".join(sa.report(everything, window="2026-W21").as_html().split())
    assert "1 source holds work of another source." in page
    assert "A store was damaged" not in page


@pytest.mark.slow
def test_a_copy_that_is_counted_with_its_original_is_counted_once(host):
    with sa.read(host["store"], host["backup"], as_of=AS_OF, progress=False) as snap:
        together = merge([summarize(snap), summarize(host["other"], as_of=AS_OF)])
    assert together.states["n"].sum() == 60
    assert together.losses.is_empty()


def test_of_much_work_of_one_moment_a_few_are_remembered(host):
    rows = [{"source": "a", "entity_id": f"e{n}", "created_at": ago(hours=5)} for n in range(100)]
    rows += [{"source": "b", "entity_id": "e7"}]
    (sample,) = work_samples(snapshot_of(rows).entities)["work_sample"].to_list()
    again = work_samples(snapshot_of(rows[::-1]).entities)["work_sample"].to_list()
    assert [sample] == again
    assert len(set(sample.split(" "))) == N_SAMPLED


def test_a_copy_that_lost_its_older_half_still_shares_some_of_the_sample():
    rows = [
        {"source": source, "entity_id": f"e{n}", "created_at": ago(hours=n)}
        for source, n_kept in (("whole", 400), ("pruned", 200))
        for n in range(n_kept)
    ]
    samples = work_samples(snapshot_of(rows).entities)["work_sample"].str.split(" ")
    whole, pruned = (set(sample) for sample in samples)
    assert len(whole) == len(pruned) == N_SAMPLED
    # The whole spends about half of its sample on what the other has kept.
    assert N_SAMPLED / 4 < len(whole & pruned) < N_SAMPLED * 3 / 4


@pytest.mark.slow
def test_the_command_reports_what_was_written(host, tmp_path, capsys):
    parts = [summarize(host[name], as_of=AS_OF) for name in ("store", "other")]
    folders = [str(part.write(tmp_path / f"host-{n}")) for n, part in enumerate(parts)]
    page = tmp_path / "fleet.html"
    asked = ["report", *folders, "--week", "2026-W21", "-o", str(page)]
    assert run(asked) == 0
    assert page.read_text() == sa.report(merge(parts), window="2026-W21").as_html()
    capsys.readouterr()
    refused = {
        f"stores cannot be reported together; found the store '{tmp_path}'": [str(tmp_path)],
        "There is no file or directory 'host-8/'": ["host-8/"],
        "found --as-of, --policy, --salvage or --probe": ["--policy", "operator"],
        "policy, by, ledger, prices, compare, detectors or tz": ["--compare", "2026-W10"],
        "is in '" + folders[0]: ["-o", f"{folders[0]}/week.html"],
    }
    for words, arguments in refused.items():
        assert run([*asked, *arguments]) != 0
        assert words in capsys.readouterr().err


def test_it_takes_the_place_of_a_summary_and_of_nothing_else(parts, tmp_path):
    folder = parts[0].write(tmp_path / "s")
    n_files = len(list(folder.iterdir()))
    parts[1].write(folder)
    assert len(list(folder.iterdir())) == n_files
    assert_same(Summary.read(folder), parts[1])
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="is no summary, and something is there"):
        parts[0].write(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentError, match="is no summary, and something is there"):
        parts[0].write(tmp_path / "file")
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ArgumentError, match="is a symbolic link"):
        parts[0].write(tmp_path / "link")
    with pytest.raises(ArgumentError, match="needs the name of a folder"):
        parts[0].write("")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    several = [failed(n, "it broke", raw_status=word) for n, word in enumerate(SEVERAL)]
    summary = summarize(snapshot_of(several))
    return summary.write(tmp_path_factory.mktemp("written") / "s")


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "s")


def lie(folder, **told):
    """The head says something else that is as well written."""
    head = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps({**head, **told}))


def vouch(folder, name, frame):
    """A frame is another, and the head has the digest of that."""
    head = json.loads((folder / "head.json").read_text())
    frame.write_parquet(folder / "new")
    octets = (folder / "new").read_bytes()
    digest = sha256(octets).hexdigest()
    (folder / "new").rename(folder / f"{name}-{digest[:32]}.parquet")
    head["frames"][name] = {"sha256": digest, "n_rows": frame.height, "n_bytes": len(octets)}
    (folder / "head.json").write_text(json.dumps(head))


def frame_of(folder, name):
    return pl.read_parquet(next(folder.glob(f"{name}-*")))


def lies(**told):
    return lambda folder: lie(folder, **told)


def vouches(name, **columns):
    """Columns of a frame are others."""
    return lambda folder: vouch(folder, name, frame_of(folder, name).with_columns(**columns))


SENSELESS, OTHERWISE = "makes no sense", "is not what was written"
NO_SUMMARY = {
    "nothing there": (shutil.rmtree, SourceNotFoundError, "There is no file or directory"),
    "no head": (lambda folder: (folder / "head.json").unlink(), NotAStoreError, "is no summary"),
    "another version": (lies(version=1), NotAStoreError, "of version 1"),
    "a version that is 1 to Python": (lies(version=True), NotAStoreError, "of version True"),
    "an instant of no zone": (lies(as_of="2026-05-27T00:00:00"), DamagedStoreError, SENSELESS),
    "another kind": (lies(kind="x"), DamagedStoreError, "header is wrong"),
    "a pickle": (
        lambda folder: (folder / "head.json").write_bytes(b"\x80\x04\x95"),
        DamagedStoreError, "its header is wrong",
    ),
    "a device": (
        lambda folder: (folder / "head.json").rename(folder / "h")
        and (folder / "head.json").symlink_to("/dev/zero"),
        NotAStoreError, "is no summary",
    ),
    "nested": (
        lambda folder: (folder / "head.json").write_text("[" * 100_000),
        DamagedStoreError, "its header is wrong",
    ),
    "k of nothing": (lies(k=0), DamagedStoreError, SENSELESS),
    "a way out": (lies(frames={"states": {"sha256": "../x"}}), DamagedStoreError, SENSELESS),
    "a message": (lies(by=["reason_message"]), DamagedStoreError, SENSELESS),
    "half a character": (lies(policy="\ud800"), DamagedStoreError, SENSELESS),
    "a file is gone": (
        lambda folder: next(folder.glob("states-*")).unlink(), DamagedStoreError, "cannot be read",
    ),
    "cut off": (
        lambda folder: os.truncate(next(folder.glob("states-*")), 400), DamagedStoreError, OTHERWISE
    ),
    "a changed byte": (
        lambda folder: next(folder.glob("codes-*")).write_bytes(
            next(folder.glob("codes-*")).read_bytes()[:-1] + b"x"
        ),
        DamagedStoreError, OTHERWISE,
    ),
    "another column": (
        lambda folder: vouch(folder, "codes", pl.DataFrame({"x": [1]})),
        DamagedStoreError, "has other rows or columns",
    ),
    "a negative count": (
        vouches("states", n=pl.lit(-1, pl.Int64)), DamagedStoreError, "has invalid counts"
    ),
    "more than there are": (
        vouches("states", n=pl.lit(2**62, pl.Int64)), DamagedStoreError, "has too large counts"
    ),
    "a week of nothing": (
        vouches("groups", week=pl.lit("<script>")), DamagedStoreError, "has invalid weeks"
    ),
    "an unknown word": (
        vouches("states", outcome=pl.lit("moon")),
        DamagedStoreError, "does not hold what its name says",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_SUMMARY)
def test_a_summary_of_somebody_else_is_an_error_of_ours(folder, name):
    change, kind, words = NO_SUMMARY[name]
    change(folder)
    with pytest.raises(kind, match=words) as error:
        Summary.read(folder)
    assert "\nHint: " in str(error.value)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """An archive of five stores: one is a copy, one tells later what another told."""
    root = tmp_path_factory.mktemp("hosts")
    for host in "abcd":
        rows = [session(f"{host}-{n}") for n in range(3)]
        write_store(root / f"{host}.db", sessions=rows)
    shutil.copy(root / "a.db", root / "copy.db")
    write_store(root / "later.db", sessions=[session("b-0"), session("b-1"), session("new")])
    (root / "bad.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    sa.collect(str(root / "*.db"), root / "history")
    return root / "history"


@pytest.mark.slow
@pytest.mark.parametrize("most_rows", a_few([8, 1, 10_000]))
def test_an_archive_is_counted_shard_by_shard_as_it_is_at_once(history, monkeypatch, most_rows):
    read = list(reading.facts_in_shards([history], most_rows=most_rows))
    assert (len(read) > 1) == (most_rows < 10_000)
    monkeypatch.setattr(reading.facts_in_shards, "__kwdefaults__",
                        {"as_of": None, "on_error": "skip", "most_rows": most_rows})  # fmt: skip
    counts = summarize(history)
    with sa.read(history, progress=False) as snap:
        assert_same(counts, summarize(snap))
    assert counts.losses["code"].to_list() == ["archive.not_collected"]


@pytest.mark.slow
def test_what_an_error_does_is_chosen(history, tmp_path):
    broken = shutil.copytree(history, tmp_path / "history")
    next(broken.glob("shards/*/*/*/entities-*")).write_bytes(b"x")
    assert summarize(broken).states["n"].sum() > 0
    with pytest.raises(SourceError, match="cannot be read completely"):
        summarize(broken, on_error="raise")

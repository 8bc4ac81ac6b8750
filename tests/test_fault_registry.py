"""The registry of faults assigns each id once, tells what changed, and refuses what is broken."""

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import mean

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run as run_command
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.failures.fault_registry import (
    SCHEMA,
    assign,
    changed_within,
    read_registry,
    with_registered,
)
from tests.conftest import SHARED, SHIPPED
from tests.failures import run, store
from tests.frames import ago, facts
from tests.generators.failure_corpus import failure_corpus
from tests.generators.messages import failure_messages

EMPTY = pl.DataFrame(schema=SCHEMA)
MONDAY, TUESDAY = date(2026, 5, 4), date(2026, 5, 5)


def member(letter):
    return f"v1:{letter * 12}"


def fault(letter):
    return f"f1:{letter * 12}"


def clusters(**computed):
    """Clusters a, b, … with the letter of their computed fault and, where given, their rows."""
    pairs = {name: (text[0], int(text[1:] or 1)) for name, text in computed.items()}
    rows = [
        {"cluster_id": member(name), "code": None, "template": f"=text {name}"}
        | {"cause_group": None, "rule_name": None, "fault_id": fault(letter), "n_rows": n}
        for name, (letter, n) in pairs.items()
    ]
    texts = dict.fromkeys(
        ("cluster_id", "code", "template", "cause_group", "rule_name", "fault_id"), pl.String
    )
    return pl.DataFrame(rows, schema={**texts, "n_rows": pl.Int64})


def assigned(lines, now, day=MONDAY, **others):
    pairs = [(member(name), member(former)) for name, former in others.items()]
    was = pl.DataFrame(pairs, dict.fromkeys(("cluster_id", "member"), pl.String), orient="row")
    return assign(lines, now, was, today=day, version="1")


def told(changes):
    return sorted(changes.select("fault_id", "change", "other_id").rows())


def test_what_was_never_seen_gets_its_computed_id():
    lines, changes = assigned(EMPTY, clusters(a="c", b="c", d="e"))
    pairs = [(member(name), fault(letter)) for name, letter in ("ac", "bc", "de")]
    assert lines.select("member", "fault_id").rows() == pairs
    assert told(changes) == [(fault("c"), "new", None), (fault("e"), "new", None)]
    assert lines["since"].unique().to_list() == [MONDAY]


def test_an_id_stays_whatever_is_computed_and_a_new_cluster_joins():
    lines, _ = assigned(EMPTY, clusters(a="c"))
    after, changes = assigned(lines, clusters(a="d", b="d"), TUESDAY)
    assert told(changes) == [(fault("c"), "renamed", fault("d"))]
    assert after["fault_id"].unique().to_list() == [fault("c")]
    assert after["since"].to_list() == [MONDAY, TUESDAY]
    assert after["computed_id"].unique().to_list() == [fault("d")]


def test_the_older_of_two_faults_takes_the_other_in():
    lines, _ = assigned(EMPTY, clusters(a="f"))
    lines, _ = assigned(lines, clusters(a="f", b="c"), TUESDAY)
    after, changes = assigned(lines, clusters(a="c", b="c"), TUESDAY)
    assert (fault("c"), "merged", fault("f")) in told(changes)
    assert after["fault_id"].unique().to_list() == [fault("f")]
    assert after.filter(member=fault("c"))["since"].to_list() == [TUESDAY]
    again, changes = assigned(after, clusters(a="c", b="c"), TUESDAY)
    assert again.equals(after)
    assert changes["change"].to_list() == ["kept"]


def test_the_largest_part_of_a_fault_keeps_the_id():
    lines, _ = assigned(EMPTY, clusters(a="c", b="c"))
    after, changes = assigned(lines, clusters(a="c1", b="e9"), TUESDAY)
    kept, split = sorted(told(changes), key=lambda row: row[1])
    assert kept == (fault("c"), "renamed", fault("e"))
    assert split[1:] == ("split", fault("c"))
    # The id that is computed for the smaller part means the larger one since Monday.
    assert split[0] not in {fault("c"), fault("e")}
    row = after.filter(member=member("a")).row(0, named=True)
    assert (row["fault_id"], row["split_from"]) == (split[0], fault("c"))
    assert assigned(after, clusters(a="c1", b="e9"), TUESDAY)[0].equals(after)


def test_a_cluster_is_known_by_what_it_was_unless_that_fault_is_still_here():
    lines, _ = assigned(EMPTY, clusters(a="c", b="c"))
    gone, _ = assigned(lines, clusters(d="e"), TUESDAY, d="a")
    assert gone.filter(member=member("d"))["fault_id"].to_list() == [fault("c")]
    here, _ = assigned(lines, clusters(b="c", d="e"), TUESDAY, d="a")
    assert here.filter(member=member("d"))["fault_id"].to_list() == [fault("e")]


def test_a_narrower_template_is_of_the_fault_whose_template_fits_it():
    wide = clusters(a="c").with_columns(template=pl.lit("PR <*> was closed by <*> today"))
    lines, _ = assigned(EMPTY, wide)
    for said, is_of in (
        ("PR 7 was closed by ada today", True),
        ("PR 7 was closed by  today, later", False),
        ("PR 7 was opened by ada today", False),
        ("a PR 7 was closed by ada today", False),
        ("PR was closed by today", False),
    ):
        new = clusters(b="d").with_columns(template=pl.lit(said))
        after, _ = assigned(lines, new, TUESDAY)
        assert (fault("d") not in after["fault_id"]) == is_of
        assert assigned(after, new, TUESDAY)[0].equals(after)
    short, _ = assigned(EMPTY, wide.with_columns(template=pl.lit("it <*>: <*>")))
    after, _ = assigned(short, clusters(b="d").with_columns(template=pl.lit("it is: a")))
    assert fault("d") in after["fault_id"]


NAMES = "abcdef"
letters = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=6
)
formers = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES), max_size=3)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(letters, formers), min_size=1, max_size=5), st.integers(0, 99))
def test_twice_changes_nothing_and_order_does_not_matter(weeks, seed):
    lines, given_ever = EMPTY, set()
    for day, (week, formerly) in enumerate(weeks, 1):
        now = clusters(**{name: f"{letter}{n}" for name, (letter, n) in week.items()})
        was = {name: former for name, former in formerly.items() if name in week}
        was = {name: former for name, former in was.items() if former not in week}
        shuffled = (one.sample(fraction=1, shuffle=True, seed=seed) for one in (lines, now))
        mixed = assigned(*shuffled, date(2026, 5, day), **was)
        before = lines
        lines, changes = assigned(lines, now, date(2026, 5, day), **was)
        assert mixed[0].equals(lines)
        assert mixed[1].equals(changes)
        kept = read_registry(lines)  # As in the file: no formula begins a cell.
        assert kept.drop("template", "title").equals(lines.drop("template", "title"))
        again, none = assigned(lines, now, date(2026, 6, 1), **was)
        assert again.equals(lines)
        assert set(none["change"]) <= {"kept"}
        shown = with_registered(now, lines, "test").filter(pl.col("cluster_id").is_not_null())
        assert set(shown["fault_id"]) == set(none["fault_id"])
        # No id is lost: whatever was assigned is a fault or says what it is part of.
        given_ever |= set(changes.filter(pl.col("change") != "merged")["fault_id"])
        assert given_ever <= {*lines["fault_id"], *lines["member"]}
        assert set(before["member"]) <= set(lines["member"])


HEADER = "member,fault_id\n"
LINE = f"{member('a')},{fault('a')}\n"
BROKEN = [
    (f"{HEADER}<<<<<<< ours\n{LINE}", "line 2: a merge was not finished"),
    (f"{HEADER}{LINE}{member('a')},{fault('b')}\n", "lines 2 and 3.*two lines, with the faults"),
    (f"{HEADER}{LINE}{fault('a')},{fault('a')}\n", f"member {fault('a')}: .* is a circle"),
    (f"{HEADER}{LINE}{fault('a')},{fault('b')}\n{fault('b')},{fault('a')}\n",
     f"member {fault('a')}: .* is a circle of merged faults"),
    (f"{HEADER}{fault('b')},{fault('a')}\n{fault('b')},{fault('c')}\n", "lines 2 and 3"),
    ("member,fault,since\n", "line 1: unknown column 'fault'"),
    ("member,fault_id,of_a_later_version\n", "line 1: unknown column 'of_a_later_version'"),
    ("fault_id\n", "needs the column member"),
    ("member,member\n", "no column twice"),
    (f"{HEADER}{member('a')},=1+1\n", "line 2: fault_id: '=1\\+1' is no id of a fault"),
    (f"{HEADER}{member('a')},\n", "line 2: fault_id: '' is no id of a fault"),
    (f"{HEADER}{member('a')}\n", "line 2: 2 cells were needed"),
    (f'{HEADER}{member("a")},"{fault("a")}', "line 2: this is no CSV"),
    (f"member,fault_id,since\n{member('a')},{fault('a')},yesterday\n", "line 2: since needs"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("text", "problem"), BROKEN)
def test_a_broken_registry_is_an_error_that_names_the_place(tmp_path, text, problem):
    path = tmp_path / "faults.csv"
    path.write_text(text)
    snap = store(run("a", reason_message="no space left on device"))
    for ask in (sa.failures.faults, sa.failures.clusters, sa.failures.members):
        with pytest.raises(ArgumentError, match=problem):
            ask(snap, registry=path)
    with pytest.raises(ArgumentError, match=problem):
        sa.failures.register(snap, registry=path, write=True)
    assert path.read_text() == text


def test_a_fault_that_was_merged_many_times_is_found_at_once():
    ids = [f"f1:{n:012x}" for n in range(20_000)]
    chain = pl.DataFrame({"member": ids[:-1], "fault_id": ids[1:]})
    lines = pl.concat([EMPTY, chain], how="diagonal")
    now = clusters(a="c").with_columns(fault_id=pl.lit(ids[0]))
    shown = with_registered(now, lines, "test")["fault_id"]
    assert shown.to_list() == [ids[-1]]


def test_a_registry_that_is_absent_or_no_table_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"registry .* cannot be read"):
        read_registry(tmp_path / "faults.csv")
    with pytest.raises(MissingColumnsError):
        read_registry(pl.DataFrame({"member": ["x"]}))


@pytest.mark.slow
def test_formulas_and_secrets_of_messages_are_not_written(tmp_path):
    path = tmp_path / "faults.csv"
    snap = store(run("a", reason_message="=cmd|x failed, key sk-abcdefghijklmnopqrst"))
    sa.failures.register(snap, registry=path)
    assert not path.exists()
    sa.failures.register(snap, registry=path, write=True)
    row = read_registry(path).row(0, named=True)
    assert row["template"].startswith("'=")
    assert "sk-abc" not in path.read_text()
    before = path.read_bytes()
    assert sa.failures.register(snap, registry=path, write=True)["change"].to_list() == ["kept"]
    assert path.read_bytes() == before


@pytest.mark.slow
def test_commands_show_the_ids_of_the_registry_next_to_the_ledger(tmp_path, capsys):
    path = tmp_path / "faults.csv"
    asked = ["failures", str(SHIPPED["lionagi"]), "--show"]
    written = ["registry", "--registry", str(path), "--write", "--format", "csv"]
    assert run_command([*asked, *written]) == 0
    first = read_registry(path)["fault_id"][0]
    path.write_text(path.read_text().replace(first, fault("a")))
    (tmp_path / "owners.csv").write_text("cluster_id\n")
    capsys.readouterr()
    ledger = ["--ledger", str(tmp_path / "owners.csv")]
    for options in (["clusters", *ledger], ["faults", "--registry", str(path)]):
        assert run_command([*asked, *options, "--format", "csv"]) == 0
        assert fault("a") in capsys.readouterr().out


def changed(lines, window=None):
    days = window and (str(window), str(window + timedelta(days=1)))
    found = changed_within(lines, days and read_window(days, as_of=ago()), "test")
    return dict(found.select("fault_id", "registry_change").rows())


def test_what_was_merged_split_and_renamed_is_known_for_its_day():
    lines, _ = assigned(EMPTY, clusters(a="a5", b="b1", c="a1"))
    assert changed(lines) == {}
    # b is computed as a, c apart from a, and what is computed for a is another id.
    lines, changes = assigned(lines, clusters(a="d5", b="d1", c="c1"), day=TUESDAY)
    expected = {
        fault("a"): f"computed as {fault('d')}, took in {fault('b')}",
        fault("c"): f"split from {fault('a')}",
    }
    assert changed(lines) == expected
    assert {kind for _, kind, _ in told(changes)} == {"merged", "renamed", "split"}
    assert changed(lines, MONDAY) == expected
    assert changed(lines, TUESDAY) == changed(lines, date(2026, 5, 3)) == {}
    # Twice is nothing else, whatever the order of lines.
    again, _ = assigned(lines, clusters(a="d5", b="d1", c="c1"), day=date(2026, 5, 6))
    assert changed(again.sample(fraction=1, shuffle=True, seed=1)) == expected
    assert changed(None) == changed(EMPTY) == {}


@pytest.mark.slow
def test_faults_life_and_the_report_say_what_the_registry_changed(tmp_path):
    snap = sa.demo()
    path = tmp_path / "faults.csv"
    sa.failures.register(snap, registry=path, write=True)
    lines = read_registry(path)
    kept = lines["fault_id"][0]
    day = read_window("2026-W21", as_of=snap.as_of).since.date() + timedelta(days=1)
    old = {"member": fault("a"), "fault_id": kept, "since": day, "title": "Old"}
    merged = pl.concat([lines, pl.DataFrame([old], schema=lines.schema)])
    merged.write_csv(path)
    words = f"took in {fault('a')}"
    for found in (sa.failures.faults, sa.failures.life):
        rows = found(snap, window="2026-W21", registry=path)
        said = rows.filter(pl.col("fault_id") == kept)["registry_change"].unique().to_list()
        assert said == [words]
        others = rows.filter(pl.col("fault_id") != kept)["registry_change"]
        assert others.null_count() == others.len()
        assert found(snap, window="2026-W21")["registry_change"].null_count() == rows.height
    (tmp_path / "owners.csv").write_text("cluster_id\n")
    page = sa.report(
        snap, window="2026-W21", ledger=tmp_path / "owners.csv", sections=["failures"]
    ).as_html()
    assert "The registry of faults merged, split or renamed 1 fault in this window." in page
    assert words in page


@dataclass(frozen=True)
class HalfAYear:
    """What became of the ids of faults week by week.

    ``stayed``, ``known``: shares of runs whose first fault stays, or says its new one; ``new``:
    new ids over the faults at the end; ``groups_stayed``: labelled groups whose first runs all
    have their first fault; ``false_new``: new ids after the first week over those of a group
    never seen before.
    """

    stayed: float
    known: float
    new: float
    groups_stayed: float
    false_new: float


def over_weeks(messages, n_weeks, tmp_path, *, seed=1):
    """Register a growing store each week: each group of messages begins in a week of its own."""
    rng = random.Random(seed)
    begins = {name: rng.randrange(n_weeks) for name in sorted(messages["template_id"].unique())}
    rows, groups = [], {}
    for i, (name, text) in enumerate(messages.select("template_id", "message").rows()):
        week = rng.randrange(begins[name], n_weeks)
        before = {"days": 7 * (n_weeks - week)}
        groups[f"r{i}"] = name
        rows.append((week, run(f"r{i}", reason_message=text, ended=ago(**before))))
    path, first, first_runs, n_new = tmp_path / "faults.csv", {}, {}, []
    n_truly = 0
    for week in range(min(when for when, _ in rows), n_weeks):
        then = ago(days=7 * (n_weeks - week - 1))
        snap = facts([row for when, row in rows if when <= week], as_of=then)
        changes = sa.failures.register(snap, registry=path, write=True)
        new = changes.filter(pl.col("change").is_in(["new", "split"]))["fault_id"]
        members = sa.failures.members(snap, registry=path)
        last = dict(members.select("entity_id", "fault_id").rows())
        unseen = {last[entity] for entity in last if groups[entity] not in first_runs}
        n_truly += len(unseen.intersection(new)) if first else 0
        n_new.append(new.len())
        for entity in last.keys() - first.keys():
            if groups[entity] not in first_runs or week == first_runs[groups[entity]][0]:
                first_runs.setdefault(groups[entity], (week, []))[1].append(entity)
        first = last | first
    lines = read_registry(path)
    into = dict(lines.filter(pl.col("member").str.starts_with("f"))["member", "fault_id"].rows())
    stayed = [first[entity] == last[entity] for entity in first]
    known = [into.get(first[entity], first[entity]) == last[entity] for entity in first]
    whole = [all(first[name] == last[name] for name in runs) for _, runs in first_runs.values()]
    return HalfAYear(
        mean(stayed),
        mean(known),
        sum(n_new) / len(set(last.values())),
        mean(whole),
        sum(n_new[1:]) / max(1, n_truly),
    )


# Labels are of no use here: places in traces are random, and another place is another fault.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("messages", "n", "n_weeks", "known"),
    [
        (failure_messages, 120, 3, 1.0),
        *((messages, 1_500, 26, 0.98) for messages in (failure_messages, failure_corpus)),
    ],
)
def test_ids_of_a_few_weeks_and_of_half_a_year_stay(tmp_path, messages, n, n_weeks, known):
    found = over_weeks(messages(n), n_weeks, tmp_path)
    assert found.stayed >= 0.97
    assert found.known >= known
    assert found.new <= 1.15


def with_fresh_values(corpus, n, seed):
    """Messages of labelled templates, some groups often and most of them rarely.

    Each value is that of any message of its template, with other digits.
    """
    chance = random.Random(seed)
    parts = defaultdict(list)
    for (group, template), rows in corpus.group_by("group", "template", maintain_order=True):
        texts = rows["message"].to_list()
        words = re.escape(template or "").split(re.escape("<*>"))
        matches = [re.fullmatch("(.*?)".join(words), text, re.DOTALL) for text in texts]
        values = [match.groups() for match in matches if match and len(words) > 1]
        parts[group].append((template, texts, list(zip(*values, strict=True))))
    names = sorted(parts)
    chance.shuffle(names)
    shares = [1 / rank for rank in range(1, len(names) + 1)]
    made = []
    for name in chance.choices(names, shares, k=n):
        template, texts, columns = chance.choice(parts[name])
        if columns:
            drawn = iter([chance.choice(column) for column in columns])
            digit = lambda _: str(chance.randint(0, 9))  # noqa: E731
            fresh = [re.sub("[0-9]", digit, value) for value in drawn]
            ends = iter(fresh)
            text = re.sub(r"<\*>", lambda _, ends=ends: next(ends), template)
        else:
            text = chance.choice(texts)
        made.append({"template_id": name, "message": text})
    return pl.DataFrame(made)


CORPORA = [("agent_failures", "message", "template_id"), ("agent_failures_2", "plain", "group")]


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / CORPORA[0][0]).exists(), reason="the corpora are not here")
@pytest.mark.parametrize(("name", "text", "group"), CORPORA, ids=["first", "second"])
def test_ids_of_half_a_year_of_an_independent_corpus_stay(tmp_path, name, text, group):
    rows = pl.read_ndjson(SHARED / name / "messages.jsonl", infer_schema_length=None)
    corpus = rows.select("template", message=text, group=group)
    found = over_weeks(with_fresh_values(corpus, 800, 5), 26, tmp_path, seed=5)
    assert found.groups_stayed >= 0.97
    assert found.known >= 0.98
    assert found.false_new <= 1.15

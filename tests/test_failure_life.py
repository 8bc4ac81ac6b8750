"""New, back, growing, ongoing, quiet, gone; whose a failure is, and the ledger that says so."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run as cli
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.failures.failure_rows import cluster_id
from stateanalytics.failures.ownership import SCHEMA
from tests.examples import examples
from tests.failures import run, store
from tests.frames import AS_OF, ago
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")

NOW = (ago(days=7), AS_OF)


def broke(name, *days, **rest):
    """One failure of a message on each of these days before as-of."""
    return [
        run(f"{name}{i}", reason_message=f"{name} broke", ended=ago(days=day), **rest)
        for i, day in enumerate(days)
    ]


def named(name):
    return cluster_id(None, f"{name} broke")


def lives(*rows, **asked):
    found = sa.failures.life(store(*rows), **{"window": NOW, **asked})
    return {row["cluster_id"]: row for row in found.iter_rows(named=True)}


def entries(**columns):
    frame = pl.DataFrame({name: [value] for name, value in columns.items()})
    return pl.DataFrame(schema=SCHEMA).join(frame, on=frame.columns, how="full", coalesce=True)


def test_the_past_of_another_source_does_not_make_a_failure_new():
    """Ten weeks of one store say nothing of a store that was not there before."""

    def chance(**source):
        past = [run(f"r{day}", status="completed", ended=ago(days=day)) for day in range(1, 71)]
        [life] = lives(*past, *broke("New", 1, 2, 3, **source)).values()
        assert life["state"] == "new"
        return life["new_chance"]

    assert chance() < 0.01
    assert chance(source="another") == 1.0
    # Plays that failed before are a past of their source, too.
    old = run("p", entity_type="play", reason_message="Old broke", ended=ago(days=70))
    new = [{**row, "entity_type": "play"} for row in broke("New", 1, 2, 3)]
    assert lives(old, *new)[named("New")]["new_chance"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "state", "n_quiet"),
    [
        pytest.param([1], "new", None, id="never before"),
        pytest.param([1, 3], "new", None, id="twice now, never before"),
        pytest.param([1, 7.99], "ongoing", 0, id="also the week before"),
        pytest.param([1, 14.99], "ongoing", 1, id="one quiet week"),
        pytest.param([1, *range(15, 24)], "back", 2, id="two quiet weeks to the hour"),
        pytest.param([1, 6, *range(15, 24)], "ongoing", 1, id="quiet up to the first failure now"),
        pytest.param([1, 8, 60], "ongoing", 1, id="back for a week already"),
        pytest.param([1, 15], "ongoing", 2, id="one failure before has no rate"),
        pytest.param([1, 15, 25], "ongoing", 2, id="so long without it is no surprise"),
        pytest.param([1, *range(100, 104)], "back", 14, id="long quiet"),
        pytest.param([*range(8, 21)], "gone", 1, id="gone"),
        pytest.param([8], "quiet", 1, id="one failure before, none now"),
        pytest.param([50, 100], "quiet", 7, id="two failures are no rate to speak of"),
        pytest.param([*range(50, 56)], "gone", 7, id="long gone"),
    ],
)
def test_a_state_is_what_the_weeks_say(days, state, n_quiet):
    found = lives(*broke("it", *days))[named("it")]
    assert (found["state"], found["n_quiet_weeks"]) == (state, n_quiet)
    assert found["first_at"] == ago(days=max(days))
    assert found["last_at"] == ago(days=min(days))
    assert found["n_causes_ever"] == len(days)
    n_now = sum(day <= 7 for day in days)
    n_before = sum(7 < day <= 14 for day in days)
    assert (found["n_incidents"], found["n_rows"]) == (n_now, n_now)
    assert found["n_incidents_before"] == n_before


@pytest.mark.slow
def test_growing_is_what_change_says():
    ends = [ago(days=1 + 7 * (i % 2) + i / 33) for i in range(100)]
    well = [run(f"ok{i}", status="completed", ended=end) for i, end in enumerate(ends)]
    rows = [*well, *broke("it", *(1 + i / 10 for i in range(30)), 8, 9, 10), *broke("even", 1, 8)]
    found = lives(*rows)
    assert found[named("it")]["state"] == "growing" and found[named("it")]["q_value"] < 0.05
    assert found[named("even")]["state"] == "ongoing"


@pytest.mark.parametrize(("n_now", "state"), [(1, "ongoing"), (2, "growing")])
def test_one_incident_is_no_growth_however_short_the_window(n_now, state):
    well = [run(f"ok{i}", status="completed", ended=ago(days=i / 20)) for i in range(400)]
    now = broke("it", *(0.01 + i / 20 for i in range(n_now)))
    found = lives(*well, *now, *broke("it", 8, 19.9), window=(ago(days=0.2), AS_OF))
    assert found[named("it")]["state"] == state


@pytest.mark.slow
def test_what_failed_after_the_window_is_not_known_yet():
    rows = broke("it", 1, 10)
    before = lives(*rows, window=(ago(days=14), ago(days=7)))
    assert before[named("it")]["state"] == "new"
    assert before[named("it")]["last_at"] == ago(days=10)
    assert lives(*broke("late", 1), window=(ago(days=14), ago(days=7))) == {}


@pytest.mark.slow
def test_what_costs_most_comes_first_and_what_is_gone_costs_nothing():
    rows = [*broke("cheap", 1, cost_usd=0.1), *broke("dear", 1, cost_usd=5.0), *broke("old", 9)]
    found = lives(*rows)
    assert list(found) == [named("dear"), named("cheap"), named("old")]
    assert (found[named("old")]["cost_usd"], found[named("old")]["n_rows"]) == (None, 0)


def test_the_ledger_tells_whose_it_is():
    said = entries(cluster_id=named("it"), owner="ada", ticket="OPS-1", note="known")
    found = lives(*broke("it", 1), *broke("other", 1), ledger=said)
    assert found[named("it")]["owner"] == "ada" and found[named("it")]["ticket"] == "OPS-1"
    assert found[named("other")]["owner"] is None
    assert found[named("it")]["is_back"] is None and found[named("it")]["is_expected"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resolved_on", "is_back"),
    [(ago(days=2).date(), True), (ago(days=1).date(), False), (AS_OF.date(), False)],
)
def test_what_was_resolved_and_failed_after_that_day_is_back(resolved_on, is_back):
    said = entries(cluster_id=named("it"), resolved_in="1.4", resolved_on=resolved_on)
    assert lives(*broke("it", 1, 5), ledger=said)[named("it")]["is_back"] is is_back


@pytest.mark.slow
def test_what_is_expected_is_so_up_to_its_last_day():
    for day, is_expected in ((ago(days=1).date(), True), (ago(days=2).date(), False)):
        said = entries(cluster_id=named("it"), expected_until=day)
        assert lives(*broke("it", 1), ledger=said)[named("it")]["is_expected"] is is_expected


@pytest.mark.slow
def test_an_id_of_no_cluster_stays_visible():
    said = entries(cluster_id="v1:000000000000", owner="ben", template="forgotten")
    found = lives(*broke("it", 1), ledger=said)["v1:000000000000"]
    assert (found["state"], found["owner"], found["template"]) == ("unknown", "ben", "forgotten")


@pytest.mark.slow
def test_a_ledger_without_its_columns_is_refused():
    with pytest.raises(MissingColumnsError, match=r"failures.life needs columns"):
        sa.failures.life(store(), ledger=pl.DataFrame({"cluster_id": []}))


def logins(*users):
    return [run(user, reason_message=f"login of {user} broke", ended=ago(days=1)) for user in users]


@pytest.mark.slow
def test_a_cluster_whose_id_has_changed_keeps_what_the_ledger_says():
    old = "login of ada broke"
    before = lives(*logins("ada"))
    [was] = before
    said = entries(cluster_id=was, template=old, owner="ada")
    # Five users make the name a value, and so another template and another id.
    after = lives(*logins("ada", "ben", "cyd", "dov", "eve"), ledger=said)
    [(now, found)] = after.items()
    assert now != was and found["template"] == "login of <*> broke"
    assert (found["owner"], found["ledger_id"], found["state"]) == ("ada", was, "new")


@pytest.mark.slow
def test_another_code_or_a_cluster_with_an_entry_of_its_own_is_not_taken():
    said = entries(cluster_id="v1:000000000000", template="it really <*>", owner="ben")
    elsewhere = said.with_columns(code=pl.lit("run.failed.exception"))
    own = pl.concat([said, entries(cluster_id=named("it really"), owner="ada")])
    for ledger in (elsewhere, own):
        found = lives(*broke("it really", 1), ledger=ledger)
        assert found["v1:000000000000"]["state"] == "unknown"
    rows = broke("it really", 1)
    assert lives(*rows, ledger=said)[named("it really")]["owner"] == "ben"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Error: <*>", "Error: disk is full"),
        ("<*>", "disk is full"),
        ("<*> <*> <*>", "disk is full"),
    ],
)
def test_an_entry_that_says_little_is_not_found_again_in_another_failure(template, message):
    said = entries(cluster_id="v1:000000000000", template=template, resolved_on=date(2026, 1, 1))
    found = lives(run("a", reason_message=message), ledger=said)
    assert found["v1:000000000000"]["state"] == "unknown"
    assert found[cluster_id(None, message)]["ledger_id"] is None


@pytest.mark.slow
def test_what_is_found_again_by_its_words_is_not_said_to_be_back():
    known = {"template": "the disk <*>", "resolved_on": date(2026, 1, 1)}
    said = entries(cluster_id="v1:000000000000", **known)
    [found] = lives(run("a", reason_message="the disk broke"), ledger=said).values()
    assert (found["ledger_id"], found["is_back"]) == ("v1:000000000000", None)


# --- the file ----------------------------------------------------------------------------

ID, OTHER = "v1:3dd4831bf7f3", "v1:0dd4831bf7f3"


def written(tmp_path, text):
    path = tmp_path / "owners.csv"
    path.write_text(text, "utf-8")
    return path


def test_own_makes_edits_and_takes_away(tmp_path):
    path = tmp_path / "owners.csv"
    sa.failures.own(path, ID, owner="ada", note='two, "words"', today=date(2026, 5, 1))
    sa.failures.own(path, OTHER, owner="@ben", code="=1+1")
    sa.failures.own(path, ID, ticket="OPS-1", note="", resolved_in="1.4", today=date(2026, 5, 2))
    found = sa.failures.owners(path)
    assert found["cluster_id"].to_list() == [OTHER, ID]
    assert found.row(1, named=True) == {
        "cluster_id": ID, "code": None, "template": None, "owner": "ada", "ticket": "OPS-1",
        "note": None, "resolved_in": "1.4", "resolved_on": date(2026, 5, 2),
        "expected_until": None,
    }  # fmt: skip
    assert found.row(0, named=True)["code"] == "'=1+1"
    assert path.read_text().splitlines()[1].endswith(",@ben,,,,,")


def test_a_week_ends_with_its_sunday_and_a_release_has_no_day(tmp_path):
    header = "cluster_id,resolved_in,expected_until"
    path = written(tmp_path, f"{header}\n{ID},2026-W20,2026-W21\n{OTHER},1.4,\n")
    days = sa.failures.owners(path).select("resolved_on", "expected_until").rows()
    assert days == [(None, None), (date(2026, 5, 17), date(2026, 5, 24))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"cluster_id,owner\n<<<<<<< HEAD\n{ID},ada\n=======\n{ID},ben\n>>>>>>> x\n",
         "line 2: a merge was not finished"),
        (f"cluster_id,owner\n{ID},ada\n\n{ID},ben\n",
         f"lines 2 and 4: {ID} has two lines, owned by 'ada' and 'ben'"),
        ("cluster_id,owner\nx,ada\n", "line 2: 'x' is no id of a cluster"),
        ("cluster_id,owners\n", "line 1: unknown column 'owners'"),
        ("owner\nada\n", "line 1: a ledger needs the column cluster_id"),
        (f"cluster_id,owner\n{ID},a,b\n", "line 2: 2 cells were needed"),
        (f"cluster_id,owner\n{ID},\"a\n", "line 2: this is no CSV"),
        (f"cluster_id,expected_until\n{ID},soon\n",
         "line 2: expected_until needs a day or an ISO week; found 'soon'"),
        (f"cluster_id,note\n{ID},\"a\nb\"\n", "note needs one line"),
    ],
)  # fmt: skip
def test_a_ledger_that_is_wrong_names_its_line(tmp_path, text, words):
    with pytest.raises(ArgumentError, match=words):
        sa.failures.owners(written(tmp_path, text))


def test_a_file_that_is_no_text_or_not_there_is_an_error(tmp_path):
    with pytest.raises(ArgumentError, match="No such file"):
        sa.failures.owners(tmp_path / "no.csv")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match="not UTF-8"):
        sa.failures.owners(tmp_path / "bad.csv")


@pytest.mark.parametrize(
    ("cluster", "said", "words"),
    [
        (ID, {"owner": "a\nb"}, "owner needs one line"),
        (ID, {"expected_until": "soon"}, "expected_until needs a day"),
        ("v1:short", {"owner": "a"}, "no id of a cluster"),
        (ID, {"note": "a\udcff"}, "note needs text"),
        (ID, {"note": "x" * 200_000}, "note needs at most 131,072 characters"),
        (ID, {"resolved_on": 3}, "resolved_on needs a day"),
    ],
)
def test_what_cannot_be_said_leaves_the_file_as_it_was(tmp_path, cluster, said, words):
    path = written(tmp_path, f"cluster_id,owner\n{ID},ada\n")
    with pytest.raises(ArgumentError, match=words):
        sa.failures.own(path, cluster, **said)
    assert path.read_text() == f"cluster_id,owner\n{ID},ada\n"
    assert list(tmp_path.iterdir()) == [path]


def test_edits_at_one_time_are_all_kept(tmp_path):
    path = tmp_path / "owners.csv"
    ids = [f"v1:{number:012x}" for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda cluster: sa.failures.own(path, cluster, owner="ada"), ids))
    assert sa.failures.owners(path)["cluster_id"].to_list() == ids
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_resolved_any_more_has_no_day(tmp_path):
    path = tmp_path / "owners.csv"
    sa.failures.own(path, ID, resolved_in="1.4")
    assert sa.failures.own(path, ID, resolved_in="")["resolved_on"].item() is None
    sa.failures.own(path, ID, resolved_on="2026-05-20")
    found = sa.failures.own(path, ID, resolved_in="")
    assert found["resolved_on"].item() == date(2026, 5, 20)


@pytest.mark.parametrize("note", ["a\x1c=======", "a\u2028<<<<<<< b"])
def test_no_line_ends_within_a_note(tmp_path, note):
    path = tmp_path / "owners.csv"
    sa.failures.own(path, ID, note=note)
    assert sa.failures.owners(path)["note"].item() == note


def test_a_ledger_grows_no_longer_than_can_be_read(tmp_path):
    path = tmp_path / "owners.csv"
    for number in range(7):
        sa.failures.own(path, f"v1:{number:012x}", note="x" * 131_000)
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="too long for a ledger"):
        sa.failures.own(path, ID, note="x" * 131_000)
    assert path.read_bytes() == before and sa.failures.owners(path).height == 7


@pytest.mark.parametrize("place", ["~nosuchuser/o.csv", "n" * 300 + ".csv", "\udcff/o.csv"])
def test_a_place_where_no_ledger_can_be_is_an_error_of_ours(monkeypatch, tmp_path, place):
    monkeypatch.chdir(tmp_path)
    for tried in (sa.failures.owners, lambda path: sa.failures.own(path, ID, owner="ada")):
        with pytest.raises(ArgumentError, match="cannot be"):
            tried(place)


def test_a_ledger_may_be_what_polars_reads(tmp_path):
    path = written(tmp_path, f"{','.join(SCHEMA)}\n{ID},,,ada,7,,,,2026-W20\n")
    as_read = pl.read_csv(path)
    assert sa.failures.life(store(), ledger=as_read).equals(sa.failures.life(store(), ledger=path))
    for bad, words in (
        (pl.concat([as_read, as_read]), "has two lines"),
        (as_read.with_columns(owner=pl.lit([["ada"]])), "no table of texts"),
        (3, "needs a ledger; found int"),
    ):
        with pytest.raises(ArgumentError, match=words):
            sa.failures.life(store(), ledger=bad)


CELLS = st.sampled_from([*SCHEMA, ID, OTHER, "2026-W21", "2026-05-20", '"', "\x00", "\r", "\u202e"])


@given(text=st.one_of(st.text(), st.lists(st.lists(CELLS, max_size=4), max_size=4)))
@examples(100)
def test_any_text_is_read_or_refused_with_an_error_of_ours(tmp_path_factory, text):
    whole = text if isinstance(text, str) else "\n".join(map(",".join, text))
    path = tmp_path_factory.mktemp("ledger") / "owners.csv"
    path.write_text(whole, "utf-8", errors="replace", newline="")
    with suppress(ArgumentError):
        read = sa.failures.owners(path)
        assert read["cluster_id"].is_unique().all() and read.schema == SCHEMA


def test_an_empty_file_is_an_empty_ledger(tmp_path):
    assert sa.failures.owners(written(tmp_path, "")).is_empty()


# --- the command -------------------------------------------------------------------------

STORE = str(SAMPLES / "state.db")


@pytest.mark.slow
def test_the_command_owns_and_shows(capsys, tmp_path, demo):
    path = str(tmp_path / "owners.csv")
    first = sa.failures.clusters(demo).row(0, named=True)
    of_first = [first["cluster_id"][:11], STORE, "--owner", "ada"]
    assert cli(["failures", "own", *of_first, "--ledger", path]) == 0
    assert "owners.csv holds 1 cluster\n" in capsys.readouterr().err
    assert cli(["failures", "own", "v1:000000000000", "--owner", "ben", "--ledger", path]) == 0
    assert "owner ben" in capsys.readouterr().out
    assert sa.failures.owners(path).row(1, named=True)["template"] == first["template"]
    assert cli(["failures", STORE, "--show", "life", "--ledger", path, "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert "ada" in shown.out and "unknown" in shown.out
    assert "in the ledger, but without a failure: v1:000000000000" in shown.err


@pytest.mark.slow
def test_who_owns_a_failure_owns_its_clusters(tmp_path, demo):
    ids = sa.failures.members(demo).group_by("fault_id").agg(pl.col("cluster_id").unique())
    fault, clusters = max(ids.rows(), key=lambda row: len(row[1]))
    path = str(tmp_path / "owners.csv")
    assert cli(["failures", "own", fault[:9], STORE, "--owner", "ada", "--ledger", path]) == 0
    assert len(clusters) > 1 and {*sa.failures.owners(path)["cluster_id"]} == {*clusters}


def steady_days(seed, per_week):
    """The days before as-of of failures at a constant rate, over a year."""
    draws, days, at = random.Random(seed), [], 0.0
    while (at := at + draws.expovariate(per_week / 7)) < 364:
        days.append(at)
    return days


def weeks_told(starts, n_weeks=24):
    """The state in each of some weeks of a failure with these days before as-of."""
    told = []
    for week in range(n_weeks):
        until = week * 7.0
        rows = broke("it", *(day for day in starts if day >= until))
        found = lives(*rows, window=(ago(days=until + 7), ago(days=until))) if rows else {}
        told += [row["state"] for row in found.values()]
    return told


@pytest.mark.slow
@pytest.mark.parametrize("per_week", [0.7, 2.0])
def test_a_steady_failure_is_seldom_said_to_be_back_or_gone(per_week):
    states = [state for seed in range(4) for state in weeks_told(steady_days(seed, per_week))]
    assert len(states) > 80
    for state in ("back", "gone"):
        assert states.count(state) / len(states) <= 0.02, state


@pytest.mark.slow
def test_what_failed_three_times_a_week_is_gone_within_four_weeks_and_then_back():
    before = [84 + day for day in steady_days(1, 3.0) if day < 7 * 8]
    told = weeks_told([1.0, *before], n_weeks=12)
    assert told[0] == "back"
    assert told[1:9] == ["gone"] * 8


def hours(name, *ages):
    """Failures of one message so many hours before as-of."""
    return broke(name, *(age / 24 for age in ages))


OLD = run("old", status="completed", ended=ago(days=20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ages", "n_and_most"),
    [
        pytest.param([0.1] * 10, [(10, 0)], id="ten in three hours, never before"),
        pytest.param([0] * 5 + [2.9] * 5, [(10, 0)], id="at as-of, and almost three hours ago"),
        pytest.param([0.1] * 9, [], id="nine are too few"),
        pytest.param([0.1] * 9 + [3.1], [], id="nine, and one before"),
        pytest.param([0.1] * 12 + [50.0] * 4, [(12, 4)], id="three times the most of the week"),
        pytest.param([0.1] * 11 + [50.0] * 4, [], id="less than three times"),
        pytest.param([0.1] * 11 + [172.0] * 4, [(11, 0)], id="the week before does not count"),
    ],
)
def test_what_fails_far_more_than_in_the_week_before_is_escalating(ages, n_and_most):
    found = sa.failures.escalating(store(OLD, *hours("it", *ages), *hours("other", 1, 2, 90)))
    assert found.select("n_requests", "n_most").rows() == n_and_most
    assert set(found["cluster_id"]) <= {named("it")}


@pytest.mark.slow
def test_without_a_week_of_history_nothing_is_known_to_escalate():
    assert sa.failures.escalating(store(*hours("it", *[0.1] * 20))).is_empty()
    assert sa.failures.escalating(store()).is_empty()
    nothing = sa.failures.escalating(store(OLD))
    assert nothing.schema == sa.failures.escalating(store()).schema


def test_sessions_of_one_request_that_fail_together_are_no_escalation():
    rows = [{**row, "invocation_id": "one"} for row in hours("it", *[0.1] * 24)]
    assert sa.failures.escalating(store(OLD, *rows)).is_empty()

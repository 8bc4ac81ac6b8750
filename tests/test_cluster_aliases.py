"""One failure under several ids: of fewer messages, and of a former version of the miner."""

import hashlib

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run as cli
from stateanalytics.errors import ArgumentError
from stateanalytics.failures import aliases, cluster_life, masking, templates
from stateanalytics.failures.failure_rows import cluster_id
from stateanalytics.failures.ownership import SCHEMA
from tests.failures import run, store
from tests.frames import AS_OF, ago
from tests.generators.failure_corpus import failure_corpus
from tests.samples import the_week
from tests.test_report import run as session

NOW = (ago(days=7), AS_OF)
USERS = ("ada", "ben", "cyd", "dov", "eve")


def logins(*users, **rest):
    rest = {"ended": ago(days=1), **rest}
    return [run(user, reason_message=f"login of {user} broke", **rest) for user in users]


def entry(cluster, **said):
    row = {"cluster_id": cluster, "owner": "ada", **said}
    frame = pl.DataFrame({name: [value] for name, value in row.items()})
    return pl.concat([pl.DataFrame(schema=SCHEMA), frame], how="diagonal_relaxed")


def test_a_cluster_is_known_by_the_ids_of_its_messages_alone():
    found = aliases(store(*logins(*USERS), *logins("fay", reason_code="run.failed.x")))
    assert found.columns == cluster_life.ALIASES.dtypes.names()
    of_code = found.filter(code="run.failed.x")["alias_id"]
    assert of_code.to_list() == [cluster_id("run.failed.x", "login of fay broke")]
    found = found.filter(pl.col("code").is_null())
    assert set(found["alias_id"]) == {cluster_id(None, f"login of {user} broke") for user in USERS}
    assert set(found["cluster_id"]) == {cluster_id(None, "login of <*> broke")}
    assert found["n_rows"].to_list() == [1] * 5


@pytest.mark.slow
def test_nothing_has_no_other_ids():
    assert aliases(store()).is_empty()
    assert aliases(store(run("a", reason_message="it broke"))).is_empty()


@pytest.mark.slow
def test_what_was_resolved_is_back_by_the_rows_that_have_its_id():
    snap = store(*logins(*USERS), *logins("fay", ended=ago(days=3)))
    for user, is_back in (("ada", True), ("fay", False)):
        old = cluster_id(None, f"login of {user} broke")
        said = entry(old, resolved_on=ago(days=2).date())
        [found] = sa.failures.life(snap, window=NOW, ledger=said).iter_rows(named=True)
        assert (found["ledger_id"], found["is_back"]) == (old, is_back)


# --- another version -----------------------------------------------------------------------


@pytest.fixture
def next_version(monkeypatch):
    """Make this miner the former one, and one that masks other things the miner of today."""

    def change(*, version="v2", more=(), without=()):
        before, was = masking._REPLACED, templates.VERSION

        def mine(texts):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(masking, "_REPLACED", before)
                return templates.mine_with_parts(texts)

        kept = tuple(
            (needed, tuple(pair for pair in pairs if pair[1] not in without))
            for needed, pairs in before
        )
        monkeypatch.setattr(masking, "_REPLACED", (*kept, (None, tuple(more))))
        monkeypatch.setattr(templates, "VERSION", version)
        monkeypatch.setattr(cluster_life, "FORMER", (cluster_life.Miner(was, mine),))

    return change


ANY_COLOUR = ("red|green|blue", "\ue000\ue001")
PATH = "\ue000PATH\ue001"


def colours(*days):
    return [
        run(f"{colour}{day}", reason_message=f"the {colour} light broke", ended=ago(days=day))
        for colour in ("red", "green")
        for day in days
    ]


@pytest.mark.slow
def test_a_life_goes_on_under_another_version(next_version, tmp_path):
    snap, path = store(*colours(1, 9)), tmp_path / "owners.csv"
    before = sa.failures.life(snap, window=NOW)
    red = cluster_id(None, "the red light broke")
    assert red in before["cluster_id"]
    sa.failures.own(path, red, owner="ada", resolved_in="1.4", resolved_on=ago(days=3).date())
    next_version(more=[ANY_COLOUR])
    [found] = sa.failures.life(snap, window=NOW, ledger=path).iter_rows(named=True)
    assert found["cluster_id"].startswith("v2:") and found["template"] == "the <*> light broke"
    assert (found["owner"], found["ledger_id"], found["is_back"]) == ("ada", red, True)
    assert found["state"] == "ongoing" and found["first_at"] == ago(days=9)


@pytest.mark.slow
def test_what_a_version_takes_apart_is_its_largest_part(next_version):
    rows = [run(f"a{i}", reason_message=f"cannot read /x/{name} now", ended=ago(days=1))
            for i, name in enumerate("aab")]  # fmt: skip
    old = cluster_id(None, "cannot read <*> now")
    assert sa.failures.clusters(store(*rows))["cluster_id"].to_list() == [old]
    next_version(without=[PATH])
    found = sa.failures.life(store(*rows), window=NOW, ledger=entry(old))
    owned = {row["template"]: row["owner"] for row in found.iter_rows(named=True)}
    assert owned == {"cannot read /x/a now": "ada", "cannot read /x/b now": None}


@pytest.mark.slow
def test_a_version_that_changes_nothing_changes_ids_alone(next_version):
    snap = store(*colours(1), run("silent", reason_code="run.failed.x"))
    before = sa.failures.clusters(snap)
    next_version()
    now = sa.failures.clusters(snap)
    assert set(now["cluster_id"].str.head(3)) == {"v2:"}
    found = aliases(snap).join(now, on="cluster_id")
    told = dict(found.select("alias_id", "template_right").iter_rows())
    assert told == dict(before.select("cluster_id", "template").iter_rows())


@pytest.mark.slow
def test_rules_of_your_own_keep_their_clusters(next_version):
    snap = store(*colours(1))
    rules = {"rule": [{"name": "lights", "action": "merge", "message": "light"}]}
    [old] = sa.failures.clusters(snap, rules=rules)["cluster_id"]
    next_version(more=[ANY_COLOUR])
    found = aliases(snap, rules=rules)
    assert set(found["template"]) == {"lights"} and old in found["alias_id"]


@pytest.mark.slow
def test_a_change_is_told_of_two_snapshots_by_one_version(next_version):
    next_version(more=[ANY_COLOUR])
    changed = sa.failures.change(store(*colours(1)), window=NOW, earlier=store(*colours(9)))
    assert changed["status"].to_list() == ["unclear"]


@pytest.mark.slow
def test_reports_of_two_versions_are_of_one_world(next_version):
    # Far apart: what is one cluster to one of the versions is no incident for it.
    rows = [session(f"s{i}", "failed", reason_message=f"the {colour} light broke",
                    ended_at=ago(hours=20 * i + 2))
            for i, colour in enumerate(("red", "green"))]  # fmt: skip
    snap = store(*rows)
    last = sa.report(snap)
    next_version(more=[ANY_COLOUR])
    this = sa.report(snap)
    assert sa.diff(last, this).filter(pl.col("change") != 0).is_empty()
    [now] = this.summary["failures"]["clusters"]
    before = last.summary["failures"]["clusters"]
    assert set(now["former_ids"]) == {row["cluster_id"] for row in before}


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_commands_and_explorers_find_a_cluster_under_either_id(next_version, capsys, tmp_path):
    # Read anew: its tables would keep the ids of the next version for the tests after this one.
    week = the_week()
    source, path = str(week.sources["source"][0]), tmp_path / "owners.csv"
    first = sa.failures.clusters(week).row(0, named=True)
    old = first["cluster_id"]
    next_version()
    new = cluster_id(first["code"], first["template"])
    asked = ["--show", "members", "--cluster", old, "--format", "csv"]
    assert cli(["failures", source, *asked]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == first["n_rows"] + 1
    assert f"{old} is now {new}" in said.err
    look = sa.explore(week, "failures", by=["cluster_id"])
    assert look.choose(cluster_id=old).selected.height == first["n_rows"]
    with pytest.raises(ArgumentError, match="'v1:000000000000' is no cluster_id"):
        look.choose(cluster_id="v1:000000000000")
    own = ["failures", "own", old, source, "--ledger", str(path), "--owner"]
    assert cli([*own, "ada"]) == 0
    assert sa.failures.owners(path)["cluster_id"].to_list() == [new]
    path.write_text(f"cluster_id,owner\n{old},ben\n")
    assert cli([*own, "cyd"]) == 0
    assert sa.failures.owners(path).select("cluster_id", "owner").rows() == [(old, "cyd")]


@pytest.mark.slow
def test_templates_of_a_version_stay_what_they_are():
    """What changes here changes ids: after a release, VERSION and FORMER have to change, too."""
    mined = templates.mine_templates(failure_corpus()["message"])["template"].unique().sort()
    digest = hashlib.blake2b("\n".join(mined).encode(), digest_size=6).hexdigest()
    assert (templates.VERSION, digest) == ("v1", "e3dc832def2c")

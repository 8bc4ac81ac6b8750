"""The fleet's report: who fails more than the rest, what is covered, and the page of sums."""

import random
import re
import shutil
from datetime import datetime
from math import exp

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.first_screen import coverage_of
from stateanalytics.reporting.sections.fleet import Compared
from stateanalytics.reporting.summarize import COUNTED
from stateanalytics.state.population import host_of
from stateanalytics.stats import shares
from stateanalytics.stats.shares import fit_prior
from tests.conftest import ROOT
from tests.examples import a_few, examples
from tests.lionagi_stores import NOW_S, session, write_store

SAMPLES = ROOT / "data" / "samples"
WEEK = "2026-W22"
GROUPS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12)


def counts_of(groups):
    """Groups of failed and good runs."""
    rows = [(f"g{i:03}", bad, good, bad) for i, (bad, good) in enumerate(groups)]
    return pl.DataFrame(rows, schema=["group", "n_failed", "n_good", "n_bad"], orient="row")


@given(GROUPS)
@examples(60)
def test_a_share_is_drawn_towards_what_is_common_and_never_beyond(groups):
    prior = fit_prior((bad, bad + good) for bad, good in groups)
    assert 0 < prior.share < 1
    for bad, good in groups:
        if n := bad + good:
            shrunk = prior.shrunk(bad, n)
            low, high = sorted((bad / n, prior.share))
            assert low - 1e-12 <= shrunk <= high + 1e-12
            begin, end = prior.interval(bad, n)
            assert 0 <= begin < shrunk < end <= 1


@given(GROUPS, st.randoms(use_true_random=False))
@examples(30)
def test_the_order_of_groups_does_not_matter(groups, rng):
    mixed = [*groups]
    rng.shuffle(mixed)
    first, second = (Compared.of(counts_of(some)) for some in (groups, mixed))
    assert first.prior == second.prior
    numbers = [[(r["n_bad"], r["n"], r["verdict"]) for r in c.rows] for c in (first, second)]
    assert sorted(numbers[0]) == sorted(numbers[1])


def test_the_strength_is_the_likeliest():
    groups = [(1, 20), (0, 5), (7, 30), (2, 50), (0, 12)]
    counts = shares.Counter(groups)
    prior = fit_prior(groups)
    best = shares._log_likelihood(counts, prior.share, prior.strength)
    for step in range(-10, 140):
        other = shares._log_likelihood(counts, prior.share, exp(step / 10))
        assert other <= best + 1e-9


def test_intervals_of_drawn_shares_cover_what_is_true():
    rng = random.Random(7)
    truth = [rng.betavariate(3, 17) for _ in range(400)]
    sizes = [rng.randint(1, 60) for _ in truth]
    seen = [(sum(rng.random() < p for _ in range(n)), n) for p, n in zip(truth, sizes, strict=True)]
    prior = fit_prior(seen)
    assert prior.share == pytest.approx(0.15, abs=0.02)
    ends = [prior.interval(*pair) for pair in seen]
    covered = [low <= p <= high for (low, high), p in zip(ends, truth, strict=True)]
    assert 0.92 <= sum(covered) / len(covered) <= 0.98


def test_who_fails_more_is_found_and_chance_is_not():
    rng = random.Random(5)
    alike = [(sum(rng.random() < 0.1 for _ in range(40)), 40) for _ in range(300)]
    groups = [(bad, n - bad) for bad, n in alike]
    assert Compared.of(counts_of(groups)).more == []
    compared = Compared.of(counts_of([*groups, (20, 20), (1, 0)]))
    assert [row["n_bad"] for row in compared.more] == [20]
    assert Compared.of(counts_of([(2, 0), (1, 9)])).more == []


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("hosts/a/.lionagi/state.db", "hosts/a"),
        ("/home/ann/.local/share/opencode/opencode.db", "/home/ann"),
        ("fleet/b/state.db", "fleet/b"),
        ("../x/.agent-orchestrator", "../x"),
        ("state.db", "."),
        ("", "."),
    ],
)
def test_a_host_is_the_folder_of_its_stores(source, host):
    assert host_of(source) == host


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Six hosts with two stores each; one of them fails most of its requests."""
    root = tmp_path_factory.mktemp("hosts")
    for host in "abcdef":
        for folder in (".lionagi", ".old"):
            (root / host / folder).mkdir(parents=True)
            bad = {
                "status": "failed",
                "status_reason_code": "run.failed.exception",
                "status_reason_summary": "it broke",
            }
            rows = [
                session(f"{host}-{folder}-{n}", invocation_id=f"{host}-{folder}-{n}",
                        project="shop" if n % 2 else "web", ended_at=NOW_S - 60 - 7_000 * n,
                        started_at=NOW_S - 90 - 7_000 * n, created_at=NOW_S - 90 - 7_000 * n,
                        **(bad if (host == "c" and n % 4) or n == 7 else {}))
                for n in range(12)
            ]  # fmt: skip
            write_store(root / host / folder / "state.db", sessions=rows)
    return root


@pytest.fixture(scope="module")
def stores(hosts):
    return [str(path) for path in sorted(hosts.glob("*/*/state.db"))]


@pytest.fixture(scope="module")
def history(stores, hosts):
    sa.collect(stores, hosts / "history")
    return hosts / "history"


@pytest.fixture(scope="module")
def pooled(stores):
    return sa.read(stores, progress=False)


@pytest.mark.slow
def test_the_page_names_the_host_that_fails_more_than_the_rest(pooled, hosts):
    made = sa.report(pooled, sections=["fleet"], shown=False)
    fleet = made.summary["fleet"]
    assert [one["by"] for one in fleet["groupings"]] == ["host", "project", "source"]
    by_host = fleet["groupings"][0]
    assert (by_host["n"], by_host["n_more"]) == (6, 1)
    assert by_host["rows"][0]["group"].endswith("/c")
    assert fleet["finding"].startswith("Host ")
    assert fleet["finding"].endswith(" fail more than the rest.")
    assert "Who fails more than the rest" in made.as_html()
    assert '<div id="fleet"' in made.as_html()


@pytest.mark.slow
def test_one_source_has_no_fleet(stores):
    with sa.read(stores[0], progress=False) as snap:
        made = sa.report(snap, sections=["fleet"], shown=False)
    assert made.summary["fleet"]["groupings"] == []
    assert made.summary["coverage"] is None
    assert "Who fails more" not in made.as_html()
    assert "#fleet" not in made.as_html()


def without_provenance(snap, sections):
    """The page and its numbers without where they are from, and texts, which no archive keeps."""
    with pytest.MonkeyPatch.context() as patched:
        # Commands name what was read, which is an archive or stores.
        for place in ("entities._as_read", "summarize.place_of"):
            patched.setattr(f"stateanalytics.reporting.{place}", lambda *_: "a.db")
        made = sa.report(snap, sections=sections, title="A week", shown=False)
        return [
            re.sub(r"(message (?:·|\\u00b7) \w+): [^<\"]*", r"\1", text)
            for text in (made.as_html(), made.as_json())
        ]


QUICK = ["fleet", "systems", "failures", "attention"]
ALL = ["late", "slow", "over_time", "detectors", "durations", "audit", "appendix"]


@pytest.mark.slow
@pytest.mark.parametrize("sections", a_few([QUICK, [*QUICK, *ALL, "thresholds"]]))
def test_the_report_of_a_history_is_that_of_the_pooled_stores(history, pooled, sections):
    with sa.read(history, progress=False) as snap:
        assert without_provenance(snap, sections) == without_provenance(pooled, sections)


@pytest.mark.slow
def test_of_all_systems_too(tmp_path):
    paths = [SAMPLES / name for name in ("agent_orchestrator", "opencode", "state.db")]
    sa.collect(paths, tmp_path / "history")
    with sa.read(tmp_path / "history", progress=False) as snap, sa.read(*paths) as pooled:
        assert without_provenance(snap, QUICK) == without_provenance(pooled, QUICK)


def sources(*, unchanged="", **looked_at):
    return pl.DataFrame(
        [
            (
                name,
                None if at is None else datetime.fromisoformat(f"{at}T00:00Z"),
                name in unchanged,
            )
            for name, at in looked_at.items()
        ],
        schema={
            "source": pl.String,
            "looked_at": pl.Datetime("us", "UTC"),
            "is_unchanged": pl.Boolean,
        },
        orient="row",
    )


LOST = pl.DataFrame({"source": ["x", "y"], "code": ["archive.not_collected", "salvage.rows"]})


@pytest.mark.parametrize(
    ("ends", "losses", "words"),
    [
        pytest.param({"a": "2026-05-20", "b": "2026-05-26"}, LOST[:0], "2 sources read.", id="all"),
        pytest.param(
            {"a": "2026-05-01", "b": "2026-05-25", "c": "2026-05-26"}, LOST,
            "3 sources read; 1 could not be collected; 1 stale: a since Fri 1 May 2026.",
            id="one was collected long before the others",
        ),
        pytest.param(
            {"a": "2026-05-25", "b": "2026-05-26", "c": "2026-05-26", "unchanged": "ac"}, LOST[:0],
            "3 sources read, 2 of them unchanged at the last collection.",
            id="what has nothing new is not stale",
        ),
        pytest.param(
            {"a": "2026-05-01", "b": None, "c": "2026-05-26"}, LOST[:0],
            "3 sources read; 1 stale: a since Fri 1 May 2026.",
            id="what is read itself is never stale",
        ),
        pytest.param(
            dict.fromkeys("abc", "2026-04-01"), LOST[:0], "3 sources read.",
            id="nothing is old beside the rest",
        ),
        pytest.param(
            {**{f"s{n}": f"2026-04-0{n}" for n in range(1, 6)},
             **{f"t{n}": "2026-05-26" for n in range(6)}}, LOST[1:],
            "11 sources read; 5 stale: s1 since Wed 1 Apr 2026, s2 since Thu 2 Apr 2026, "
            "s3 since Fri 3 Apr 2026, s4 since Sat 4 Apr 2026 and 1 more.",
            id="many",
        ),
        pytest.param(
            {"x/a": "2026-04-01", "y/b": "2026-04-02", "z/b": "2026-05-26"}, LOST[:0],
            "3 sources read; 2 stale: a since Wed 1 Apr 2026 and b since Thu 2 Apr 2026.",
            id="ends of paths that differ",
        ),
        pytest.param(
            {"x/b": "2026-04-01", "y/b": "2026-04-02", "z": "2026-05-26"}, LOST[:0],
            "3 sources read; 2 stale: x/b since Wed 1 Apr 2026 and y/b since Thu 2 Apr 2026.",
            id="ends of paths that are the same",
        ),
    ],
)  # fmt: skip
def test_coverage_says_what_was_read_what_failed_and_what_is_stale(ends, losses, words):
    told = coverage_of(sources(**ends), losses)
    assert told["in_words"] == words


@pytest.mark.slow
def test_coverage_stands_on_top_of_the_page(history, stores, tmp_path):
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    shutil.copytree(history, tmp_path / "history")
    sa.collect([*stores, broken], tmp_path / "history")
    with sa.read(tmp_path / "history", progress=False) as snap:
        page = sa.report(snap, sections=[], shown=False).as_html()
    told = "12 sources read, 12 of them unchanged at the last collection; 1 could not be "
    assert told in page
    assert page.index("12 sources read") < page.index("The window in numbers")


def test_a_coverage_of_one_source_is_none():
    assert coverage_of(sources(a="2026-05-20"), LOST[:0]) is None


@pytest.fixture(scope="module")
def sums(history):
    return sa.summarize(history)


@pytest.fixture(scope="module")
def of_sums(sums):
    return sa.report(sums, window=WEEK)


@pytest.fixture(scope="module")
def of_facts(pooled):
    sections = ["headline", "failures", "fleet", "over_time"]
    return sa.report(pooled, window=WEEK, compare=None, sections=sections, shown=False)


@pytest.mark.slow
def test_the_numbers_of_sums_are_those_of_all_stores_at_once(of_sums, of_facts):
    ours, theirs = of_sums.summary, of_facts.summary
    # Sums know how many units have how many runs, and with that how sure a share is.
    assert ours["headline"]["numbers"][:4] == theirs["headline"]["numbers"][:4]
    completed = ours["headline"]["numbers"][1]
    assert (completed["name"], completed["unit"]) == ("completed", "invocation")
    assert completed["shown_interval"]
    assert ours["headline"]["numbers"][4]["n"] == theirs["headline"]["n_causes"]
    for name in ("left_out", "outcomes"):
        assert ours["headline"][name] == theirs["headline"][name]
    codes = ours["sums"]["codes"]["rows"]
    failures = theirs["failures"]
    for name in ("n_rows", "n_causes"):
        assert sum(code[name] for code in codes) == failures[name]
    assert {(c["code"], c["n_rows"], c["n_sessions"], c["n_causes"]) for c in codes} == {
        (c["code"], c["n_rows"], c["n_sessions"], c["n_causes"]) for c in failures["codes"]
    }
    assert [code["template"] for code in codes] == ["it broke"]
    (week,) = (row for row in ours["over_time"]["rows"] if row["label"].startswith(WEEK))
    steps = theirs["over_time"]["rows"]
    assert week["n"] == sum(step["n"] for step in steps)
    assert week["n_open"] == steps[-1]["n_open"]
    assert ours["coverage"] == theirs["coverage"]
    for one, other in zip(
        ours["fleet"]["groupings"], theirs["fleet"]["groupings"], strict=True
    ):  # fmt: skip
        assert (one["by"], one["n"]) == (other["by"], other["n"])
        totals = [
            {row["group"]: (row["n_good"], row["n_failed"]) for row in each["rows"]}
            for each in (one, other)
        ]
        shared = totals[0].keys() & totals[1].keys()
        assert shared
        assert all(totals[0][group] == totals[1][group] for group in shared)


@pytest.mark.slow
def test_the_page_of_sums_names_the_sections_that_it_lacks(of_sums):
    page = of_sums.as_html()
    (line,) = re.findall(r"Not included, because weekly counts do not have it: ([^<.]*)\.", page)
    others = set(re.split(", | and ", line))
    assert {"attention", "slow", "durations", "thresholds"} <= others
    assert not others & {*COUNTED}
    found = set(re.findall(r'<(?:section|div) id="([\w-]+)"(?! class)', page))
    assert found == {"headline", "fleet", "codes", "over-time"}
    assert "ledger" not in of_sums.summary


def test_some_sections_of_sums_are_told_alone(sums):
    made = sa.report(sums, window=WEEK, sections=["fleet", "slow"])
    assert {*COUNTED} & {*made.summary} == {"headline", "fleet"}
    assert made.summary["sums"]["not_included"].endswith(": slow.")


def test_the_week_of_sums_is_the_last_that_is_over(sums):
    assert sa.report(sums).summary["window"]["label"].startswith("week 2026-W21")
    assert sa.report(sums, window=("2026-05-18", "2026-05-25")).summary["window"]["is_over"]


def test_what_sums_cannot_answer_is_refused_in_a_line(sums):
    with pytest.raises(ArgumentError, match="counted by ISO week; found 2026-05-19"):
        sa.report(sums, window=("2026-05-19", "2026-05-25"))
    for asked in ({"policy": sa.Policy.v1()}, {"as_known_at": "2026-05-26"},
                  {"compare": "last-week"}):  # fmt: skip
        with pytest.raises(ArgumentError, match="counted at one instant by one policy"):
            sa.report(sums, **asked)


def test_an_empty_summary_has_a_page(sums):
    nothing = {name: getattr(sums, name).clear() for name in ("states", "codes", "groups")}
    empty = sa.Summary(**{**vars(sums), **nothing})
    page = sa.report(empty).as_html()
    assert "No run ended in this window" in page

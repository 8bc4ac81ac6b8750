"""Where detectors disagree, and the cause of each: per row, in total, in a sentence."""

import dataclasses
import itertools
import re

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.detectors.catalogue import named, registry, titles
from stateanalytics.detectors.comparing import CAUSES, _sentence
from stateanalytics.detectors.frames import DETECTIONS, DISAGREEMENT_CAUSES, DISAGREEMENTS
from stateanalytics.errors import ArgumentError
from tests.frames import ago, facts
from tests.test_detect import session

pytestmark = pytest.mark.usefixtures("read_once")


def silent(**how_long):
    moment = ago(**how_long)
    return dict.fromkeys(("updated_at", "last_message_at", "last_activity_at"), moment)


def compared(row, *detectors, also=()):
    given = facts([row, *also])
    own = [one for one in detectors if isinstance(one, sa.detectors.Detector)]
    return sa.detectors.disagreements(
        sa.detectors.detect(given, detectors=list(detectors)), detectors=own
    )


def test_silence_and_time_since_the_start_are_two_constructs():
    """lionagi #1162, in one row."""
    found = compared(session(), "B2", "B4").rows.row(0, named=True)
    assert (found["a"], found["b"]) == ("dashboard_stuck_60m", "dashboard_stale_card")
    assert (found["label_a"], found["says_b"], found["cause"]) == ("stuck", "fine", "construct")
    assert found["words"] == (
        "stuck (dashboard, 0.26.1) counts 9 h since start, "
        "stale (dashboard, 0.26.1) counts 40 s of silence (limits 1 h and 6 h)"
    )


def test_the_sentence_has_the_words_of_the_page_and_the_counts():
    assert compared(session(), "B2", "B4").worst == (
        "The dashboard shows 1 stuck and 0 stale; 1 is stuck and not stale: "
        "stuck (dashboard, 0.26.1) counts 9 h since start, "
        "stale (dashboard, 0.26.1) counts 40 s of silence (limits 1 h and 6 h)."
    )
    assert compared(session(started_at=ago(minutes=1)), "B2", "B4").worst is None


ROWS = [
    pytest.param(
        session(**silent(hours=2)), ("C2", "A6"), "threshold",
        "C2 counts 2 h since its row was written, A6 counts 2 h of silence "
        "(limits 1 h and 6 h)",
        id="limit",
    ),
    pytest.param(
        session(**silent(hours=6)),
        (dataclasses.replace(named("phantom_v2"), name="phantom_6h", threshold_s=21600.0),
         "A2"),
        "strictness", "at exactly 6 h C2 fires (>=), A2 only past it (>)",
        id="exactly at the limit",
    ),
    pytest.param(
        session(**silent(minutes=3)), ("A3", "A2"), "liveness",
        "A3 treats a process that was not checked as dead, A2 does not check the process; "
        "A3 counts 3 min of silence, A2 counts 3 min of silence (limit 6 h)",
        id="process nobody saw",
    ),
    pytest.param(
        session(last_message_at=ago(hours=3), last_activity_at=ago(hours=3)),
        (sa.detectors.Detector("heard", measures="last_message_age_s", threshold_s=3600.0),
         sa.detectors.Detector("written", measures="updated_age_s", threshold_s=3600.0)),
        "input",
        "heard counts 3 h since the last message, written counts 40 s since its row was "
        "written (limit 1 h)",
        id="column",
    ),
    pytest.param(
        session(started_at=ago(hours=1, milliseconds=700), created_at=ago(hours=2)),
        (sa.detectors.Detector("exact", measures="started_age_s", threshold_s=3600.0), "B2"),
        "clock",
        "exact counts 1 h since start, B2 counts 1 h since start (limit 1 h); "
        "exact by the clock of the reader's, B2 of the browser's, in whole seconds, looked at "
        "every 30 s",
        id="whole seconds",
    ),
    pytest.param(
        session(started_at=ago(hours=30), created_at=ago(hours=30)),
        ("fleet_attention_v1", "B2"), "scope",
        "B9/04 counts 1 d 6 h since start, B2 only covers running sessions that began "
        "or ended within the last 24 h",
        id="window",
    ),
    pytest.param(
        session(), ("B2", "B19"), "threshold",
        "B2 counts 9 h since start, B19 counts 9 h since start "
        "(limits 1 h, and from 1 h up to 3 h)",
        id="above an upper limit",
    ),
    pytest.param(
        session(raw_status=None, **silent(hours=9)), ("C4", "A6"), "condition", "the rule of C4",
        id="beyond both limits",
    ),
    pytest.param(
        session(ended_at=ago(seconds=40)), ("B16", "A6"), "construct",
        "B16 fires for “running, and has an end”, A6 counts 40 s of silence",
        id="a verdict beside a silence",
    ),
    pytest.param(
        session(raw_status="done", **silent(hours=9)), ("A5", "A6"), "version",
        "A5 is the rule of 0.28.0",
        id="version",
    ),
]  # fmt: skip


def called(detector):
    return detector if isinstance(detector, sa.detectors.Detector) else named(detector)


@pytest.fixture(scope="module")
def by_row():
    """All of these rows, each a session, judged by all of their detectors at once."""
    rows = [{**case.values[0], "entity_id": case.id} for case in ROWS]
    detectors = {called(one).name: called(one) for case in ROWS for one in case.values[1]}
    # Another session that all look at, so that any two meet somewhere.
    given = facts([*rows, session("other")])
    found = sa.detectors.detect(given, detectors=list(detectors.values()))
    return sa.detectors.disagreements(found, detectors=list(detectors.values())).rows


def in_titles(words):
    """The words, each number of the catalogue as what people call that detector."""
    title_of = {rule.entry.known_as: titles()[rule.name] for rule in registry().values()}
    return re.sub(r"\b[ABC]\d+(?:/\d+)?", lambda found: title_of[found[0]], words)


def test_two_that_say_the_same_word_are_told_apart_by_their_names():
    early, late = (
        sa.detectors.Detector(name, measures="started_age_s", threshold_s=limit_s, label="stuck")
        for name, limit_s in (("early", 1.0), ("late", 1e9))
    )
    worst = compared(session(), early, late).worst
    assert worst == (
        "Two rules disagree about 1 run; only one calls it stuck: early counts 9 h since start, "
        "late counts 9 h since start (limits 1 s and 11574 d 1 h)."
    )


def test_no_pair_of_the_catalogue_is_something_and_not_that():
    """Whatever the first says: its word, that of the second, or none."""
    known = registry()
    counts = {"n": 6, "n_a": 6, "n_b": 3, "words": "why"}
    rows = [
        {"a": a, "b": b, "label_a": label, **counts}
        for a, b in itertools.permutations(known, 2)
        for label in {None, known[b].one_label or known[b].question}
    ]
    frame = DISAGREEMENT_CAUSES.conform(pl.DataFrame(rows, infer_schema_length=None))
    said = [_sentence(frame[n], known) or "" for n in range(frame.height)]
    one_page = r"6 are (.+) and not (.+)\. For one of them, why\."
    two_rules = r"one calls them (.+), the other does not call them (.+)\. For one of them, why\."
    said = [words for words in said if "; only one calls them " not in words]
    found = [re.search(f"{one_page}|{two_rules}", words) for words in said]
    sides = [[side for side in match.groups() if side] for match in found]
    assert len(said) > 100
    assert [words for words, (is_, is_not) in zip(said, sides, strict=True) if is_ == is_not] == []


@pytest.mark.parametrize(
    ("name", "detectors", "cause", "words"),
    [pytest.param(case.id, *case.values[1:], id=case.id) for case in ROWS],
)
def test_the_cause_of_one_row(by_row, name, detectors, cause, words):
    pair = {called(one).name for one in detectors}
    found = by_row.filter(pl.all_horizontal(pl.col("a", "b").is_in(pair)), entity_id=name)
    first = found.row(0, named=True)
    assert first["cause"] == cause
    assert first["words"].startswith(in_titles(words))


@pytest.fixture(scope="module")
def demo(demo):
    return sa.detectors.disagreements(sa.detectors.detect(demo, detectors="all"))


@pytest.mark.slow
def test_every_cause_is_explained(demo):
    assert set(demo.rows["cause"]) <= set(CAUSES)
    assert demo.rows["words"].null_count() == 0


def test_totals_are_the_rows_counted(demo):
    found = demo
    counted = found.rows.group_by("a", "b", "cause").agg(n=pl.len().cast(pl.Int64))
    same = found.causes.select("a", "b", "cause", "n")
    key = ["a", "b", "cause"]
    assert counted.sort(key).equals(same.sort(key))
    shares = found.causes.group_by("a", "b").agg(pl.col("share").sum())["share"]
    assert shares.to_list() == pytest.approx([1.0] * shares.len())
    for a, b, n_pair in found.causes.select("a", "b", "n_pair").head(40).rows():
        assert found.rows.filter(a=a, b=b).height == n_pair


def test_what_one_cannot_know_is_no_disagreement():
    given = facts([session()])
    found = sa.detectors.detect(given, at=ago(hours=5), detectors=["B1", "C2", "B18"]).rows
    assert not found.filter(pl.col("detector") == "phantom_v2")["is_knowable"].any()
    assert sa.detectors.disagreements(found).rows.is_empty()


def test_rules_that_never_look_at_the_same_rows_do_not_disagree():
    assert compared(session(), "dashboard_stuck_60m", "dashboard_slow_60m").rows.is_empty()


def test_all_agree_without_a_worst():
    found = compared(session(), "dashboard_stuck_60m", "fleet_attention_v1")
    assert found.worst is None
    assert repr(found).startswith("All detectors agree.")


def test_one_detector_alone_disagrees_with_nobody():
    assert compared(session(), "B2").causes.is_empty()


def test_no_detections_are_no_disagreements():
    found = sa.detectors.disagreements(DETECTIONS.empty())
    assert (found.rows.height, found.causes.height, found.worst) == (0, 0, None)


def test_a_detector_that_nobody_knows_says_what_to_do():
    mine = sa.detectors.Detector("mine", fires=pl.lit(value=True))
    detections = sa.detectors.detect(facts([session()]), detectors=[mine])
    words = r"'mine' that is not known here.*\n.*detectors=\[yours"
    with pytest.raises(ArgumentError, match=words):
        sa.detectors.disagreements(detections)


def test_hostile_text_is_escaped_where_it_is_shown():
    words = {"label": "<script>x</script>", "entry": sa.detectors.Entry(rule="<b>")}
    evil = sa.detectors.Detector("evil", fires=pl.lit(value=True), **words)
    found = compared(session(), evil, "B4")
    page = found._repr_html_()
    assert page.count("<script>") == 1, "the one that sorts the table"
    assert "<script>x" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.slow
def test_rules_about_runs_are_named_before_those_about_other_work(demo):
    contrary = demo.causes.filter(~pl.col("cause").is_in(["scope", "version"]))
    is_of_runs = [
        all("session" in named(name).entity_types for name in pair)
        for pair in contrary.select("a", "b").iter_rows()
    ]
    assert is_of_runs == sorted(is_of_runs, reverse=True)
    first = is_of_runs.index(False)
    assert contrary["is_same_page"][first]
    assert not contrary["is_same_page"][first - 1]


# --- #1162, from a real store ----------------------------------------------------------


@pytest.fixture(scope="module")
def snap(lionagi_samples):
    return sa.read(lionagi_samples / "0.36.0" / "state.db", as_of=1779840000)


@pytest.mark.slow
def test_1162_stale_none_beside_stuck_is_reproduced_with_its_cause(snap):
    """ "Stale: 0" beside "N stuck >60m": at 20:00 of the day before, in a real store."""
    found = sa.detectors.detect(snap, at="2026-05-26T20:00Z", detectors=["B2", "B4"])
    fires = found.fires.sum().row(0, named=True)
    assert fires == {"dashboard_stuck_60m": 11, "dashboard_stale_card": 0}
    told = sa.detectors.disagreements(found)
    assert told.causes.select("a", "b", "cause", "n").rows() == [
        ("dashboard_stuck_60m", "dashboard_stale_card", "construct", 11)
    ]
    assert re.fullmatch(
        r"The dashboard shows 11 stuck and 0 stale; 11 are stuck and not stale. For one of them, "
        r"stuck \(dashboard, 0.26.1\) counts .* since start, stale .* counts .* of silence "
        r"\(limits 1 h and 12 h\)\.",
        told.worst,
    )


def test_1162s_own_flow_of_nine_hours_is_the_clearest_example(snap):
    told = sa.detectors.disagreements(sa.detectors.detect(snap, detectors="lionagi@0.26.1"))
    assert told.worst.startswith("The dashboard shows 17 stuck and 5 stale; 12 are")
    why = "stuck (dashboard, 0.26.1) counts 9 h since start, stale (dashboard, 0.26.1) counts 2 min"
    assert why in told.worst
    first = told.causes.row(0, named=True)
    assert (first["a"], first["b"]) == ("dashboard_stuck_60m", "dashboard_stale_card")
    flow = snap.entities.filter(pl.col("entity_id") == first["example_id"])
    assert flow["kind"].item() == "flow"


# --- the command -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(lionagi_samples):
    return lionagi_samples / "0.36.0" / "state.db"


@pytest.mark.slow
def test_the_command_leads_with_the_worst_contradiction(run, store):
    code, out, _ = run("detectors", store, "--at", "2026-05-26T20:00", "--detector", "B2",
                       "--detector", "B4")  # fmt: skip
    assert code == 0
    first, header = out.splitlines()[:2]
    assert first.startswith("The dashboard shows 11 stuck and 0 stale")
    assert header.split() == ["n", "flagged_by", "not_by", "why"]


@pytest.mark.slow
def test_the_command_asks_the_dozen_all_or_those_of_a_release(run, store):
    def asked(*arguments):
        code, out, _ = run("detectors", store, *arguments, "-f", "csv")
        assert code == 0
        rows = pl.read_csv(out.encode())
        return {*rows["a"], *rows["b"]}

    by_default, every = asked(), asked("--detectors", "all")
    assert "dashboard_stuck_60m" not in by_default
    assert by_default < every
    of_release = asked("--detectors", "lionagi@0.26.1")
    assert "dashboard_stuck_60m" in of_release < every
    cards = {"dashboard_stuck_60m", "dashboard_stale_card"}
    assert asked("--detectors", "B2, B4") == asked("--detector", "B2", "--detector", "B4") == cards


def test_the_command_says_where_nothing_is_covered(run, store):
    code, out, _ = run("detectors", store, "--detector", "ao_detecting")
    assert code == 0
    assert out.startswith("None of these detectors covers anything in these data.")
    assert run("detectors", store, "--detector", "B2")[1].startswith(
        "Only stuck (dashboard, 0.26.1)"
    )


def test_the_command_lists_rows_and_rules(run, store, tmp_path):
    code, _, err = run("detectors", store, "--detector", "B2", "--detector", "B4", "--rows",
                       "-o", tmp_path / "rows.csv")  # fmt: skip
    assert code == 0
    assert "17 stuck" in err
    assert pl.read_csv(tmp_path / "rows.csv").columns == DISAGREEMENTS.dtypes.names()
    code, out, _ = run("detectors", "--list", "-f", "csv")
    assert code == 0
    assert out.count("\n") > 100

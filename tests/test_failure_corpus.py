"""The labelled corpus of agent failures: what the miner must keep apart and what it must join."""

import polars as pl
import pytest

from stateanalytics.failures.templates import mine_templates
from tests.conftest import SHARED
from tests.examples import a_few
from tests.generators.failure_corpus import failure_corpus
from tests.template_scores import parsing_scores

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module", params=a_few(SEEDS))
def corpus(request):
    messages = failure_corpus(5_000, seed=request.param)
    return messages.with_columns(found=mine_templates(messages["message"])["template"])


def test_the_corpus_is_large_and_varied(corpus):
    assert corpus.height == 5_000
    assert corpus["template_id"].n_unique() >= 60
    assert corpus["message"].n_unique() > 4_000
    assert corpus["message"].str.contains("\n").any()
    assert corpus["message"].str.contains("\x1b").any()
    assert corpus["message"].str.contains(r"[^\x00-\x7f]").any()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_corpus():
    corpus, again, other = (failure_corpus(200, seed=seed) for seed in (3, 3, 4))
    assert corpus.equals(again)
    assert not corpus.equals(other)


def test_failures_are_grouped_as_they_were_meant(corpus):
    scores = parsing_scores(corpus["template_id"], corpus["found"])
    assert scores.ga >= 0.97
    assert scores.fga >= 0.97


@pytest.mark.parametrize("kind", ["exit code", "exception", "HTTP status", "signal", "model"])
def test_what_tells_failures_apart_is_never_merged_over(corpus, kind):
    apart = corpus.filter(pl.col("kept_apart") == kind)
    assert apart.height
    scores = parsing_scores(apart["template_id"], apart["found"])
    assert (scores.ga, scores.fga) == (1.0, 1.0)


def test_what_varies_is_gone_from_templates(corpus):
    assert corpus["found"].n_unique() < 1.05 * corpus["template_id"].n_unique()
    for shape in (r"[0-9a-f]{8}-[0-9a-f]{4}-", r"/home/", r"req_", r"2026-05-", r"\x1b"):
        assert not corpus["found"].str.contains(shape).any()


@pytest.mark.parametrize(
    ("truth", "found", "scores"),
    [
        pytest.param("aabb", "aabb", (1.0, 1.0, 1.0, 1.0), id="all right"),
        pytest.param("aabb", "xxyy", (1.0, 1.0, 0.0, 0.0), id="groups right, texts wrong"),
        pytest.param("aabb", "aaaa", (0.0, 0.0, 0.5, 0.0), id="two groups as one"),
        pytest.param("aaab", "aacb", (0.25, 0.4, 0.75, 0.4), id="one group as two"),
        pytest.param("", "", (1.0, 1.0, 1.0, 1.0), id="nothing"),
    ],
)
def test_the_four_measures_by_hand(truth, found, scores):
    measured = parsing_scores(*(pl.Series(list(text), dtype=pl.String) for text in (truth, found)))
    assert (measured.ga, measured.fga, measured.pa, measured.fta) == pytest.approx(scores)


INDEPENDENT = SHARED / "agent_failures" / "messages.jsonl"


@pytest.mark.slow
@pytest.mark.skipif(not INDEPENDENT.exists(), reason="the independent corpus is not here")
def test_what_agents_print_is_grouped_as_it_was_meant():
    corpus = pl.read_ndjson(INDEPENDENT, infer_schema_length=None)
    found = mine_templates(corpus["message"])["template"]
    scores = parsing_scores(corpus["template_id"], found)
    assert scores.ga >= 0.96
    assert scores.fga >= 0.92


AS_FOUND = SHARED / "agent_failures_2" / "messages.jsonl"


@pytest.mark.slow
@pytest.mark.skipif(not AS_FOUND.exists(), reason="the second corpus is not here")
@pytest.mark.parametrize("column", ["plain", "message"])
def test_what_panes_show_is_grouped_like_the_plain_text(column):
    corpus = pl.read_ndjson(AS_FOUND, infer_schema_length=None)
    scores = parsing_scores(corpus["group"], mine_templates(corpus[column])["template"])
    assert scores.ga >= 0.97
    assert scores.fga >= 0.93

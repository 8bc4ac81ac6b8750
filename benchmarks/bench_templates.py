"""Message templates: how right they are on a folder of labelled logs, and how fast.

``LOGHUB=folder python -m benchmarks templates`` measures on every ``*_corrected.csv`` of
the folder (columns ``Content`` and ``EventTemplate``, as in the corrected Loghub-2k), with
one setting for all systems, with what `mine_templates` keeps and without (``keep=()``),
beside drain3's defaults where it is installed (the extra named bench). The logs have a
licence for research only: name the folder, never copy it here. ``AGENT_FAILURES=file``
measures on labelled messages of agents (``message``, ``template_id``, ``template``, ``cause``,
``truncated`` and ``week`` in lines of JSON).
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from statistics import mean

import polars as pl

from benchmarks.measure import N_RUNS, Row, median_s, side_by_side
from stateanalytics.failures.associations import relate
from stateanalytics.failures.cause_groups import add_cause_groups
from stateanalytics.failures.templates import mine_templates
from tests.generators.failure_corpus import failure_corpus
from tests.generators.messages import failure_messages
from tests.template_scores import CauseScores, ParsingScores, cause_scores, parsing_scores

GOALS = ParsingScores(ga=0.912, fga=0.947, pa=0.816, fta=0.806)
MEASURES = ", ".join(
    f"{field.name.upper()} {getattr(GOALS, field.name)}" for field in fields(GOALS)
)
MOST_CHANGED, MOST_NEW, N_DRAWS = 0.003, 1.5, 10
N_DISTINCT, N_REPEATED = 200_000, 1_000_000
LEAST_PER_S, LEAST_OF_AGENTS_PER_S, MOST_S = 150_000, 40_000, 4.0
HAS_DRAIN3 = importlib.util.find_spec("drain3") is not None
_DIGITS = dict.fromkeys(map(ord, "0123456789"), "\ue000")
Miner = Callable[[pl.Series], pl.Series]


def ours(messages: pl.Series) -> pl.Series:
    return mine_templates(messages)["template"]


def ours_keeping_nothing(messages: pl.Series) -> pl.Series:
    return mine_templates(messages, keep=())["template"]


def drain3(messages: pl.Series) -> pl.Series:
    """The peer with its defaults; it learns as it reads, so the templates are read at the end."""
    config = importlib.import_module("drain3.template_miner_config").TemplateMinerConfig()
    miner = importlib.import_module("drain3").TemplateMiner(config=config)
    found = [miner.add_log_message(text)["cluster_id"] for text in messages]
    final = {one.cluster_id: one.get_template() for one in miner.drain.clusters}
    return pl.Series([final[number] for number in found], dtype=pl.String)


def run(n_distinct: int = N_DISTINCT, n_runs: int = N_RUNS) -> list[Row]:
    """Accuracy where a folder is named, then the project's own corpus, then speed."""
    folder = os.environ.get("LOGHUB")
    agents = os.environ.get("AGENT_FAILURES")
    files = sorted(Path(folder).expanduser().glob("*_corrected.csv")) if folder else []
    return [
        *(_logs(files) if files else []),
        *(_agents(Path(agents).expanduser()) if agents else []),
        _corpus(n_runs),
        _distinct(min(n_distinct, N_DISTINCT), n_runs),
        _repeated(n_runs),
    ]


def scores_of(files: list[Path], miner: Miner) -> dict[str, ParsingScores]:
    """The measures of each file."""
    return {
        path.name.split("_")[0]: parsing_scores(rows["EventTemplate"], miner(rows["Content"]))
        for path in files
        for rows in [pl.read_csv(path, infer_schema=False).with_columns(pl.all().fill_null(""))]
    }


def average(scores: dict[str, ParsingScores]) -> ParsingScores:
    """The mean over systems, each counted once."""
    return ParsingScores(
        *(mean(column) for column in zip(*map(astuple, scores.values()), strict=True))
    )


def _logs(files: list[Path]) -> list[Row]:
    found = scores_of(files, ours)
    rows = [
        _row(f"templates of {name}", one, files[i], "")
        for i, (name, one) in enumerate(found.items())
    ]
    peer = f"drain3: {_shown(average(scores_of(files, drain3)))}" if HAS_DRAIN3 else ""
    work = f"templates of {len(files)} systems"
    for name, miner, scores in (
        (work, ours, found),
        (f"{work}, keep=()", ours_keeping_nothing, scores_of(files, ours_keeping_nothing)),
    ):
        whole = average(scores)
        met = all(a >= b for a, b in zip(astuple(whole), astuple(GOALS), strict=True))
        seconds = median_s(partial(_all_files, files, miner), 1)
        rows.append(Row(name, seconds, peer, None, MEASURES, met, _shown(whole)))
    return rows


def _agents(path: Path) -> list[Row]:
    """How well an independent corpus of agents' failures is grouped; a trace has no one text."""
    corpus = pl.read_ndjson(path, infer_schema_length=None)
    found, precision = _agents_scores(corpus, ours)
    peer = ""
    if HAS_DRAIN3:
        its, its_precision = _agents_scores(corpus, drain3)
        peer = f"drain3: {_shown(its)}, pairs {its_precision:.4f}"
    causes = _causes(corpus)
    begun = time.perf_counter()
    shares = [_changed(corpus["message"], seed) for seed in range(N_DRAWS)]
    new, truly_new = _new_clusters(corpus)
    return [
        Row(
            "ids with 10 % more messages, new clusters by week",
            time.perf_counter() - begun,
            "",
            None,
            f"< {MOST_CHANGED:.1%} of messages change id, < {MOST_NEW} × the truly new",
            mean(shares) <= MOST_CHANGED and new <= MOST_NEW * truly_new,
            f"{mean(shares):.2%} (at most {max(shares):.2%}), {new} of {truly_new}",
        ),
        Row(
            f"causes of {corpus['template_id'].n_unique():,} templates of agents",
            median_s(partial(_causes, corpus), 1),
            "",
            None,
            "pair F1 0.6, first related 0.75",
            causes.pair_f1 >= 0.6 and causes.precision_at_1 >= 0.75,
            f"pair F1 {causes.pair_f1:.3f}, first related {causes.precision_at_1:.3f}",
        ),
        Row(
            f"templates of {corpus.height:,} messages of agents",
            median_s(partial(ours, corpus["message"]), 1),
            peer,
            None,
            "GA 0.9, FGA 0.8, PA 0.72, FTA 0.6, pairs 0.997 precise",
            precision >= 0.997
            and all(a >= b for a, b in zip(astuple(found), (0.9, 0.8, 0.72, 0.6), strict=True)),
            f"{_shown(found)}, pairs {precision:.4f}",
        ),
        _speed(_more_like(corpus), "of agents", LEAST_OF_AGENTS_PER_S),
    ]


def _agents_scores(corpus: pl.DataFrame, miner: Miner) -> tuple[ParsingScores, float]:
    """GA and FGA of all messages, PA and FTA of whole single lines, and the pairs' precision.

    A trace has no one text.
    """
    said = corpus["message"] if miner is ours else corpus["message"].str.replace_all(r"\s+", " ")
    rows = corpus.with_columns(found=miner(said))
    groups = parsing_scores(rows["template_id"], rows["found"])
    lines = rows.drop_nulls("template").filter(
        ~pl.col("truncated"), ~pl.col("message").str.contains("\n", literal=True)
    )
    texts = parsing_scores(*(_tidied(lines[name]) for name in ("template", "found")))
    n_pairs = pl.len() * (pl.len() - 1) / 2
    found, right = (
        rows.group_by(names).agg(n=n_pairs)["n"].sum()
        for names in ("found", ["found", "template_id"])
    )
    return ParsingScores(groups.ga, groups.fga, texts.pa, texts.fta), right / found


def _tidied(templates: pl.Series) -> pl.Series:
    """Placeholders of all kinds, and several that only marks part, as one."""
    one = templates.str.replace_all(r"<[A-Z]{2,8}>", "<*>").str.replace_all(r"\s+", " ")
    one = one.str.strip_chars().str.replace_all(r"<\*> (?:[KMGT]?i?B|bytes)\b", "<*>")
    one = one.str.replace_all(r"\b[a-z]+://<\*>", "<*>")
    return one.str.replace_all(r"<\*>(?:(?:[:./@#&?=_-]|://|, ?|\.\./)*<\*>)+", "<*>")


def _more_like(corpus: pl.DataFrame, n: int = 120_000) -> pl.Series:
    """Distinct messages of the same templates: what varies in one is that of any other."""
    chance = random.Random(5)
    parts = []
    for (template,), rows in corpus.group_by("template", maintain_order=True):
        texts = rows["message"]
        if template is None:
            parts.append((rows.height, partial(_other_lines, texts.to_list(), chance)))
        elif "<*>" in template:
            pattern = "(?s)^" + "(.*?)".join(map(re.escape, template.split("<*>"))) + "$"
            values = [match.groups() for text in texts if (match := re.match(pattern, text))]
            if values:
                columns = list(zip(*values, strict=True))
                parts.append((rows.height, partial(_other_values, template, columns, chance)))
    weights, makers = zip(*parts, strict=True)
    made: dict[str, None] = {}
    while len(made) < n:
        made.update((make(), None) for make in chance.choices(makers, weights, k=n))
    return pl.Series(list(made)[:n])


def _other_lines(traces: list[str], chance: random.Random) -> str:
    """A trace at other lines of its files."""
    number = lambda match: f"{match[1]}{chance.randint(10, 4000)}"  # noqa: E731
    return re.sub(r"(line |:)\d{2,}", number, chance.choice(traces))


def _other_values(template: str, columns: list[tuple[str, ...]], chance: random.Random) -> str:
    """A message with the values of others, and other digits in them."""
    values = iter([chance.choice(column) for column in columns])
    filled = re.sub(r"<\*>", lambda _: next(values).translate(_DIGITS), template)
    return re.sub("\ue000", lambda _: str(chance.randint(0, 9)), filled)


def _causes(corpus: pl.DataFrame) -> CauseScores:
    """How well the causes of true templates are grouped, each as most of its messages were."""
    clusters = add_cause_groups(
        corpus.with_columns(template=ours(corpus["message"]))
        .group_by("template_id", "cause")
        .agg(pl.col("template").mode().sort().first())
        .sort("template_id")
        .with_columns(code=pl.lit(None, pl.String), systems=pl.lit(""), cluster_id="template_id")
    )
    return cause_scores(clusters, relate(clusters, n=1))


def _changed(messages: pl.Series, seed: int) -> float:
    """The share of messages whose template is another one once a tenth more have come."""
    rows = pl.DataFrame({"message": messages, "after": ours(messages)})
    few = rows.sample(round(rows.height / 1.1), seed=seed)
    return float((ours(few["message"]) != few["after"]).mean() or 0.0)


def _new_clusters(corpus: pl.DataFrame) -> tuple[int, int]:
    """How many clusters, and how many true ones, are new in all weeks but the first."""
    counts = [0, 0]
    for week in range(corpus["week"].min() + 1, corpus["week"].max() + 1):
        known = corpus.filter(pl.col("week") <= week)
        known = known.with_columns(template=ours(known["message"]))
        for place, name in enumerate(("template", "template_id")):
            first = known.group_by(name).agg(pl.col("week").min())
            counts[place] += first.filter(pl.col("week") == week).height
    return counts[0], counts[1]


def _row(work: str, scores: ParsingScores, path: Path, peer: str) -> Row:
    texts = pl.read_csv(path, infer_schema=False)["Content"].fill_null("")
    return Row(
        work, median_s(partial(ours, texts), 1), peer, None, "see the mean", True, _shown(scores)
    )


def _all_files(files: list[Path], miner: Miner = ours) -> None:
    for path in files:
        miner(pl.read_csv(path, infer_schema=False)["Content"])


def _corpus(n_runs: int) -> Row:
    corpus = failure_corpus()
    scores = parsing_scores(corpus["template_id"], ours(corpus["message"]))
    return Row(
        f"templates of {corpus.height:,} failures of agents",
        median_s(partial(ours, corpus["message"]), n_runs),
        "",
        None,
        "GA 0.97, FGA 0.97",
        min(scores.ga, scores.fga) >= 0.97,
        f"GA {scores.ga:.3f}, FGA {scores.fga:.3f}",
    )


def _distinct(n: int, n_runs: int) -> Row:
    messages = failure_messages(n * 5 // 4)["message"].unique(maintain_order=True).head(n)
    return _speed(messages, "of servers", LEAST_PER_S, n_runs)


def _speed(messages: pl.Series, of: str, least: int, n_runs: int = 1) -> Row:
    peer_s = None
    if HAS_DRAIN3:
        seconds, peer_s = side_by_side(partial(ours, messages), partial(drain3, messages), n_runs)
    else:
        seconds = median_s(partial(ours, messages), n_runs)
    rate = messages.len() / min(_core_s(partial(ours, messages)) for _ in range(max(n_runs, 3)))
    return Row(
        f"{messages.len():,} distinct messages {of}",
        seconds,
        "drain3" if peer_s else "",
        peer_s,
        f"> {least:,} a second of one core",
        rate > least,
        f"{rate:,.0f} a second of one core",
        differs="its own masks and templates, one order of the messages",
    )


def _core_s(work: Callable[[], object]) -> float:
    """Seconds of all cores together: the goal is of one, and other work may share them."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _repeated(n_runs: int) -> Row:
    # As in real stores: most failures repeat one of some ten thousand texts.
    few = failure_messages(20_000)["message"]
    messages = few.sample(N_REPEATED, with_replacement=True, seed=1)
    seconds = median_s(partial(ours, messages), n_runs)
    return Row(
        f"{N_REPEATED:,} messages, {few.n_unique():,} of them distinct",
        seconds,
        "",
        None,
        f"< {MOST_S:g} s",
        seconds < MOST_S,
    )


def _shown(scores: ParsingScores) -> str:
    return ", ".join(
        f"{field.name.upper()} {getattr(scores, field.name):.3f}" for field in fields(scores)
    )

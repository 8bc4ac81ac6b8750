"""Small data sets whose curves are known, and the slow obvious versions of the estimates."""

from pathlib import Path

import polars as pl

# completed at ten durations, four timed out at 900 s, two still running at 150 and 640 s
TYPE_I = pl.DataFrame(
    {
        "duration_s": [60.0, 95, 120, 180, 240, 300, 420, 510, 700, 880]
        + [900.0] * 4
        + [150.0, 640],
        "ended": [True] * 10 + [False] * 6,
    }
)
TIED = pl.DataFrame(
    {
        "duration_s": [1.0, 1, 2, 3, 3, 3, 4, 5, 5, 6],
        "cause": [1, 2, 1, None, 1, 2, None, 2, 1, None],
    }
)
TRUNCATED = pl.DataFrame(
    {
        "entry_s": [0.0, 0, 0, 1, 2, 2, 3, 4],
        "duration_s": [3.0, 5, 6, 4, 7, 8, 9, 9],
        "ended": [True, False, True, True, True, False, True, False],
    }
)
# R's own test of survfit quantiles; the second row has no status and is dropped there.
FLAT = pl.DataFrame(
    {"duration_s": [9.0, 1, 1, 6, 6, 8, 10], "ended": [True, True, False, True, True, False, False]}
)


def read_aml(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "aml.csv").select(
        duration_s="time", ended=pl.col("status") == 1, arm="x"
    )


def read_lung(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "lung.csv").select(
        duration_s="time", ended=pl.col("status") == 2, sex="sex"
    )


def read_mgus2(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "mgus2_competing.csv").select(
        duration_s="time", cause=pl.when(pl.col("event") > 0).then("event")
    )


def at(curve: pl.DataFrame, duration_s: float) -> dict[str, float]:
    """The step of a curve that holds at a duration."""
    return curve.filter(pl.col("duration_s") <= duration_s).row(-1, named=True)


def slow_incidence(rows, cause):
    """Incidence and variance at each distinct duration, by the formula, term by term.

    ``rows`` are (entry, duration, cause or None).
    """
    found = []
    moments = sorted({duration for _, duration, _ in rows})
    steps, alive = [], 1.0
    for moment in moments:
        n = sum(entry < moment <= duration for entry, duration, _ in rows)
        d = sum(duration == moment and why is not None for _, duration, why in rows)
        d_k = sum(duration == moment and why == cause for _, duration, why in rows)
        steps.append((n, d, d_k, alive))
        alive *= 1 - d / n
    incidence = 0.0
    upto = []
    for i, (n, _, d_k, before) in enumerate(steps):
        incidence += before * d_k / n
        upto.append(incidence)
        variance = 0.0
        for (m, e, e_k, s), f in zip(steps[: i + 1], upto, strict=True):
            gap = incidence - f
            variance += gap**2 * e / (m * (m - e)) if m > e else 0.0
            variance += s**2 * e_k * (m - e_k) / m**3 - 2 * gap * s * e_k / m**2
        found.append((moments[i], incidence, max(variance, 0.0) ** 0.5))
    return found


def slow_logrank(*strata):
    """Chi-square of two groups, by observed minus expected at each end; None without spread.

    Of each stratum the rows are (entry, duration, ended, is_first).
    """
    scores = [_slow_scores(rows) for rows in strata]
    u, v = (sum(part) for part in zip(*scores, strict=True))
    return u * u / v if v > 1e-12 else None


def _slow_scores(rows):
    """Observed minus expected ends of the first group, and the variance of that."""
    u = v = 0.0
    for moment in sorted({duration for _, duration, ended, _ in rows if ended}):
        at_risk = [row for row in rows if row[0] < moment <= row[1]]
        n, n_1 = len(at_risk), sum(row[3] for row in at_risk)
        ends = [row for row in at_risk if row[1] == moment and row[2]]
        d, d_1 = len(ends), sum(row[3] for row in ends)
        u += d_1 - n_1 * d / n
        v += n_1 * (n - n_1) * d * (n - d) / (n * n * (n - 1)) if n > 1 else 0.0
    return u, v

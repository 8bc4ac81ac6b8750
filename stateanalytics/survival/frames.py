"""The frames that functions on durations return."""

from __future__ import annotations

from stateanalytics.core.schema import ENTITY_KEY, Entities, EntityKey, Spells
from stateanalytics.core.shapes import Anything, Columns, Integer, Moment, Real, Text, YesNo, frame


class Compare(Columns, key=("dimension", "value", "measure", "method")):
    """One measure of one value (a model, say) against another, raw or adjusted."""

    dimension = Text("the column of the values that are compared")
    value = Text("the value that is judged")
    against = Text("the value that it is compared with")
    measure = Text("duration, completed, or hazard_ratio with `regression=True`")
    method = Text("raw, or adjusted for the mix of work")
    until_s = Real("the horizon of the comparison", unit="s")
    n_runs = Integer("runs of the value that were compared")
    n_units = Integer("independent units (invocations)")
    n_runs_against = Integer("runs of the other value that were compared")
    n_units_against = Integer("independent units of these runs")
    estimate = Real("value minus against in seconds or in shares, or the hazard ratio")
    low = Real("lower end of its 95 % interval")
    high = Real("upper end of its 95 % interval")
    p_value = Real("of the hypothesis of no difference; null: not tested")
    log_rank_p = Real("of a duration: p-value of the log-rank test, stratified where adjusted")
    compared = Real("share of the runs in strata that both values have")
    not_compared = Text("the largest strata that only one of the two has")
    q_value = Real("p-value adjusted for the number of comparisons; null: not tested")
    verdict = Text("higher, lower, no_difference, not_enough_data")
    is_reversed = YesNo("raw and adjusted differ in direction, both significantly")
    in_words = Text("the row as a sentence")


class CompletionTimes(Columns, key=("<by>", "duration_s")):
    """One distinct duration of the runs of a group that complete."""

    by = Anything("each column that `by` names, as it is in the input", name="<by>")
    duration_s = Real("a distinct duration", unit="s")
    share = Real("share of the completing runs that have completed by this duration")
    share_se = Real("its standard error")
    share_low = Real("lower end of its 95 % interval; null: the share is 0 or 1")
    share_high = Real("upper end of its 95 % interval; null: the share is 0 or 1")
    horizon_s = Real("longest duration of the group", unit="s")


class KaplanMeier(Columns, key=("<by>", "duration_s")):
    """One distinct duration of a group."""

    by = CompletionTimes.by
    duration_s = Real("a distinct duration", unit="s")
    n_at_risk = Integer("spells under observation just before this duration")
    n_events = Integer("spells that ended at this duration")
    survival = Real("probability to be still open after this duration")
    survival_se = Real("its standard error; null: at 0, or fewer than 5 units of several spells")
    survival_low = Real("lower end of its 95 % interval; null: not defined there")
    survival_high = Real("upper end of its 95 % interval; null: not defined there")
    from_s = Real("duration at which the curve begins; null: too few were ever at risk", unit="s")
    n_units = Integer("independent units (invocations) behind the curve")


class CumulativeIncidence(Columns, key=("<by>", "cause", "duration_s")):
    """One cause at one distinct duration of a group."""

    by = CompletionTimes.by
    cause = Text("the way to end; the column that `cause=` names")
    duration_s = Real("a distinct duration", unit="s")
    incidence = Real("probability to have ended this way by this duration")
    incidence_se = Real("its standard error by unit")
    incidence_low = Real("lower end of its 95 % interval; null: not defined there")
    incidence_high = Real("upper end of its 95 % interval; null: not defined there")
    from_s = KaplanMeier.from_s
    n_units = Integer("independent units (invocations) behind the curve")


class DurationChange(Columns, key=("dimension", "value", "measure")):
    """One measure of one group: this window against the one before."""

    dimension = Text("the column of the values that are compared; `all`: every run")
    value = Text("the value that is compared with itself; null: every run")
    measure = Text("duration, failed, timed_out, completed")
    n_before = Integer("runs (of a duration) or ends of that kind (of a rate) in the window before")
    n_now = Integer("the same in this window")
    before = Real("median in seconds, or ends per run-hour, before; null: not identified")
    now = Real("the same in this window")
    ratio = Real("now over before; null: one of the two is not known")
    ratio_low = Real("lower end of its 95 % interval")
    ratio_high = Real("upper end of its 95 % interval")
    p_value = Compare.p_value
    q_value = Compare.q_value
    verdict = Text("worse, better, no_difference, not_enough_data")
    in_words = Compare.in_words


class ImplicitTimeouts(Columns, key=("<by>", "at_s")):
    """One undeclared limit: many ends at the same second."""

    by = CompletionTimes.by
    at_s = Integer("the duration, in whole seconds", unit="s")
    n_at = Integer("ends within a second of it")
    n_ended = Integer("ends of the group that were tested")
    expected = Real("ends to expect there, by the rate around it")
    p_value = Real("probability of so many ends without a limit")
    q_value = Real("p-value adjusted for the number of seconds tested")
    in_words = Compare.in_words


class Logrank(Columns, key=("<within>",)):
    """One test of whether groups have the same curve."""

    within = Anything(
        "each column that `within` names; by default none and one row", name="<within>"
    )
    statistic = Real("chi-square by unit; null: too few groups or units")
    df = Integer("degrees of freedom")
    p_value = Real("p-value of the hypothesis that all have the same curve; null: not tested")
    n_groups = Integer("groups")
    n_events = Integer("ends")
    n_units = Compare.n_units


class NeverEnding(Columns, key=("<by>",)):
    """The runs of one group that never end."""

    by = CompletionTimes.by
    share = Real("share that never ends; null: not identified")
    share_low = Real("lower end of its 95 % interval; null: not identified")
    share_high = Real("upper end of its 95 % interval, which may be known alone")
    n_units = Compare.n_units
    n_watched = Integer("units still under observation after `watched_s`")
    watched_s = Real("duration after which ends would have been seen", unit="s")
    last_end_s = Real("longest duration at which one ended", unit="s")
    is_identified = YesNo("do the data reach far enough to decide")
    in_words = Compare.in_words


class Quantiles(Columns, key=("<by>", "prob")):
    """One quantile of the duration of one group."""

    by = CompletionTimes.by
    prob = Real("which quantile, 0 to 1; 0.5 is the median")
    duration_s = Real("the quantile; null: the data end before it", unit="s")
    duration_low_s = Real("lower end of its 95 % interval; null: not reached", unit="s")
    duration_high_s = Real("upper end of its 95 % interval; null: not reached", unit="s")
    n_events = Integer("ends behind it")
    n_units = Compare.n_units
    is_identified = NeverEnding.is_identified
    in_words = Compare.in_words


class RestrictedMean(Columns, key=("<by>",)):
    """The mean duration of one group up to a horizon."""

    by = CompletionTimes.by
    until_s = Real("the horizon", unit="s")
    mean_s = Real("mean duration, each counted up to the horizon; null: not identified", unit="s")
    mean_se = Real("its standard error; null: not known, or nothing varies", unit="s")
    mean_low_s = Real("lower end of its interval", unit="s")
    mean_high_s = Real("upper end of its interval", unit="s")
    longest_s = Real("longest duration in the data", unit="s")
    is_identified = NeverEnding.is_identified


class SlowThresholds(Columns, key=("<by>", "threshold_s")):
    """One threshold of "slow" in one group."""

    by = CompletionTimes.by
    threshold_s = Real("a run is slow once it is older than this", unit="s")
    known_as = Text("which rule uses this threshold today; null: none")
    n_runs = Integer("runs")
    n_flagged = Integer("runs that lasted longer than the threshold")
    n_finished_well = Integer("of these, completed")
    n_ended_otherwise = Integer("of these, ended otherwise, by a time limit included")
    n_open = Integer("of these, not ended")
    n_unknown = Integer("runs cut off before that age: not known")
    well = Real("of the flagged runs that have ended, the share that completed")
    well_low = Real("lower end of its 95 % interval, by unit (Wilson)")
    well_high = Real("upper end of its 95 % interval, by unit (Wilson)")
    healthy_flagged = Real(
        "share of all completing runs that the threshold flags; null: not identified"
    )
    healthy_flagged_low = Real("lower end of its 95 % interval")
    healthy_flagged_high = Real("upper end of its 95 % interval")
    horizon_s = Real("duration up to which that share is identified", unit="s")
    is_identified = NeverEnding.is_identified


class StateOccupancy(Columns, key=("<by>", "duration_s", "state")):
    """One state at one duration of a group."""

    by = CompletionTimes.by
    duration_s = Real("time since the start of the run", unit="s")
    state = Text("queued, running, waiting, blocked, retrying, stalled, or how it ended")
    n_in_state = Integer("runs observed in this state just before")
    share = Real("probability to be in this state; those of one duration add up to 1")
    share_se = CompletionTimes.share_se
    share_low = CompletionTimes.share_low
    share_high = CompletionTimes.share_high
    recover = Real(
        "of the runs that wait or stall in this state, the share that resume or complete next; "
        "null: other states, or without `at_s`"
    )
    recover_low = Real("lower end of its 95 % interval")
    recover_high = Real("upper end of its 95 % interval")
    n_units = Integer("independent units (invocations) behind the row; null: not known")


class StretchesOf(EntityKey, key=(*ENTITY_KEY, "from_s")):
    """One period of a run in one state."""

    session_id = Spells.session_id
    invocation_id = Entities.invocation_id
    show_id = Spells.show_id
    kind = Entities.kind
    project = Entities.project
    agent = Entities.agent
    model = Entities.model
    playbook = Entities.playbook
    born_at = Moment("when the run began")
    state = StateOccupancy.state
    from_s = Real("start of the period, since the run began", unit="s")
    until_s = Real("end of the period, or when it was censored", unit="s")
    next_state = Text("the state that followed; null: not observed")


class TimeoutCandidates(Columns, key=("<by>", "candidate_s")):
    """One candidate for a time limit in one group."""

    by = CompletionTimes.by
    candidate_s = Real("the limit that is tried", unit="s")
    is_today = YesNo("is it the most common limit of the newest runs of the group, or inferred")
    n_runs = Compare.n_runs
    n_longer = Integer("runs that took longer")
    completed = Real("share of runs that complete under this limit; null: not identified")
    completed_low = Real("lower end of its 95 % interval")
    completed_high = Real("upper end of its 95 % interval")
    cut = Real("share of runs that this limit stops; null: not identified")
    cut_low = Real("lower end of its 95 % interval")
    cut_high = Real("upper end of its 95 % interval")
    run_hours = Real("mean time that a run takes under this limit", unit="h")
    gained_per_hour = Real("completions per extra run-hour since the candidate before")
    rescued = Real(
        "share of the runs stopped by today's limit that would have completed; null: up to "
        "today's limit, or fewer than five had a longer one"
    )
    rescued_low = Real("lower end of its 95 % interval")
    rescued_high = Real("upper end of its 95 % interval")
    is_identified = NeverEnding.is_identified
    identified_until_s = Real(
        "duration up to which the data identify it; null: unlimited", unit="s"
    )
    in_words = Compare.in_words


def fixed_columns(columns: type[Columns]) -> tuple[str, ...]:
    """Names of the columns of a frame, without those that the call chooses (``<by>``).

    Examples
    --------
    >>> fixed_columns(RestrictedMean)
    ('until_s', 'mean_s', 'mean_se', 'mean_low_s', 'mean_high_s', 'longest_s', 'is_identified')
    """
    return tuple(name for name in frame(columns).dtypes if not name.startswith("<"))


_OTHERS = (
    *(Compare, CompletionTimes, KaplanMeier),
    *(CumulativeIncidence, DurationChange, ImplicitTimeouts, Logrank),
    *(NeverEnding, Quantiles, RestrictedMean, SlowThresholds, StateOccupancy),
    *(StretchesOf, TimeoutCandidates),
)
FRAMES = tuple(map(frame, _OTHERS))

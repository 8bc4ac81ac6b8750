"""The frames that functions on thresholds return."""

from __future__ import annotations

from stateanalytics.core.shapes import Columns, Integer, Moment, Real, Text, YesNo, frame
from stateanalytics.detectors.frames import QualityOfService


class Advice(Columns, key=("name",)):
    """What one threshold should be: `.frame` of `recommend`."""

    name = Text("the threshold")
    system = Text("the system that uses it")
    kind = Text("kind of work that it applies to; null: every kind")
    place = Text("where it is set")
    setting = Text("what it is called there")
    meaning = Text("what it does")
    today_s = Real("its value today; null: none is set", unit="s")
    recommended_s = Real("the recommended value; null: none, see `verdict`", unit="s")
    bound_s = Real(
        "where only the direction is known: the value nearest to today's that costs less", unit="s"
    )
    best_s = Real("the value that costs least; null: not known", unit="s")
    best_low_s = Real("lower end of the values not significantly worse than the best", unit="s")
    best_high_s = Real("upper end of these values; null: it may be beyond the data", unit="s")
    mistakes_today = Real("mistakes at today's value, in the unit of `per`")
    mistakes_recommended = Real("mistakes at the recommended value")
    loss_today = Real(
        "cost of today's value in minutes of attention, in the unit of `per`", unit="min"
    )
    loss_recommended = Real("cost of the recommended value", unit="min")
    gain = Real(
        "what the recommended value saves, else the bound, else the best; null: unknown", unit="min"
    )
    gain_low = Real("lower end of its interval", unit="min")
    gain_high = Real("upper end of its interval; null: not known", unit="min")
    best_if_half_s = Real("the best value if a mistake cost half as much", unit="s")
    excess_if_half = Real("excess cost of the recommended value in that case, as a share")
    best_if_double_s = Real("the best value if a mistake cost twice as much", unit="s")
    excess_if_double = Real("excess cost of the recommended value in that case, as a share")
    borrowed_low_s = Real("lower end of the interval of `borrowed_s`", unit="s")
    borrowed_s = Real(
        "`healthy_upper_s` estimated from other kinds: for context, not used", unit="s"
    )
    borrowed_high_s = Real("upper end of the interval of `borrowed_s`", unit="s")
    per = Text("what mistakes and losses are counted per")
    n = Integer("independent units (invocations) with a run that ended well, or a healthy silence")
    n_needed = Integer("units that `healthy_upper_s` needs")
    n_more = Integer("about how many more of them would decide; null: decided, or cannot tell")
    n_deaths = Integer("deaths, of all kinds where its own are fewer than 5; null: not needed")
    n_at_risk = Integer("all units under observation at the recommended value, else at the best")
    n_kinds_borrowed = Integer("other kinds behind `borrowed_s`")
    n_effective = Real("effective sample size (Kish)")
    healthy_upper_s = Real(
        "upper bound of 95 or 99 % of healthy work; null: too little data", unit="s"
    )
    covering_s = Real(
        "limit that one more healthy unit exceeds with a chance of at most 5 %; null: too few",
        unit="s",
    )
    right_price_low = Real(
        "today's value is the cheapest only if a mistake costs this or more", unit="min"
    )
    right_price_high = Real("and at most this; null: no limit", unit="min")
    right_deaths_low = Real(
        "where too few deaths are known: the deaths per 100 session-hours from which it is"
    )
    right_deaths_high = Real("and up to which; null: no limit")
    reached_s = Real("longest candidate that enough units reached to recommend it", unit="s")
    outlasting = Real("share of the units that would last longer")
    is_mixed = YesNo("do the newest runs have several limits, of which today's is the most common")
    flips = YesNo("does the verdict change if some single unit is excluded")
    verdict = Text(
        "change, choose, raise, lower, keep, cannot_tell, not_identified, not_enough_data"
    )
    in_words = Text("the row as a sentence")


class AdviceCurves(Columns, key=("name", "threshold_s")):
    """One candidate for one threshold: `.curves` of `recommend`."""

    name = Advice.name
    system = Advice.system
    kind = Advice.kind
    per = Advice.per
    mistake = Text("what a mistake is: false_alarm, lost_run")
    threshold_s = Real("the candidate", unit="s")
    mistakes = Real("mistakes at it, in the unit of `per`")
    waiting_h = Real("hours of waiting for those that are dead or stopped", unit="h")
    price = Real("cost of a mistake in minutes of attention", unit="min")
    hour = Real("cost of an hour of waiting", unit="min")
    loss = Real("cost of both together", unit="min")
    loss_low = Real("lower end of its interval", unit="min")
    loss_high = Real("upper end of its interval", unit="min")
    is_today = YesNo("is it today's value")
    is_best = YesNo("is it the cheapest")
    is_recommended = YesNo("is it recommended")


class Stale(QualityOfService, key=("<by>", "threshold_s")):
    """The performance of one threshold of silence in one group, with today's values marked."""

    n_flagged = Integer("silences longer than the threshold, whatever followed")
    constants = Text("names of today's thresholds with this value, joined by ', '; null: none")
    is_today = YesNo("is it today's value of any")


class Covering(Columns, key=("<by>",)):
    """A limit for one group of work that stops few runs that would end well."""

    by = QualityOfService.by
    loses = Real("chance that one more invocation that would end well exceeds the limit")
    limit_s = Real("the limit, rounded up; null: too few, or too many were stopped", unit="s")
    n = Integer("invocations that ended well, or were stopped or still run")
    n_needed = Integer("invocations needed")
    n_censored = Integer("those with a run that was stopped or still runs")
    in_words = Text("the row as a sentence")


class Review(Columns, key=("name", "measure")):
    """One measure of one changed threshold: before, promised, since."""

    name = Advice.name
    system = Advice.system
    kind = Advice.kind
    changed_at = Moment("the first start under the new value, or as given")
    before_s = Real("its value before", unit="s")
    after_s = Real("its value since", unit="s")
    measure = Text("what is counted: false_alarms, closed, saved")
    per = Text("the denominator: 100 session-hours alive, or 100 runs")
    n_units_before = Integer("invocations before the change")
    n_units = Integer("invocations since")
    before = Real("the rate before, at the old value; null: not measured")
    promised = Real("the rate that the data before predict at the new value; null: not known")
    promised_low = Real("lower end of its 95 % interval, by unit")
    promised_high = Real("upper end of its 95 % interval, by unit")
    since = Real("the rate since, at the new value")
    since_low = Real("lower end of its 95 % interval, by unit")
    since_high = Real("upper end of its 95 % interval, by unit")
    verdict = Text("as_promised, not_as_promised, cannot_tell")
    in_words = Advice.in_words


ADVICE, ADVICE_CURVES, STALE, COVERING, REVIEW = FRAMES = tuple(
    map(frame, (Advice, AdviceCurves, Stale, Covering, Review))
)

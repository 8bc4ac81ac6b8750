"""The frames that functions on detectors return."""

from __future__ import annotations

from stateanalytics.core.schema import ENTITY_KEY, Entities, EntityKey
from stateanalytics.core.shapes import (
    Anything,
    Columns,
    Integer,
    Moment,
    Real,
    Text,
    Words,
    YesNo,
    frame,
)


class Detectors(Columns, key=("name",)):
    """One rule that calls work stale, stuck, slow or dead."""

    name = Text("its name in tables and charts")
    known_as = Text("its number in the catalogue of its system")
    family = Text("which catalogue, or `yours`")
    question = Text("what it claims: stale, stuck, slow, dead, overdue, …")
    system = Text("the system that it reads rows of; null: every system")
    entity_types = Text("what it is about")
    since = Text("the release or day it began with")
    until = Text("the release or day it ended with; null: current")
    origin = Text("where it is defined in the code")
    page = Text("the page that shows its result")
    construct = Text("what it measures: silence, elapsed, write, liveness, …")
    measures = Text("the sign that it compares; null: it compares none")
    comparison = Text("> or >=; null: it compares nothing")
    threshold_s = Real("its limit, for kinds without one of their own", unit="s")
    threshold = Text("its limits in words")
    upper_s = Real("it fires only below this", unit="s")
    liveness = Text("how it treats a process that was not checked")
    clock = Text("which clock it reads")
    scope = Text("which rows it covers, in words")
    inputs = Text("the columns it reads")
    rule = Text("the rule in words")
    label = Text("the word that people saw; null: several")
    is_offline = YesNo("can it be evaluated from data alone")
    is_default = YesNo("is it used when no detectors are named")
    has_alarms = YesNo("can its alarms be derived for the whole history")
    why_not = Text("why it cannot be evaluated")


DETECTORS = frame(Detectors)


class DetectorKey(EntityKey):
    """One entity and one detector."""

    session_id = Text("the session that does the work; else the entity's own id")
    kind = Text("kind of work")
    detector = Text("which rule")


class Detections(DetectorKey, key=(*ENTITY_KEY, "detector", "at")):
    """The result of one detector for one entity at one instant."""

    at = Moment("the instant of the evaluation")
    covered = YesNo("does it evaluate this row at all; not covered never means fine")
    fires = YesNo("does it flag the row; null: not covered, or not knowable")
    is_knowable = YesNo("do the data of that instant still exist")
    label = Text("the word it would show; null: it does not fire")
    measured_s = Real("the time that it compared; null: none", unit="s")
    threshold_s = Real("the limit that it compared it with", unit="s")
    input = Text("the sign of life that it compared")
    why = Text("what was compared, or why nothing was, in words")


DETECTIONS = frame(Detections)


class Alarms(DetectorKey, key=(*ENTITY_KEY, "detector", "started_at")):
    """One period in which a detector of silence or age fired."""

    label = Text("the word it shows")
    sign_at = Moment("the sign of life, or start, from which it counts")
    started_at = Moment("when it began to fire: sign_at plus the threshold")
    ended_at = Moment("when it stopped firing; if censored: as-of")
    duration_s = Real("how long it fired; if censored: up to as-of", unit="s")
    is_censored = YesNo("did it still fire at as-of")
    ended_by = Text("sign of life, end, range (too old for the rule), as-of")
    threshold_s = Real("its limit", unit="s")


ALARMS = frame(Alarms)


class AgreementPairs(Columns, key=("a", "b")):
    """How well two detectors agree."""

    a = Text("a detector")
    b = Text("another one")
    n = Integer("units that both cover")
    n_uncovered = Integer("units that one of the two does not cover")
    n_clusters = Integer("sessions that the units belong to")
    n_both = Integer("both fire")
    n_only_a = Integer("only a fires")
    n_only_b = Integer("only b fires")
    n_neither = Integer("neither fires")
    raw_agreement = Real("share of units they agree on; null: no unit")
    kappa = Real("Cohen's kappa; null: nothing could differ")
    kappa_low = Real("Cohen's kappa, lower end of its interval over sessions")
    kappa_high = Real("Cohen's kappa, upper end of its interval over sessions")
    mcc = Real("Matthews correlation coefficient; null: nothing could differ")
    mcc_low = Real("Matthews correlation coefficient, lower end of its interval over sessions")
    mcc_high = Real("Matthews correlation coefficient, upper end of its interval over sessions")
    ac1 = Real("Gwet's AC1; null: nothing could differ")
    ac1_low = Real("Gwet's AC1, lower end of its interval over sessions")
    ac1_high = Real("Gwet's AC1, upper end of its interval over sessions")
    pabak = Real("prevalence- and bias-adjusted kappa; null: nothing could differ")
    pabak_low = Real("prevalence- and bias-adjusted kappa, lower end of its interval over sessions")
    pabak_high = Real(
        "prevalence- and bias-adjusted kappa, upper end of its interval over sessions"
    )
    mcnemar_p = Real("exact p-value of the hypothesis that they fire equally often")
    mcnemar_mid_p = Real("the same as mid-p-value, less conservative")


AGREEMENT = frame(AgreementPairs)


class AgreementOverall(Columns):
    """How well all detectors together agree."""

    n_units = Integer("units that at least two cover")
    n_detectors = Integer("detectors that cover anything")
    n_complete = Integer("units that all detectors cover")
    fleiss_kappa = Real("over the complete units; null: none, or no variation")
    krippendorff_alpha = Real("over all units, gaps excluded")
    cochran_q = Real("do they fire equally often, over complete units")
    cochran_df = Integer("its degrees of freedom; null: not tested")
    cochran_p = Real("its probability")


AGREEMENT_OVERALL = frame(AgreementOverall)


class DisagreementRows(EntityKey, key=(*ENTITY_KEY, "at", "a", "b")):
    """One entity that one detector flags and another does not."""

    session_id = Text("the session that does the work; else the entity's own id")
    kind = Text("kind of work")
    at = Moment("the instant")
    a = Text("the detector that fires")
    b = Text("the one that does not")
    label_a = Text("the word of the first")
    says_b = Text("fine, or does not cover it")
    cause = Text("why: one of `CAUSES`")
    measured_a_s = Real("the time that a compared", unit="s")
    threshold_a_s = Real("the limit of a", unit="s")
    measured_b_s = Real("the time that b compared", unit="s")
    threshold_b_s = Real("the limit of b", unit="s")
    words = Text("the cause as a sentence")


DISAGREEMENTS = frame(DisagreementRows)


class DisagreementCauses(Columns, key=("a", "b", "cause")):
    """One cause why two detectors disagree, over all entities."""

    a = Text("the detector that fires")
    b = Text("the one that does not")
    label_a = Text("the word of the first, the most frequent one")
    cause = Text("why")
    n = Integer("entities")
    n_pair = Integer("entities that a flags and b does not, for any cause")
    n_a = Integer("all entities that a flags")
    n_b = Integer("all entities that b flags")
    share = Real("n as a share of n_pair")
    is_same_page = YesNo("were both shown on one page at the same time")
    example_type = Text("entity type of the clearest example")
    example_id = Text("the clearest example")
    words = Text("that example in words")


DISAGREEMENT_CAUSES = frame(DisagreementCauses)


class Intersections(Columns, key=("rank", "detector")):
    """One detector in one set of detectors that flag the same rows."""

    rank = Integer("place of the set, 1 for the largest")
    n = Integer("rows that exactly these detectors flag")
    n_members = Integer("detectors in the set")
    detector = Text("one of all detectors that flag anything")
    is_member = YesNo("does this one flag these rows")
    n_flagged = Integer("rows that this one flags at all")


INTERSECTIONS = frame(Intersections)


class DetectionUnits(EntityKey, key=(*ENTITY_KEY, "at")):
    """One entity at the instant of the evaluation: `.units` of `detect`."""

    at = Detections.at
    session_id = Entities.session_id
    kind = Entities.kind


class DetectionAnswers(Columns):
    """The same entity in `.fires`, `.covered` and `.is_knowable` of `detect`."""

    detector = YesNo(
        "a column per detector: does it fire, does it cover the entity, do the data exist",
        name="<detector>",
    )


class GapSums(Columns, key=("<by>", "threshold_s")):
    """The sums over the silences of one group at one threshold."""

    by = Anything("each column that `by` names, as it is in the input", name="<by>")
    threshold_s = Real("longer silences are flagged", unit="s")
    n_gaps = Integer("silences")
    n_mistakes = Integer("flagged, and closed by a sign of life")
    mistaken_us = Integer("how long these were flagged", unit="us")
    alive_us = Integer("time proven alive", unit="us")
    suspected_us = Integer("the part of it that was flagged", unit="us")
    n_ended = Integer("last silences closed by an end that the run wrote itself")
    n_ended_flagged = Integer("of these, flagged")
    n_cut_off = Integer("last silences cut off at as-of, or by an end that proves nothing")
    n_cut_off_flagged = Integer("of these, flagged")
    n_dead = Integer("runs found dead")
    n_found = Integer("of these, flagged before anything else recorded the end")
    late_us = Integer("how much later than that the others are flagged", unit="us")


class QualityOfService(Columns, key=("<by>", "threshold_s")):
    """The performance of one threshold of silence in one group."""

    by = GapSums.by
    threshold_s = Real("longer silences are flagged", unit="s")
    n_gaps = GapSums.n_gaps
    alive_s = Real("time proven alive", unit="s")
    n_mistakes = GapSums.n_mistakes
    mistakes_per_100h = Real("mistakes in 100 hours alive; null: no time alive")
    mistakes_per_100h_low = Real("lower end of its 95 % interval (exact Poisson)")
    mistakes_per_100h_high = Real("upper end of its 95 % interval")
    mistake_recurrence_s = Real(
        "mean time from one mistake to the next; null: no mistake", unit="s"
    )
    mean_mistake_s = Real("mean length of a mistake; null: no mistake", unit="s")
    query_accuracy = Real("share of the time alive without a flag")
    n_dead = GapSums.n_dead
    n_found = GapSums.n_found
    share_found = Real("share of the dead that were flagged first")
    share_found_low = Real("lower end of its 95 % interval (Wilson)")
    share_found_high = Real("upper end of its 95 % interval")
    detection_low_s = Real(
        "lower bound of the mean time from death to flag; null: no death found", unit="s"
    )
    detection_high_s = Real(
        "upper bound of the mean time from death to flag; null: no death found", unit="s"
    )
    n_ended = GapSums.n_ended
    n_ended_flagged = GapSums.n_ended_flagged
    n_cut_off = GapSums.n_cut_off
    n_cut_off_flagged = GapSums.n_cut_off_flagged


class SilenceGaps(EntityKey, key=(*ENTITY_KEY, "started_at")):
    """One silence of one session."""

    by = Anything("each column that `by` names, as it is in `entities`", name="<by>")
    started_at = Moment("begin of the silence")
    ended_at = Moment("end of the silence, or where it was cut off")
    gap_s = Real("its length", unit="s")
    closed_by = Words(("sign_of_life", "own_end", "death", "other_end", "as_of"), "what closed it")
    is_last = YesNo("is it the last silence of an attempt")
    is_censored = YesNo("could it have lasted longer than observed")
    is_dead = YesNo("did the run die in it")
    dead_known_at = Moment("when the death was noticed; null: no death")
    left_out = Text("why it is excluded; null: it is not")


_OTHERS = (DetectionUnits, DetectionAnswers, GapSums, QualityOfService, SilenceGaps)
FRAMES = (
    *(DETECTORS, DETECTIONS, ALARMS, AGREEMENT, AGREEMENT_OVERALL),
    *(DISAGREEMENTS, DISAGREEMENT_CAUSES),
    *map(frame, _OTHERS),
    INTERSECTIONS,
)

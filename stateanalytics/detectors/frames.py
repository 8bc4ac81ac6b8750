"""The frames of detectors: each a row, a key and columns, like those of `schema`."""

from __future__ import annotations

from stateanalytics.core import schema
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Column

_ENTITY = (
    *schema.KEY_COLUMNS,
    Column("session_id", TEXT, "the session that does the work; else the entity's own id"),
    Column("kind", TEXT, "kind of work"),
)

DETECTORS = schema.Frame(
    "detectors",
    "one rule that calls work stale, stuck, slow or dead",
    ("name",),
    (
        Column("name", TEXT, "what tables and charts call it"),
        Column("known_as", TEXT, "its number in the catalogue of its system"),
        Column("family", TEXT, "which catalogue, or `yours`"),
        Column("question", TEXT, "what it claims: stale, stuck, slow, dead, overdue, …"),
        Column("system", TEXT, "whose rows it reads; null: everyone's"),
        Column("entity_types", TEXT, "what it is about"),
        Column("since", TEXT, "the release or day it began with"),
        Column("until", TEXT, "the release or day it ended with; null: still there"),
        Column("origin", TEXT, "where it stands in the code"),
        Column("page", TEXT, "where people see what it says"),
        Column("construct", TEXT, "what it looks at: silence, elapsed, write, liveness, …"),
        Column("measures", TEXT, "the sign that it compares; null: it compares none"),
        Column("comparison", TEXT, "> or >=; null: it compares nothing"),
        Column("threshold_s", REAL, "its limit, of kinds without one of their own", "s"),
        Column("threshold", TEXT, "its limits in words"),
        Column("upper_s", REAL, "it fires only below this", "s"),
        Column("liveness", TEXT, "what it makes of a process nobody looked for"),
        Column("clock", TEXT, "whose clock it reads"),
        Column("scope", TEXT, "which rows it looks at, in words"),
        Column("inputs", TEXT, "the columns it reads"),
        Column("rule", TEXT, "the rule in words"),
        Column("label", TEXT, "the word people saw; null: several"),
        Column("is_offline", YES_NO, "can it be evaluated from data alone"),
        Column("has_alarms", YES_NO, "can its alarms be told for the whole history"),
        Column("why_not", TEXT, "why it cannot be evaluated"),
    ),
)

DETECTIONS = schema.Frame(
    "detections",
    "what one detector says of one entity at one instant",
    (*schema.ENTITY_KEY, "detector", "at"),
    (
        *_ENTITY,
        Column("detector", TEXT, "which rule"),
        Column("at", MOMENT, "the instant it was asked about"),
        Column("covered", YES_NO, "does it look at this row at all; not covered never means fine"),
        Column("fires", YES_NO, "null where not covered, or not knowable"),
        Column("is_knowable", YES_NO, "do the data of that instant still exist"),
        Column("label", TEXT, "the word it would show; null where it does not fire"),
        Column("measured_s", REAL, "what it compared; null: nothing, or never", "s"),
        Column("threshold_s", REAL, "what with", "s"),
        Column("input", TEXT, "the sign it compared"),
        Column("why", TEXT, "in words: what was compared, or why nothing was"),
    ),
)

ALARMS = schema.Frame(
    "alarms",
    "one stretch of time for which a detector of silence or age was on",
    (*schema.ENTITY_KEY, "detector", "started_at"),
    (
        *_ENTITY,
        Column("detector", TEXT, "which rule"),
        Column("label", TEXT, "the word it shows"),
        Column("sign_at", MOMENT, "the sign of life, or start, that its clock counts from"),
        Column("started_at", MOMENT, "that, and the threshold"),
        Column("ended_at", MOMENT, "when it went off; censored: as-of"),
        Column("duration_s", REAL, "how long it was on, censored ones so far", "s"),
        Column("is_censored", YES_NO, "was it still on at as-of"),
        Column("ended_by", TEXT, "sign of life, end, range (too old for the rule), as-of"),
        Column("threshold_s", REAL, "its limit", "s"),
    ),
)

_CELLS = (
    Column("n", INTEGER, "units that both cover"),
    Column("n_uncovered", INTEGER, "units that one of them does not cover"),
    Column("n_clusters", INTEGER, "sessions that the units belong to"),
    Column("n_both", INTEGER, "both fire"),
    Column("n_only_a", INTEGER, "only a fires"),
    Column("n_only_b", INTEGER, "only b fires"),
    Column("n_neither", INTEGER, "neither fires"),
)

AGREEMENT = schema.Frame(
    "agreement",
    "how far two detectors agree",
    ("a", "b"),
    (
        Column("a", TEXT, "a detector"),
        Column("b", TEXT, "another one"),
        *_CELLS,
        Column("raw_agreement", REAL, "share of units they agree on; null: no unit"),
        *(
            Column(f"{score}{end}", REAL, f"{meaning}{of}")
            for score, meaning in (
                ("kappa", "Cohen's kappa"),
                ("mcc", "Matthews' correlation"),
                ("ac1", "Gwet's AC1"),
                ("pabak", "prevalence- and bias-adjusted kappa"),
            )
            for end, of in (
                ("", "; null: nothing could differ"),
                ("_low", ", lower end of its interval over sessions"),
                ("_high", ", upper end of its interval over sessions"),
            )
        ),
        Column("mcnemar_p", REAL, "exact probability that they fire equally often"),
        Column("mcnemar_mid_p", REAL, "the same, less cautious"),
    ),
)

AGREEMENT_OVERALL = schema.Frame(
    "agreement_overall",
    "how far all detectors together agree",
    (),
    (
        Column("n_units", INTEGER, "units that at least two cover"),
        Column("n_detectors", INTEGER, "detectors that cover anything"),
        Column("n_complete", INTEGER, "units that all of them cover"),
        Column("fleiss_kappa", REAL, "over the complete units; null: none, or all alike"),
        Column("krippendorff_alpha", REAL, "over all units, gaps left out"),
        Column("cochran_q", REAL, "do they fire equally often, over complete units"),
        Column("cochran_df", INTEGER, "its degrees of freedom"),
        Column("cochran_p", REAL, "its probability"),
    ),
)

DISAGREEMENTS = schema.Frame(
    "disagreements",
    "one entity that one detector flags and another does not",
    (*schema.ENTITY_KEY, "at", "a", "b"),
    (
        *_ENTITY,
        Column("at", MOMENT, "the instant"),
        Column("a", TEXT, "the detector that fires"),
        Column("b", TEXT, "the one that does not"),
        Column("label_a", TEXT, "the word of the first"),
        Column("says_b", TEXT, "fine, or does not look"),
        Column("cause", TEXT, "why: one of `CAUSES`"),
        Column("measured_a_s", REAL, "what a compared", "s"),
        Column("threshold_a_s", REAL, "what with", "s"),
        Column("measured_b_s", REAL, "what b compared", "s"),
        Column("threshold_b_s", REAL, "what with", "s"),
        Column("words", TEXT, "the cause as a sentence"),
    ),
)

DISAGREEMENT_CAUSES = schema.Frame(
    "disagreement_causes",
    "one cause why two detectors disagree, over all entities",
    ("a", "b", "cause"),
    (
        Column("a", TEXT, "the detector that fires"),
        Column("b", TEXT, "the one that does not"),
        Column("label_a", TEXT, "the word of the first, the most frequent one"),
        Column("cause", TEXT, "why"),
        Column("n", INTEGER, "entities"),
        Column("n_pair", INTEGER, "entities on which these two disagree this way round"),
        Column("n_a", INTEGER, "entities that a flags in all"),
        Column("n_b", INTEGER, "entities that b flags in all"),
        Column("share", REAL, "n of n_pair"),
        Column("is_same_page", YES_NO, "did both stand on one page at one time"),
        Column("example_type", TEXT, "entity type of the clearest example"),
        Column("example_id", TEXT, "the clearest example"),
        Column("words", TEXT, "that example in words"),
    ),
)

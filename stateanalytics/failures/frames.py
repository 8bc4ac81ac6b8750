"""The frames of failures that SQL can name, column by column."""

from __future__ import annotations

from stateanalytics.core.schema import (
    ENTITIES,
    ENTITY_KEY,
    INTEGER,
    MOMENT,
    REAL,
    TEXT,
    YES_NO,
    Column,
    Frame,
)

_CLUSTER = (
    Column("cluster_id", TEXT, "of code and template: the same next week and elsewhere"),
    Column("code", TEXT, "the reason code; null: none was stored"),
    Column("template", TEXT, "what messages share, <*> where they differ; null: nothing known"),
    Column("template_id", TEXT, "of the template alone, whatever the code"),
    Column("cause_group", TEXT, "what kind of thing went wrong; null: not known"),
)
_COSTS = (
    Column("run_s", REAL, "time of the work; null: not known", "s"),
    Column("n_tokens", INTEGER, "tokens read and written; null: not reported", "tokens"),
    Column("cost_usd", REAL, "cost; null: not reported, never free", "USD"),
)

FAILURES = Frame(
    "failures",
    "one failed or timed-out entity with the cluster it belongs to",
    ENTITY_KEY,
    (
        *ENTITIES.named(*ENTITY_KEY, "session_id", "invocation_id", "kind", "name"),
        *ENTITIES.named("agent", "model", "provider", "project", "playbook"),
        Column("outcome", TEXT, "failed, timed_out; aborted where its system calls that failed"),
        *_CLUSTER,
        Column("message", TEXT, "the stored reason in words, or the error text"),
        Column("cause", TEXT, "distinct cause: request and code; never null"),
        Column("incident_id", TEXT, "what it hangs together with; null: it stands alone"),
        Column("is_mass", YES_NO, "started when almost all that was started failed"),
        Column("failed_at", MOMENT, "when it ended"),
        Column("unit", TEXT, "the work whose costs these are; rows share it"),
        *_COSTS,
    ),
)

FAILURE_CLUSTERS = Frame(
    "failure_clusters",
    "one reason code and message template, ranked by what it cost",
    ("cluster_id",),
    (
        *_CLUSTER,
        Column("n_rows", INTEGER, "entities of every type but branches"),
        Column("n_failed", INTEGER, "of these, failed"),
        Column("n_timed_out", INTEGER, "of these, timed out"),
        Column("n_sessions", INTEGER, "sessions"),
        Column("n_causes", INTEGER, "distinct causes"),
        Column("n_incidents", INTEGER, "the same, those that hang together counted once"),
        Column("share", REAL, "of all distinct causes"),
        Column("share_low", REAL, "lower end of its 95 % interval (Wilson)"),
        Column("share_high", REAL, "upper end of its 95 % interval"),
        Column("first_at", MOMENT, "first failure"),
        Column("last_at", MOMENT, "last failure"),
        *_COSTS,
        Column("n_work", INTEGER, "pieces of work behind the costs, each once"),
        Column("n_run_unreported", INTEGER, "of these, of unknown length"),
        Column("n_tokens_unreported", INTEGER, "of these, without tokens"),
        Column("n_cost_unreported", INTEGER, "of these, without a cost"),
        Column("rank", INTEGER, "from 1: by cost_usd, run_s, n_causes, n_rows"),
        Column("example_shortest", TEXT, "the shortest message"),
        Column("example_median", TEXT, "the message of median length"),
        Column("example_newest", TEXT, "the newest message"),
        Column("systems", TEXT, "systems, joined by ', '"),
        Column("entity_types", TEXT, "types of entities, joined by ', '"),
        Column("meaning", TEXT, "what the code means; null: not in the registry"),
        Column("what_to_do", TEXT, "the operator's next step"),
    ),
)

"""The frames that functions on failures return; SQL can name the first two."""

from __future__ import annotations

from stateanalytics.core.schema import EFFORTS, ENTITY_KEY, Entities, EntityKey
from stateanalytics.core.shapes import (
    Anything,
    Columns,
    Day,
    Integer,
    Moment,
    Real,
    Text,
    Words,
    YesNo,
    frame,
)


class Named(Columns):
    """A cluster with its code and template."""

    cluster_id = Text("id of code and template: the same in every week and store")
    code = Text("the reason code; null: none was stored")
    template = Text("what similar messages share, <*> where they differ; null: nothing known")


class ClusterKey(Named, key=("cluster_id",)):
    """One cluster."""

    template_id = Text("id of the template alone, whatever the code")


class Tools(Columns, key=("system", "tool")):
    """The calls of one tool."""

    system = Text("the system that recorded them")
    tool = Text("tool, with its server")
    n_calls = Integer("calls")
    n_with_result = Integer("of these: with a recorded result, of which `share` is")
    n_failed = Integer("of these: failed or timed out")
    n_expected = Integer("ended with an exit code that is an answer, as of grep without a hit")
    n_denied = Integer("refused by a person or a rule")
    n_interrupted = Integer("ended early, by a person or because a server stopped")
    n_sessions = Integer("sessions with a call that has a result")
    share = Real("share of calls with a result that failed")
    low = Real("lower end of its 95 % interval, by session")
    high = Real("upper end")
    failed_s = Real("time in calls that failed", unit="s")


TOOLS = frame(Tools)


class Effort(EntityKey, key=ENTITY_KEY):
    """The effort of one session, subagent or turn."""

    session_id = Text("the session")
    thread_id = Text("the session or subagent")
    turn_no = Integer("number of the turn; null: the row is of a session")
    effort = Words(EFFORTS, "how hard it was; never part of its outcome or its severity")
    signs = Text("its signs, joined by ', '; null: none")
    why = Text("its signs in words, with number and tool")
    first_call = Text("where the costliest sign begins, an id in `entities`")
    n_calls = Integer("calls of tools")
    n_failed = Integer("of these: failed or timed out")
    lost_s = Real("time of the costliest sign", unit="s")
    n_tokens = Integer("most tokens of a sign", unit="tokens")


EFFORT = frame(Effort)


class Spent(Columns):
    """The cost of some work."""

    run_s = Real("time of the work; null: not known", unit="s")
    n_tokens = Integer("tokens read and written; null: not reported", unit="tokens")
    cost_usd = Entities.cost_usd


class Failures(EntityKey, key=ENTITY_KEY):
    """One failed or timed-out entity with the cluster it belongs to."""

    session_id = Entities.session_id
    invocation_id = Entities.invocation_id
    kind = Entities.kind
    name = Entities.name
    agent = Entities.agent
    model = Entities.model
    provider = Entities.provider
    project = Entities.project
    playbook = Entities.playbook
    outcome = Text("failed, timed_out; aborted if that is a failure in its system")
    cluster = ClusterKey
    fault_id = Text("id of the fault: clusters that one person would fix share it")
    cause_group = Text("the kind of cause, such as network or timeout; null: not known")
    message = Text("the stored reason as text, or the error message")
    cause = Text("distinct cause: request and reason code; never null")
    incident_id = Text("the incident or request that it failed with; null: by itself")
    is_mass = YesNo("started in an hour in which almost all runs failed")
    failed_at = Moment("when it ended")
    unit = Text("id of the work that these costs belong to; several rows may share it")
    spent = Spent


FAILURES = frame(Failures)


class Counts(Columns):
    """Counts and costs of some failures."""

    n_rows = Integer("entities of every type except branches")
    n_failed = Integer("of these, failed")
    n_timed_out = Integer("of these, timed out")
    n_sessions = Integer("runs among them; of calls, the runs that they are in")
    n_causes = Integer("distinct causes")
    n_incidents = Integer("incidents: groups of related causes")
    share = Real("of all distinct causes")
    share_low = Real("lower end of its 95 % interval (Wilson)")
    share_high = Real("upper end of its 95 % interval")
    first_at = Moment("first failure")
    last_at = Moment("last failure")
    spent = Spent
    n_work = Integer("distinct pieces of work behind the costs")
    n_run_unreported = Integer("of these, of unknown length")
    n_tokens_unreported = Integer("of these, without tokens")
    n_cost_unreported = Integer("of these, without a cost")
    systems = Text("systems, joined by ', '")
    entity_types = Text("types of entities, joined by ', '")
    meaning = Text("what the code means; null: not in the registry")
    what_to_do = Text("the operator's next step")


class FailureClusters(ClusterKey, key=("cluster_id",)):
    """One reason code and message template, ranked by what it cost."""

    title = Text("a title for people: cause, innermost message, tool or provider")
    fault_id = Failures.fault_id
    cause_group = Failures.cause_group
    cause_proposed = Text("where cause_group is null: the most similar group; null: none is near")
    counts = Counts
    rank = Integer("from 1: by cost_usd, run_s, n_causes, n_rows")
    example_shortest = Text("the shortest message")
    example_median = Text("the message of median length")
    example_newest = Text("the newest message")


FAILURE_CLUSTERS = frame(FailureClusters)


class Aliases(Columns, key=("alias_id",)):
    """One other id that a cluster is known under."""

    alias_id = Text("the other id: of its messages alone, or of an earlier release")
    cluster = Named
    n_rows = Integer("rows with this id")
    last_at = Moment("last of these failures")


ALIASES = frame(Aliases)


class Change(ClusterKey, key=("cluster_id",)):
    """One cluster, this window compared with an earlier one."""

    rule_name = Text("your rule that made the cluster; null: mined")
    status = Words(
        ("new", "back", "growing", "unclear", "steady", "shrinking", "gone"), "how it changed"
    )
    why = Text("the reason for the status, as a sentence")
    n_causes_before = Integer("distinct causes in the earlier window")
    n_causes = Counts.n_causes
    n_incidents_before = Integer("incidents in the earlier window")
    n_incidents = Counts.n_incidents
    n_rows_before = Integer("rows in the earlier window")
    n_rows = Counts.n_rows
    n_runs_before = Integer("runs that ended in the earlier window")
    n_runs = Integer("runs that ended in this window")
    run_s_before = Real("time of the work in the earlier window; null: not reported", unit="s")
    run_s = Spent.run_s
    cost_usd_before = Real("its cost in the earlier window; null: not reported", unit="USD")
    cost_usd = Entities.cost_usd
    dispersion = Real(
        "how much more incidents vary from day to day than independent ones would; 1: no more"
    )
    rate_before = Real("incidents per run in the earlier window")
    rate = Real("incidents per run in this window")
    ratio = Real("this rate over the earlier one; null: one of the two is 0 or not known")
    ratio_low = Real("lower end of its 95 % interval (exact)")
    ratio_high = Real("upper end of its 95 % interval (exact)")
    p_value = Real("of the hypothesis of no difference; null: not tested")
    q_value = Real("p-value adjusted for the number of comparisons; null: not tested")
    is_seen_before = YesNo("did it happen before both windows, too")
    first_at = Moment("first failure of all time")
    last_at = Moment("last failure of all time")


CHANGE = frame(Change)


class ExplainedChange(Columns, key=("part",)):
    """One part of the change of the share of runs that do not complete."""

    part = Text("the fault, or else how the runs ended; rest: all that are not named")
    title = Text("the title of the fault, or else how the runs ended")
    dimension = Text("project, kind or model of most of its runs and few others; null: none is")
    value = Text("that project, kind or model; null: none is")
    n_in = Integer("of its runs, those with this value")
    n = Integer("runs that ended so in the window")
    n_before = Integer("runs that ended so in the earlier window")
    n_runs = Integer("runs that ended in the window")
    n_runs_before = Integer("runs that ended in the earlier window")
    change = Real("difference of the two shares; the parts add up to that of all")
    low = Real("lower end of its 95 % interval, by independent units; null: not known")
    high = Real("upper end")


EXPLAINED = frame(ExplainedChange)


class Clusters(FailureClusters, key=("cluster_id",)):
    """One reason code and message template, ranked by what it cost."""

    rule_name = Change.rule_name
    trend = Text(
        "rows per step of `trend_step_s`, oldest first, as JSON; a list with `nested=True`"
    )
    trend_step_s = Real("length of a step", unit="s")
    run_cluster_id = Text("of calls: the cluster of runs that ended with such a call; null: none")
    n_runs_ended = Integer("of calls: runs of it that did")


CLUSTERS = frame(Clusters)


class Codes(Columns, key=("code",)):
    """One node of the namespace of reason codes."""

    code = Text("the code, or the first parts of codes, such as run.failed; null: none was stored")
    parent = Text("the node above; null: none")
    depth = Integer("number of the code's parts")
    is_leaf = YesNo("do rows have exactly this code")
    counts = Counts
    n_clusters = Integer("clusters")
    trend = Clusters.trend
    trend_step_s = Clusters.trend_step_s


CODES = frame(Codes)


class Costs(Columns, key=("<by>",)):
    """What the runs of one group cost, the most expensive first."""

    by = Anything(
        "system, model, provider, project, agent, kind, playbook, day, week, month, or your own",
        name="<by>",
    )
    n_runs = Integer("runs")
    n_completed = Integer("of these, completed")
    n_merged = Integer("of these, merged")
    n_first_pass = Integer(
        "of those that completed, by the first attempt; null: none says which attempt it was"
    )
    n_first_pass_of = Integer("of those that completed, runs that say which attempt it was")
    run_s = Real("time of their work together; null: not known", unit="s")
    retries_usd = Real(
        "total of runs that repeat work (later attempts, repeated prompts); null: none says so",
        unit="USD",
    )
    reported_usd = Real("cost as reported; null: no run reports one", unit="USD")
    reported_n = Integer("runs that report a cost")
    reported_per_completed_usd = Real("cost per completed run, of runs that report one", unit="USD")
    reported_per_merged_usd = Real("cost per merged run, of runs that report one", unit="USD")
    reported_lost_usd = Real("cost of the runs that failed", unit="USD")
    estimated_usd = Real("cost by list prices; null: no run has tokens and a price", unit="USD")
    estimated_n = Integer("runs with an estimate")
    estimated_per_completed_usd = Real("estimate per completed run", unit="USD")
    estimated_per_merged_usd = Real("estimate per merged run", unit="USD")
    estimated_lost_usd = Real("estimate of the runs that failed", unit="USD")
    total_usd = Real("cost as reported where a run reports one, else by list prices", unit="USD")
    total_n = Integer("runs with a reported or an estimated cost")
    total_per_completed_usd = Real("total per completed run", unit="USD")
    total_per_merged_usd = Real("total per merged run", unit="USD")
    total_lost_usd = Real("total of the runs that failed", unit="USD")


class Escalating(ClusterKey, key=("cluster_id",)):
    """One cluster that fails much more often in the last hours than in the week before."""

    rule_name = Change.rule_name
    n_requests = Integer("invocations, and runs without one, that it hit in the last three hours")
    n_most = Integer("most of them in any three hours of the seven days before")


ESCALATING = frame(Escalating)


class Incidents(Columns, key=("incident_id",)):
    """One incident: failures linked by request, time, provider, cause or task."""

    incident_id = Text("id, made from the earliest row")
    since = Moment("first failure")
    until = Moment("last failure")
    duration_s = Real("time from the first to the last", unit="s")
    n_rows = Counts.n_rows
    n_sessions = Counts.n_sessions
    n_causes = Counts.n_causes
    n_clusters = Codes.n_clusters
    linked_by = Text("what links them, joined by ', '")
    title = Text("title of the largest cluster, for people")
    code = Text("reason code of the largest cluster; null: none was stored")
    template = Text("template of the largest cluster; null: nothing known")
    cluster_ids = Text("clusters, joined by ', '; a list with `nested=True`")
    codes = Text("reason codes, joined by ', '; a list with `nested=True`")
    providers = Text("providers, joined by ', '; a list with `nested=True`")
    systems = Text("systems, joined by ', '; a list with `nested=True`")
    spent = Spent
    n_work = Counts.n_work


INCIDENTS = frame(Incidents)


class Owned(Columns):
    """The notes of a team about a cluster."""

    owner = Text("its owner; null: unassigned")
    ticket = Text("its ticket")
    note = Text("a note")
    resolved_in = Text("release, commit, day or week that resolved it")
    resolved_on = Day("day on which it was resolved")
    expected_until = Day("last day on which it is expected")


class Life(ClusterKey, key=("cluster_id",)):
    """One cluster, or entry of the ledger, over all history."""

    fault_id = Failures.fault_id
    registry_change = Text("what merged into its fault, or what that is split from; null: nothing")
    cause_group = Failures.cause_group
    rule_name = Change.rule_name
    state = Words(
        ("new", "renamed", "flapping", "back", "growing", "ongoing", "quiet", "gone", "unknown"),
        "its state",
    )
    renamed_from = Text("the cluster that this one is in other words; null: none is known")
    renamed_to = Text("the cluster that it is now, in other words; null: none is known")
    n_comebacks = Integer(
        "how often it reappeared in 26 weeks after absences that chance does not explain"
    )
    first_at = Moment("first failure of all time")
    last_at = Moment("last failure of all time")
    n_quiet_weeks = Integer("weeks without it before it reappeared, or since the last failure")
    quiet_chance = Real("chance of such an absence at its earlier rate; null: never before")
    quiet_chance_before = Real("the same for the part of it before the window")
    new_chance = Real("chance of none in the earlier history of its sources; null: not new")
    n_causes_before = Change.n_causes_before
    n_causes = Counts.n_causes
    n_causes_ever = Integer("distinct causes of all time")
    n_incidents_before = Change.n_incidents_before
    n_incidents = Counts.n_incidents
    n_rows = Counts.n_rows
    spent = Spent
    ratio = Real("incidents per run now over those of the 24 weeks before; null: not known")
    q_value = Real("of the test of growth, over all clusters; null: too few incidents")
    ledger_id = Text("the id that the ledger has it under; null: not in the ledger")
    owned = Owned
    is_back = YesNo("failed after it was resolved; null: not marked as resolved, or without a date")
    is_expected = YesNo("still expected in this window; null: not stated")


LIFE = frame(Life)


class Lift(ClusterKey, key=("cluster_id", "dimension", "value")):
    """One value of a dimension in the requests of one cluster."""

    rule_name = Change.rule_name
    dimension = Text("what is compared: agent, model, playbook, project, hour, version …")
    value = Text("one value of it")
    n_in = Integer("requests of the cluster in which a failed run has this value")
    n_cluster = Integer("requests of the cluster")
    n_value = Integer("requests with this value, or as many as its share of runs makes, if more")
    n_all = Integer("requests of all runs")
    share_in = Real("share of the cluster's requests with this value")
    share_all = Real("`n_value` of `n_all`")
    lift = Real("the first share over the second")
    lift_low = Real("lower end of its 95 % interval")
    lift_high = Real("upper end of its 95 % interval")
    p_value = Change.p_value
    q_value = Change.q_value
    is_over_represented = YesNo("is the q-value at most `fdr`")


LIFT = frame(Lift)


class Faults(Columns, key=("fault_id",)):
    """One fault: the clusters of one cause, which one person would fix."""

    fault_id = Failures.fault_id
    title = Text("the title of its most expensive cluster")
    cause_group = Failures.cause_group
    cause_proposed = FailureClusters.cause_proposed
    counts = Counts
    rank = FailureClusters.rank
    registry_change = Life.registry_change
    is_consequence = YesNo(
        "it says only that something else failed, and is listed after all causes"
    )
    cause_id = Text(
        "of a consequence: the fault that failed most often with it; null: not known, or none"
    )
    n_clusters = Codes.n_clusters
    cluster_ids = Text("its clusters, most expensive first; a list with `nested=True`")
    code = Text("reason code of the most expensive cluster; null: none was stored")
    where = Text("in what it is concentrated, as a sentence; null: in nothing that is known")
    dimension = Text("of that: project, kind, model, provider or version")
    value = Lift.value
    n_in = Integer("requests of the fault with this value")
    n_fault = Integer("requests of the fault")
    lift = Lift.lift
    lift_low = Lift.lift_low
    lift_high = Lift.lift_high
    seen_after = Text(
        "the version of the program that every failure of it had, at least three, while "
        "another one ran before; null: not so, or not known"
    )


FAULTS = frame(Faults)


CHANGES = ("new", "merged", "split", "renamed", "kept")


class Register(Columns, key=("fault_id", "other_id")):
    """The change of one fault in the registry of faults."""

    fault_id = Text("the id that the registry has assigned")
    change = Words(CHANGES, "new, merged, split, renamed or kept")
    other_id = Text("the fault it is merged into or split from, or the id that is computed now")
    title = FailureClusters.title
    n_clusters = Integer("its clusters; 0: merged")
    n_rows = Integer("their failed rows; 0: merged")


REGISTER = frame(Register)


class MassFailures(Columns, key=("since",)):
    """One hour in which runs started."""

    since = Moment("start of the hour")
    until = Moment("end of the hour")
    n_starts = Integer("runs that started in it and count in rates")
    n_failed = Integer("of these, failed or timed out, at any time")
    share = Real("share of the starts that failed")
    is_mass = YesNo("did almost all of them fail")


class Members(Failures, key=ENTITY_KEY):
    """One failed or timed-out entity with the cluster it belongs to."""

    rule = Integer("number of your rule that matched it, from 1; null: none")
    rule_name = Text("name of your rule that matched it; null: none")
    directory = Entities.directory


MEMBERS = frame(Members)


class Parameters(Named, key=("cluster_id", "position", "value")):
    """One value at one placeholder of a cluster's template."""

    position = Integer("number of the placeholder <*> in the template, from 1")
    value = Text("the value at the placeholder")
    n_rows = Integer("rows with this value")
    share = Real("share of the cluster's rows")
    n_distinct = Integer("distinct values at this placeholder")


class Related(Named, key=("cluster_id", "place")):
    """One cluster that may share its cause with another: a suggestion."""

    systems = Counts.systems
    cause_group = Failures.cause_group
    cause_title = Text("the cause group in words")
    place = Integer("place of the suggestion, from 1")
    related_id = Text("id of the other cluster")
    related_code = Text("its reason code")
    related_template = Text("its template")
    related_systems = Text("its systems")
    is_same_group = YesNo("do both have the same cause group")
    similarity = Real("similarity of the texts, 0 to 1")
    score = Real("similarity plus a bonus for the same cause group: the order of the suggestions")


RELATED = frame(Related)


class Rules(Columns, key=("rule",)):
    """One of your rules, with the failures that it matches."""

    rule = Integer("number of the rule, from 1")
    name = Text("its name")
    action = Text("what it does: name, merge, split, ignore")
    code = Text("reason codes that it is about; null: all")
    message = Text("pattern of the messages that it is about; null: all")
    into_code = Text("code that it moves rows to; null: none")
    n_rows = Integer("rows that it took; 0: it has no effect")
    n_lost = Integer("rows that match it, but that earlier rules took first")
    lost_to = Text("names of the earlier rules that took them")


class MineTemplates(Columns):
    """One message."""

    template = Text("the template, with <*> for the parts that vary; null: no message")
    template_typed = Text("the same with the kinds of these parts, such as <UUID>")
    template_id = Text("version of the miner and digest of the template")
    pattern = Text("the message with placeholders, before it was compared with others")


class MergeTemplates(Columns, key=("pattern",)):
    """One distinct pattern."""

    pattern = MineTemplates.pattern
    template = ClusterKey.template
    template_typed = MineTemplates.template_typed
    template_id = ClusterKey.template_id


class Owners(Named, key=("cluster_id",)):
    """One entry of the ledger of known failures."""

    owned = Owned


class Prices(Columns, key=("model", "since")):
    """A list price of one model, for a million tokens."""

    model = Text("the model")
    input_usd = Real("tokens read without a cache", unit="USD")
    cache_read_usd = Real("tokens read from a cache", unit="USD")
    cache_write_usd = Real("tokens written to a cache for five minutes", unit="USD")
    cache_write_1h_usd = Real("tokens written to a cache for an hour", unit="USD")
    output_usd = Real("tokens written", unit="USD")
    long_above = Real("a request with more has another price; null: none has", unit="tokens")
    long_input = Real("how many times as much such a request costs for its input")
    long_output = Real("how many times as much it costs for its output")
    since = Day("day from which the price holds; null: not known")
    as_of = Day("day on which it was last checked")
    source = Text("web page that it was taken from")
    origin = Text("stateanalytics, or your file")


FRAMES = (
    *(FAILURES, FAILURE_CLUSTERS, TOOLS, EFFORT, CLUSTERS, CODES, MEMBERS),
    *(ALIASES, CHANGE, EXPLAINED, ESCALATING, LIFE, LIFT, FAULTS, REGISTER, RELATED),
    *(frame(Costs), INCIDENTS, *map(frame, (MassFailures, Parameters, Rules))),
    *map(frame, (MineTemplates, MergeTemplates, Owners, Prices)),
)

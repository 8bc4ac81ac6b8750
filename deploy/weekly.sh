#!/bin/sh
# Collect stores into an archive, report a week of it, and keep the digest on one standing issue.
#
#   HISTORY=~/history OUT=~/reports deploy/weekly.sh ~/.lionagi/state.db ~/.agent-orchestrator
#
# HISTORY  the archive                    OUT      where week.html, week.md and slack.json go
# WEEK     last-week, or 2026-W21         FAIL_ON  new-critical,regression,coverage, or empty
# AS_OF    the instant of the report; by default now, where sources are collected
# ISSUE    title of an issue for the digest, written with gh (needs GH_TOKEN); empty: none
#
# Exit codes: 0 done; 1 a source failed; 3 bad news that FAIL_ON names; else those of the command.
set -eu
run=${STATEANALYTICS:-stateanalytics}
week=${WEEK:-last-week}
code=0

mkdir -p "$OUT"
# Without sources, the archive is filled elsewhere and only reported.
if [ $# -gt 0 ]; then
    $run archive "$@" --to "$HISTORY" || code=$?
    [ "$code" -le 1 ] || exit "$code"
    # Else a fleet that was quiet since Monday would get the week before the last.
    AS_OF=${AS_OF:-$(date -u +%Y-%m-%dT%H:%M:%SZ)}
fi
$run report "$HISTORY" --week "$week" ${AS_OF:+--as-of "$AS_OF"} -o "$OUT/week.html"
$run report "$HISTORY" --week "$week" ${AS_OF:+--as-of "$AS_OF"} --format slack -o "$OUT/slack.json" > /dev/null
$run report "$HISTORY" --week "$week" ${AS_OF:+--as-of "$AS_OF"} -o "$OUT/week.md" ${FAIL_ON:+--fail-on "$FAIL_ON"} || {
    code=$?
    [ "$code" -eq 3 ] || exit "$code"
}

if [ -n "${ISSUE:-}" ]; then
    export ISSUE
    number=$(gh issue list --state open --limit 200 --json number,title \
        --jq 'map(select(.title == env.ISSUE))[0].number // empty')
    if [ -n "$number" ]; then
        gh issue edit "$number" --body-file "$OUT/week.md"
    else
        gh issue create --title "$ISSUE" --body-file "$OUT/week.md"
    fi
fi
exit "$code"

"""Failed runs by hand, for the tests of clusters."""

from datetime import datetime, timedelta

from stateanalytics.core.facts import Facts
from tests.frames import Row, ago, facts

LIMIT = "API Error: 429 slow down, request {}"


def run(entity_id: str, *, status: str = "failed", ended: datetime | None = None, **rest) -> Row:
    """One session of lionagi, ten minutes long, that ended a day ago."""
    end = ended or ago(days=1)
    return {
        "entity_id": entity_id,
        "raw_status": status,
        "created_at": end - timedelta(minutes=10),
        "started_at": end - timedelta(minutes=10),
        "ended_at": end,
        "last_message_at": end,
        "end_written_by": "executor",
        "kind": "agent",
        **rest,
    }


def fan_out(n: int = 24, **rest) -> list[Row]:
    """Sessions of one invocation that failed of one rate limit, a second apart."""
    return [
        run(
            f"fan{i}",
            invocation_id="inv",
            reason_code="run.failed.provider_retryable",
            reason_message=LIMIT.format(f"req_{i}"),
            provider="claude_code",
            ended=ago(days=1) + timedelta(seconds=i),
            **rest,
        )
        for i in range(n)
    ]


def store(*rows: Row) -> Facts:
    """Facts of these rows."""
    return facts(list(rows))

"""Agents ask over stdio: read-only, bounded, masked, and within the snapshot."""

import asyncio
import json
import re
import sys
from dataclasses import replace

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError, StateAnalyticsError
from stateanalytics.mcp_server import (
    MOST_CHARS,
    MOST_LISTED,
    MOST_ROWS,
    UNTRUSTED,
    Tools,
    _refusal,
    in_words,
    server,
    wrong_argument,
)
from stateanalytics.state.policy import Policy
from tests.conftest import ROOT, component


@pytest.fixture(scope="module")
def tools(demo):
    return Tools(demo, Policy.v1())


def ask(tools, name, **arguments):
    return json.loads(tools.by_name()[name](**arguments))


def test_an_answer_says_its_instant_its_limits_and_that_its_texts_are_data(tools):
    told = ask(tools, "attention", severity="critical", limit=3)
    assert told["note"] == UNTRUSTED
    assert told["as_of"] == "2026-05-25T06:00:00Z"
    assert len(told["data"]) == 3
    assert told["cut_off"].startswith("these are the first 3 rows of 127")
    assert {row["severity"] for row in told["data"]} == {"critical"}


@pytest.mark.slow
def test_struggles_are_asked_of_any_snapshot(tools):
    assert {row["sign"] for row in ask(tools, "struggles")["data"]} == {
        *("repeated_call", "tests_failing", "unchanged_retry")
    }
    with sa.read(ROOT / "data" / "samples" / "codex", progress=False) as snap:
        rows = ask(Tools(snap, Policy.v1()), "struggles")["data"]
    assert {row["sign"] for row in rows} == {
        *("compacted", "corrected", "empty_answer", "interrupted", "tests_failing")
    }


@pytest.mark.slow
def test_every_answer_says_what_of_the_sources_is_missing(tools, tmp_path):
    assert ask(tools, "schema")["data_missing"] == []
    (tmp_path / "s.jsonl").write_text(
        '{"type":"user","sessionId":"s","uuid":"u","timestamp":"2026-05-01T10:00:00.000Z",'
        '"message":{"role":"user","content":"hi"}}\n'
    )
    (tmp_path / "x.json").write_text('{"a": "' + "b" * 5000 + '"}')
    with sa.read(tmp_path) as snap:
        tools = Tools(snap, Policy.v1())
        for name, given in (("attention", {}), ("schema", {}), ("sql", {"query": "SELECT 1"})):
            [missing] = ask(tools, name, **given)["data_missing"]
            assert missing.startswith(f"{tmp_path}: most of what lies here is not read")


@pytest.mark.slow
def test_disagreements_are_of_the_detectors_that_are_asked(tools):
    def asked(detectors=None):
        rows = ask(tools, "disagreements", limit=MOST_ROWS, detectors=detectors)["data"]
        return {row[side] for row in rows for side in ("a", "b")}

    assert asked(["B2", "B4"]) == {"dashboard_stuck_60m", "dashboard_stale_card"}
    assert asked(["lionagi@0.26.1"]) >= asked(["B2", "B4"])
    assert not asked() & asked(["B2", "B4"])
    with pytest.raises(ArgumentError, match=r"no release '7'"):
        ask(tools, "disagreements", detectors=["lionagi@7"])


def test_hostile_texts_are_masked_cut_and_made_visible(tools):
    frame = pl.DataFrame(
        {"x": ["sk-" + "a1B2" * 12, "\x1b[31mred", "y" * 10_000], "b": [b"\xff"] * 3}
    )
    told = json.loads(tools._rows(frame, 3))
    secret, colour, long = (row["x"] for row in told["data"])
    assert "a1B2" not in secret
    assert told["n_secrets_masked"] == 1
    assert "\x1b" not in colour
    assert len(long) <= 400
    assert told["data"][0]["b"] == "ff"
    many = pl.DataFrame({"x": ["z" * 1000] * MOST_ROWS})
    cut = tools._rows(many, MOST_ROWS)
    assert len(cut) < MOST_CHARS
    assert f"of {MOST_ROWS}" in json.loads(cut)["cut_off"]


@pytest.mark.slow
def test_what_a_query_gives_is_told_masked_and_never_breaks_off(tools):
    key = "sk-" + "a1B2" * 12
    query = "SELECT histogram(x) AS h, [any_value(x)::BLOB, NULL] AS b FROM t"
    owned = Tools(tools._snap.with_table("t", pl.DataFrame({"x": [key, "b"]})), Policy.v1())
    text = owned.sql(query)
    assert key not in text
    [row] = json.loads(text)["data"]
    assert row["h"] == [{"key": "[API key]", "value": 1}, {"key": "b", "value": 1}]
    assert json.loads(row["b"])[1] is None


@pytest.mark.slow
def test_no_function_of_a_query_brings_back_a_secret_of_a_table(tools):
    key = "sk-" + "a1B2" * 12
    table = pl.DataFrame({"x": [key], key: ["y"], key[:-1] + "3": ["z"], "l": [[key]]})
    owned = Tools(tools._snap.with_table("t", table), Policy.v1())
    for asked in ("reverse(x)", "hex(encode(x))", "substr(x, 1, 20)", "l[1][4:]"):
        text = owned.sql(f"SELECT {asked} AS y FROM t")
        assert not any(part in text for part in ("2B1a", b"a1B2".hex().upper(), "a1B2")), asked
    assert [*json.loads(owned.sql("FROM t"))["data"][0]] == ["x", "[API key]", "[API key]_1", "l"]
    names = "SELECT reverse(column_name) FROM (DESCRIBE t)"
    assert "2B1a" not in owned.sql(names)
    assert "a1B2" not in owned.sql(f'SELECT 1 AS "{key}"')


def test_an_error_stands_under_the_note_as_data_does():
    key = "sk-" + "a1B2" * 12
    told = json.loads(_refusal(ArgumentError(f"found {key}\u202e", "limit=20"), "sql"))
    assert told["note"] == UNTRUSTED
    assert told["n_secrets_masked"] == 1
    assert told["data"]["error"].startswith("found [API key]")
    assert "\u202e" not in told["data"]["error"]


@pytest.mark.slow
def test_a_server_without_sql_has_neither_its_tools_nor_its_tables(tools):
    component("mcp")

    async def offered():
        served = server(tools._snap, has_sql=False)
        return await served.list_tools(), await served.list_resources()

    offered_tools, resources = asyncio.run(offered())
    assert {tool.name for tool in offered_tools} == {*tools.by_name()} - {"sql", "schema"}
    assert list(resources) == []


@pytest.mark.slow
def test_an_overview_of_a_large_fleet_is_short_and_says_so(tools):
    snap = tools._snap
    many = replace(
        snap, sources=pl.concat([snap.sources] * 300), entities=snap.entities.head(1),
        transitions=snap.transitions.clear(), events=snap.events.clear(),
    )  # fmt: skip
    text = Tools(many, Policy.v1()).overview()
    assert len(text) < MOST_CHARS / 2
    told = json.loads(text)
    assert (len(told["data"]["sources"]), told["data"]["n_sources"]) == (MOST_LISTED, 300)
    assert told["cut_off"].startswith("these are the first 40 rows of 300")


def test_bytes_in_a_list_are_told(tools):
    frame = pl.DataFrame({"b": [[b"\xff", None], None], "s": [{"x": b"\x00"}] * 2})
    told = pl.DataFrame(json.loads(tools._rows(frame, 2))["data"])
    assert told.rows() == [('["ff", null]', '{"x": "00"}'), (None, '{"x": "00"}')]


def test_a_long_text_is_cut_and_its_row_told(tools):
    told = json.loads(tools._rows(pl.DataFrame({"x": ["z" * 2 * MOST_CHARS] * 3}), 3))
    assert len(told["data"]) == 3
    assert told["cut_off"] is None


@pytest.mark.parametrize("limit", [0, -1, MOST_ROWS + 1])
def test_a_limit_out_of_range_says_the_range(tools, limit):
    with pytest.raises(ArgumentError, match="1 to 200"):
        ask(tools, "attention", limit=limit)


@pytest.mark.parametrize(
    ("tool", "arguments", "hint"),
    [
        ("overview", {"week": "last"}, "week is an ISO week"),
        ("timeline", {"entity_id": "zzz"}, "an entity_id from attention"),
        ("sql", {"query": "FROM nope"}, "the tables that schema lists"),
        ("sql", {"query": "SELECT now()"}, "write as_of()"),
        ("schema", {"table": "stats"}, "did you mean 'states'?"),
    ],
)
def test_a_hint_is_one_that_an_agent_can_follow(tools, tool, arguments, hint):
    with pytest.raises(StateAnalyticsError) as raised:
        ask(tools, tool, **arguments)
    words = in_words(raised.value, tool)
    assert hint in words
    assert not [odd for odd in ("\n", "snap.", "--week") if odd in words]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (
            "failures",
            {"weeks": "2026-W21"},
            "failures has no argument 'weeks'; it takes limit, of, week; did you mean 'week'?",
        ),
        ("timeline", {"id": "a"}, "timeline has no argument 'id'; it takes entity_id."),
        ("timeline", {}, "timeline needs the argument entity_id; it takes entity_id."),
        ("timeline", {"entity_id": "a"}, None),
    ],
)
def test_a_wrong_argument_is_named_with_those_there_are(tools, tool, arguments, said):
    assert wrong_argument(tools.by_name()[tool], arguments) == said
    if said:
        component("mcp")
        with pytest.raises(Exception, match=re.escape(said)):
            asyncio.run(server(tools._snap).call_tool(tool, arguments))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limit": "many"}, "failures needs a whole number as limit; found 'many'."),
        ({"week": 5}, "failures needs a text as week; found 5."),
    ],
)
def test_an_argument_of_a_wrong_type_is_one_sentence(tools, arguments, said):
    component("mcp")
    with pytest.raises(Exception, match=f"^{re.escape(said)}$"):
        asyncio.run(server(tools._snap).call_tool("failures", arguments))


TOOLS = {
    *("overview", "attention", "failures", "failure_examples", "timeline", "thresholds"),
    *("struggles", "disagreements", "sql", "schema"),
}


async def _session():
    mcp, stdio = component("mcp"), component("mcp.client.stdio")
    command = ["-m", "stateanalytics", "mcp", str(ROOT / "data" / "samples" / "state.db")]
    started = stdio.StdioServerParameters(command=sys.executable, args=command, cwd=str(ROOT))
    async with mcp.Client(stdio.stdio_client(started)) as client:

        async def ask(name, **arguments):
            answer = await client.call_tool(name, arguments)
            return answer.is_error, "".join(part.text for part in answer.content)

        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations.read_only_hint for tool in tools)
        answers = {
            "overview": await ask("overview", week="2026-W21"),
            "attention": await ask("attention", severity="critical", limit=2),
            "failures": await ask("failures", limit=3),
            "thresholds": await ask("thresholds"),
            "struggles": await ask("struggles"),
            "disagreements": await ask("disagreements"),
            "timeline": await ask("timeline", entity_id="6009d20f"),
            "sql": await ask("sql", query="FROM range(500)", limit=7),
        }
        parsed = {name: json.loads(text) for name, (_, text) in answers.items()}
        assert not any(is_error for is_error, _ in answers.values())
        assert all(len(text) < 2 * MOST_CHARS for _, text in answers.values())
        assert parsed["overview"]["data"]["numbers"][0]["title"] == "Runs"
        assert "first 7 rows of more" in parsed["sql"]["cut_off"]
        assert "verdict" in parsed["thresholds"]["data"][0]
        first = parsed["failures"]["data"][0]["cluster_id"]
        is_error, text = await ask("failure_examples", cluster_id=first, limit=2)
        assert not is_error
        assert len(json.loads(text)["data"]) == 2
        for query in ("FROM read_text('/etc/hostname')", "DROP TABLE states", "SELECT now()"):
            is_error, text = await ask("sql", query=query)
            assert is_error
            assert "Hint:" in text
        is_error, text = await ask("failure_examples", cluster_id="none")
        assert is_error
        assert "There is no cluster" in text
        for place, words in (("", "running_sessions"), ("/states", "effective_state")):
            told = await client.read_resource(f"stateanalytics://schema{place}")
            assert words in told.contents[0].text


@pytest.mark.slow
def test_a_real_client_asks_everything_over_stdio():
    component("mcp")
    asyncio.run(asyncio.wait_for(_session(), 300))

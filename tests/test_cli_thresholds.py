"""The command ``thresholds``: a table, a file, or settings."""

import json
import re
import tomllib

import pytest

from stateanalytics.cli import run
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")

STORE = str(SAMPLES / "state.db")


def test_the_table_says_today_and_recommended_and_what_is_missing(capsys):
    assert run(["thresholds", STORE]) == 0
    shown = capsys.readouterr()
    assert "recommended" in shown.out.splitlines()[0].split()
    assert "stale.flow" in shown.out
    assert re.search(r"\d+ thresholds: .*\d+ cannot tell, .*\d+ not enough data", shown.err)


def test_settings_are_written_as_toml(tmp_path):
    target = tmp_path / "thresholds.toml"
    assert run(["thresholds", STORE, "--settings", "toml", "-o", str(target)]) == 0
    assert "lionagi" in tomllib.loads(target.read_text("utf-8"))


@pytest.mark.slow
def test_costs_are_passed_on(capsys):
    command = ["thresholds", STORE, "--settings", "json", "--false-alarm", "7", "--deaths", "2"]
    assert run([*command, "--lost-run", "8", "--run-hour", "9", "--undetected-hour", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"] == {
        "false_alarm": 7.0,
        "undetected_hour": 1.0,
        "lost_run": 8.0,
        "run_hour": 9.0,
        "deaths_per_100_hours": 2.0,
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--false-alarm", "-1"],
            "false_alarm needs a number from 0; found -1.0. Hint: a number such as 5",
        ),
        (["--settings", "toml", "--format", "csv"], "Settings have a format of their own"),
        (["--settings", "toml", "-o", STORE], "which was read"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_code_2(arguments, words, capsys):
    assert run(["thresholds", STORE, *arguments]) == 2
    assert words in capsys.readouterr().err

"""``examples/`` on fewer rows: they print what they promise, on the Spark that is there; ``long``: each in a
process of its own, as a reader runs it.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.frames import setting

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = {
    "skewed_groups": 1_500,
    "skewed_join": 60_000,
    "even_parquet": 60_000,
    "before_and_after": 3_000,
    "windowed_sketches": 20_000,
    "streaming_join": 6_000,
    "stateful_sessions": 2_000,
}
SET = ("spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold")  # what they set on their session
ELSEWHERE = {"kafka_in_out", "live_stream"}  # test_kafka.py, which has a broker; tests/service/test_live_stream.py


Printed = Callable[[str], str]


def by_itself(name: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), str(RUN[name])],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(params=["here", pytest.param("by itself", marks=pytest.mark.long)])
def printed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Printed:
    """What an example prints."""

    def here(name: str) -> str:
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)
        with setting(spark, **{name.replace(".", "__"): spark.conf.get(name) for name in SET}):
            runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](RUN[name])
        return capsys.readouterr().out

    return here if request.param == "here" else by_itself


def before_and_after(pattern: str, text: str) -> tuple[float, float]:
    """The two numbers that this finds."""
    before, after = (float(number.replace(",", "")) for number in re.findall(pattern, text))
    return before, after


def test_every_example_is_run_here() -> None:
    """A new one needs a size and a test."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(RUN) | ELSEWHERE


@pytest.mark.long
def test_skewed_groups_gives_the_heavy_customer_a_task_of_its_own(printed: Printed) -> None:
    """By hash it shares a task with others; by the plan the fullest task has that customer's orders and no other's."""
    text = printed("skewed_groups")
    heaviest = re.search(r"orders, ([\d,]+) of one customer", text)
    assert heaviest is not None
    before, after = before_and_after(r"tasks had ([\d,]+) orders", text)
    assert before > after == float(heaviest.group(1).replace(",", ""))
    assert "same models: True" in text


def test_skewed_join_shows_even_partitions_and_the_same_rows(printed: Printed) -> None:
    """One partition far over the mean before, none after."""
    text = printed("skewed_join")
    before, after = before_and_after(r"fullest partition has (\S+) times", text)
    assert before > 2
    assert after < 1.1
    assert "the same rows: True" in text


@pytest.mark.long
def test_even_parquet_writes_files_of_one_size(printed: Printed) -> None:
    """One file several times as large as the others before, none after; all but the split device in one file."""
    text = printed("even_parquet")
    before, after = before_and_after(r"the largest has (\S+) times the mean", text)
    assert before > 3
    assert after < 1.2
    _, pieces = before_and_after(r"a device is in, on average: (\S+)", text)
    assert 1.0 < pieces < 1.02
    assert "same rows: True" in text


def test_before_and_after_says_what_to_do_and_does_it(printed: Printed) -> None:
    """Advice with the seconds of both ways, and the same result by either; so few clicks may be left to Spark."""
    text = printed("before_and_after")
    assert re.search(r"^(use sk\.group_apply|leave it to Spark).* s as it is set, .* s by unskew", text, re.MULTILINE)
    assert "same result: True" in text


@pytest.mark.long
def test_windowed_sketches_spreads_the_hot_page_and_merges_its_sketches(printed: Printed) -> None:
    """Even partitions with salts; every window of a page comes out, with an estimate as good as before."""
    text = printed("windowed_sketches")
    before, after = before_and_after(r"fullest partition has (\S+) times", text)
    assert before > 1.2
    assert after < 1.1
    assert "the same ones: True" in text
    worst = re.search(r"differ by (\S+) % at most", text)
    assert worst is not None
    assert float(worst.group(1)) < 5


@pytest.mark.long
def test_streaming_join_makes_the_same_pairs_in_all_partitions(printed: Printed) -> None:
    """By Spark alone nearly all of them in one."""
    text = printed("streaming_join")
    before, after = before_and_after(r"fullest partition has (\S+) times", text)
    assert before > 3
    assert after < 1.3
    assert re.search(r"[\d,]{5,} pairs; the same: True", text)


@pytest.mark.long
def test_stateful_sessions_have_every_click_once(printed: Printed) -> None:
    """Sessions end by themselves, in whichever batch that is."""
    assert "they have 2,000 of 2,000 clicks" in printed("stateful_sessions")

"""``unskew demo``: it runs, its proof can fail, its page needs nothing else, and it leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from rich.console import Console

from tests.cli.command import environment, in_process, is_one_line
from tests.doses import some_of
from unskew.cli.demo import command
from unskew.cli.demo.report import page
from unskew.cli.demo.screen import Screen, screen_for, summary
from unskew.client import testing
from unskew.core import Histogram, hash_keys, make_planner
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.service.app.settings import Settings
from unskew.spark import demo as package
from unskew.spark.demo import Demo, DemoBatch, Outcome, Step
from unskew.spark.demo.agents import Round
from unskew.spark.demo.local import is_own
from unskew.spark.demo.stream import folder_of, make_stream
from unskew.spark.demo.work import Digest, MeasuredRun, Proof, counted, prove

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

LONG = 240.0  # seconds that a run may take on a machine with much else to do
SAME = Digest(5, 3000, "ab" * 32)


@contextmanager
def ports_in_use() -> Iterator[None]:
    """Those that Spark and the service take where nothing is said, as far as they are free."""
    with ExitStack() as stack:
        for port in (4040, *(Settings.model_fields[f"{name}_port"].default for name in ("http", "grpc", "metrics"))):
            taken = stack.enter_context(socket.socket())
            with suppress(OSError):  # by somebody else: all the same
                taken.bind(("127.0.0.1", port))
                taken.listen()
        yield


@contextmanager
def running(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, which is gone at the end of the block however that ends."""
    run = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "unskew.cli.entry", "demo", "--quick", *options],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield run
    finally:
        for pid in of_session(run.pid):
            os.kill(pid, signal.SIGKILL)
        run.communicate()


def of_session(session: int) -> list[int]:
    """The processes of a session, those in groups of their own included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            if int(after[3]) == session and after[0] != "Z":
                found.append(int(entry.name))
    return found


def ended(session: int, seconds: float) -> list[int]:
    """What is left of a session when so much time has passed."""
    limit = time.monotonic() + seconds
    while (left := of_session(session)) and time.monotonic() < limit:
        time.sleep(0.05)
    return left


def test_the_quick_demo_shows_proves_and_reports(tmp_path: Path) -> None:
    """Three batches, the first two placed by their own rows; unskew's partitions are even there and hash's are not;
    both results are the stream's; the page is there, and nothing else: no process, no temporary file, no noise on
    stderr. Other services and another Spark may have their ports."""
    with ports_in_use(), running(tmp_path, "--rows", "6000", "--out", "report") as run:
        out, err = run.communicate(timeout=LONG)
        left = ended(run.pid, 90.0)
    assert (run.returncode, err, left) == (0, "", [])
    rows = re.findall(r"^ +(\d) +\S+ \d+% +[\d.]+ s +[\d.]+ s +[\d.]+x +([\d.]+) → ([\d.]+) +(\S+)", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[0][3] == "counted"
    assert rows[1][3] in ("counted", "inflight")  # no other way has been scored yet
    assert min(float(row[1]) for row in rows[:2]) > 2.0
    assert max(float(row[2]) for row in rows[:2]) < 1.2
    assert re.search(r"results equal: yes, 18,000 rows in [\d,]+ keys, SHA-256 [0-9a-f]{16}", out)
    assert "report: report/index.html" in out
    assert re.search(r"^watch it live, while it lasts: http://127\.0\.0\.1:\d+/$", out, re.MULTILINE)
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    html = (tmp_path / "report" / "index.html").read_text()
    assert_self_contained(html)
    assert html.count("<svg") == 5
    assert len(set(re.findall(r"<code>([0-9a-f]{64})</code>", html))) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "processes"),
    [
        ("starting Spark", 2),  # itself and Java
        pytest.param(
            "warming up", 3 + 6, marks=pytest.mark.long
        ),  # the service, too, and a Python worker for each task
    ],
)
def test_an_interrupt_ends_it_with_nothing_left(tmp_path: Path, line: str, processes: int) -> None:
    """Ctrl-C, to the whole group, while Java comes up or in the middle of a job: exit 130, no traceback, no process,
    no file."""
    with running(tmp_path, "--rows", "500000") as run:
        assert run.stdout is not None
        next(said for said in run.stdout if said.startswith(line))
        limit = time.monotonic() + LONG
        while len(of_session(run.pid)) < processes and time.monotonic() < limit:
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=LONG)
        left = ended(run.pid, 90.0)
    assert (run.returncode, err, left) == (130, "", [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_it_plays_on_a_service_that_runs_and_leaves_its_two_streams(tmp_path: Path) -> None:
    """Those of the warm-up are gone, and the service goes on."""
    with testing.embedded() as service, running(tmp_path, "--service", service.target) as run:
        out, err = run.communicate(timeout=LONG)
        with service.client() as client:
            streams = {info.name: info.version for info in client.list_streams()}
    assert (run.returncode, err) == (0, "")
    assert "watch it live" not in out  # where its page is, is known to who started it
    assert streams.keys() == {"demo", "demo-agents"}
    assert streams["demo"] is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batches", "0"), "--batches: '0' is not allowed; use a whole number, 2 to 500"),
        (("--rows", "10"), "--rows: '10' is not allowed; use a whole number, 1000 to 5000000"),
        (("--partitions", "1"), "--partitions: '1'"),
        (("--batches", "many"), "--batches: 'many'"),
        (("--seed", "-1"), "--seed: '-1'"),
        (("--out", ""), "--out: ''"),
        (("--service", "grpc://127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_bad_options_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    """By name, with what is allowed."""
    done = in_process(capsys, "demo", *options)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err)
    assert message in done.err


def test_a_folder_that_cannot_take_the_report_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file where the folder would be, a folder where the page would be."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder" / "index.html").mkdir(parents=True)
    for name, told in (("file", "is no folder"), ("folder", "is a folder")):
        done = in_process(capsys, "demo", "--out", str(tmp_path / name))
        assert (done.code, done.out) == (2, "")
        assert is_one_line(done.err)
        assert told in done.err


@pytest.mark.parametrize(("module", "extras"), [("pyspark", "cli,spark"), ("fastapi", "cli,service")])
def test_a_missing_package_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, extras: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = in_process(capsys, "demo")
    assert (done.code, done.out) == (2, "")
    assert f"unskew demo needs {module}, not installed; pip install 'unskew[{extras}]'" in done.err


def test_a_missing_or_old_java_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No java, one that is not there, one that is too old: each with what to install."""
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    for home, told in ((str(tmp_path), "cannot be run"), (str(tmp_path / "old"), "is Java 11."), (None, "no java")):
        if home is None:
            monkeypatch.delenv("JAVA_HOME")
            monkeypatch.setenv("PATH", str(tmp_path))
        else:
            monkeypatch.setenv("JAVA_HOME", home)
        done = in_process(capsys, "demo")
        assert (done.code, done.out) == (2, "")
        assert told in done.err
        assert "Spark needs Java 17 or newer" in done.err


def test_only_a_home_of_the_installed_spark_is_kept(tmp_path: Path) -> None:
    """Its own folder, or one of links to it; another Spark's, which may be of another version, is not."""
    own = Path(pyspark.__file__).parent
    (tmp_path / "bin").symlink_to(own / "bin")
    assert [is_own(str(home)) for home in (own, tmp_path, tmp_path / "other", "")] == [True, True, False, False]


def test_the_stream_is_its_seed_and_its_hot_keys_change() -> None:
    """The same seed, the same rows; another hottest key in each span, the same within it; hashes are Spark's."""
    demo = Demo(batches=6, rows=5_000, change=2)
    stream, again, other = make_stream(demo), make_stream(demo), make_stream(replace(demo, seed=8))
    assert stream.table(3).equals(again.table(3))
    assert not stream.table(3).equals(other.table(3))
    hottest = [stream.hottest(batch)[0] for batch in range(6)]
    assert hottest[0::2] == hottest[1::2]
    assert len(set(hottest)) == 3
    assert len(set(stream.names.to_pylist())) == demo.keys
    table = stream.table(1)
    assert np.array_equal(stream.hashes_of(1), hash_keys(table["word"].combine_chunks()))
    assert stream.named(int(stream.hashes_of(1)[0])) == table["word"][0].as_py()


def test_a_task_counts_every_row_once() -> None:
    """Whatever the batches that its rows come in."""
    table = make_stream(Demo(batches=2, rows=3_000)).table(0)
    for size in (7, 1_000, 5_000):
        found = pa.Table.from_batches(list(counted(0.0, table.to_batches(max_chunksize=size))))
        assert sum(found["n"].to_pylist()) == 3_000
        assert sum(found["ids"].to_pylist()) == 3_000 * 2_999 // 2
        assert len(set(found["word"].to_pylist())) == len(found)
    assert list(counted(0.0, [])) == []


def wrong_results() -> dict[str, pa.Table]:
    """What an arm would have written that lost a key, doubled a row for another one, or took it for another batch's."""
    right = pa.table({"word": ["a", "b"], "n": [2, 1], "amount": [5, 1], "ids": [1, 2]})
    return {
        "right": right,
        "a key is lost": right.slice(0, 1),
        "a row for another": right.set_column(3, "ids", pa.array([2, 2])),
        "an amount": right.set_column(2, "amount", pa.array([5, 2])),
        "a row twice": right.set_column(1, "n", pa.array([3, 1])),
    }


@pytest.mark.parametrize("what", some_of(wrong_results(), "right", "a row for another"))
def test_the_proof_fails_where_results_differ(spark: SparkSession, tmp_path: Path, what: str) -> None:
    """The stream has rows 0 and 1 of key a and row 2 of b; the second arm wrote this."""
    events = pa.table({"id": [0, 1, 2], "word": ["a", "a", "b"], "amount": [2, 3, 1]})
    wrong = wrong_results()[what]
    for name, table in (("stream", events), ("hash", wrong_results()["right"]), ("unskew", wrong)):
        home = folder_of(tmp_path / name, 0)
        home.mkdir(parents=True)
        pq.write_table(table, home / "part.parquet")
    proof = prove(spark, tmp_path / "stream", tmp_path / "hash", tmp_path / "unskew")
    assert proof.digests["stream"] == proof.digests["hash"]
    assert proof.equal == (what == "right")
    assert (proof.digests["unskew"] == proof.digests["stream"]) == (what == "right")


# -- what is shown, of a run that is made up --------------------------------------------------------------------


def made_up(equal: bool = True) -> Outcome:
    demo = Demo(batches=3, rows=1_000, partitions=4, change=2)
    stream = make_stream(demo)
    plan = make_planner("balanced", 4).plan(Histogram.from_hashes(stream.hashes_of(0)))
    top = np.unique(stream.hashes_of(2))[:2]
    values = np.full((2, 4), UNTRIED)
    values[0, 1] = -0.25
    table = QTable.of(top, values, [7, 5], values > UNTRIED)
    uneven, even = (
        MeasuredRun(4.0, (700, 100, 100, 100), (3.5, 0.5, 0.5, 0.5), 90),
        MeasuredRun(1.5, (250,) * 4, (0.9,) * 4, 92),
    )
    batches = tuple(
        DemoBatch(n, *stream.hottest(n), n == 2, uneven, even if n == 1 else uneven, plan if n else None, 1.1, n)
        for n in range(3)
    )
    digests = {"stream": SAME, "hash": SAME, "unskew": SAME if equal else replace(SAME, rows=2999)}
    rounds = (Round(0.5, 1, 4.0, 100, 1), Round(1.5, 2, 2.0, 100, 2))
    return Outcome(demo, stream, batches, rounds, table, Proof(digests, 0, int(not equal)), "4.3.0", 2, 12.0)


def assert_self_contained(html: str) -> None:
    """Nothing is fetched from anywhere, nothing is left to fill in, and each variable has a value in both faces."""
    assert "http" not in html
    assert re.findall(r'(?:src|href)="(?!#)', html) == []
    assert re.findall(r"url\((?!#)|@import|<script|<link", html) == []
    assert "{{" not in html
    light, dark = html.split("prefers-color-scheme: dark")[:2]
    for name in set(re.findall(r"var\(--(\w+)\)", html)):
        assert f"--{name}:" in light
        assert f"--{name}:" in dark.split("}")[0] + dark.split("}")[1]
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', html)) <= set(ids)


def test_the_page_tells_what_was_found() -> None:
    """Figures, hot keys with share and reason, and the verdict; names of keys cannot break out of it."""
    outcome = made_up()
    html = page(outcome)
    assert_self_contained(html)
    assert "<b>1.3x</b><span>faster over all batches" in html  # 12 s by hash, 4 + 1.5 + 4 s by unskew
    assert "<b>2.7x</b><span>faster once hot keys are known" in html
    assert "Hash was faster in no batch" in html
    slow = replace(outcome.batches[0], unskew=replace(outcome.batches[0].unskew, seconds=5.0))
    assert "Hash was faster in batch 0 (by 25%)." in page(replace(outcome, batches=(slow, *outcome.batches[1:])))
    plan = outcome.batches[1].plan
    assert plan is not None
    assert plan.explain(int(plan.hot.hashes[int(plan.hot.rows.argmax())])).reason in html
    assert outcome.stream.hottest(1)[0] in html
    assert "Equal: the three are the same" in html
    assert "NOT EQUAL" in page(made_up(equal=False))
    evil = replace(outcome, batches=tuple(replace(batch, hot="<b>&") for batch in outcome.batches))
    assert "<b>&<" not in page(evil)


@pytest.mark.parametrize("equal", [True, False])
def test_the_exit_code_says_whether_results_are_equal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, equal: bool
) -> None:
    """1 where they are not, and the report is written all the same, over an older one."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("older")
    monkeypatch.setattr(package, "play", lambda demo, folder, watcher, service: made_up(equal))
    code = command.run(command.DemoOptions(Demo(), tmp_path / "report"))
    out = capsys.readouterr().out
    assert code == (0 if equal else 1)
    assert ("results equal: yes" in out) == equal
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


def test_on_a_terminal_the_table_is_live() -> None:
    """The batch that runs ticks in its own row; what is done stays; and then the summary."""
    outcome = made_up()
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    with screen_for(console, outcome.demo) as screen:
        assert isinstance(screen, Screen)
        screen.phase("starting Spark")
        screen.page("http://127.0.0.1:8080/")
        screen.done(outcome.batches[0])
        screen.running(Step(1, "quiet-otter", 0.39, "hash"))
        screen.running(Step(1, "quiet-otter", 0.39, "unskew"))
        view = Console(file=StringIO(), width=120)
        view.print(screen)
    summary(console, outcome, Path("there") / "index.html")
    assert "live, while it lasts: http://127.0.0.1:8080/" in console.file.getvalue()
    shown = view.file.getvalue()
    assert re.search(r"0 +quiet-cedar-22 .* hash +$", shown, re.MULTILINE)
    assert re.search(r"1 +quiet-otter 39% +0\.\d\d s +0\.\d s ·", shown)
    assert "1/3" in shown
    assert re.search(r"the 1 whose hot keys were known +4\.0 s +1\.5 s +2\.7x", console.file.getvalue())

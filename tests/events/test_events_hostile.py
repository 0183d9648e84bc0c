"""Logs that are cut, damaged or made to do harm: what could be read, one line on what could not, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.command import environment, in_process
from tests.events.event_lines import SQL, events, lz4, plan, stage_info, task, text, zstd
from unskew.cli.events import log_lines
from unskew.cli.events.read_log import ApplicationReport, read_log

NASTY = "</title><script>alert(1)</script>\x1b[2J\u202e[bold]{{table}}&amp;'\""


def report(data: bytes, tmp_path: Path) -> ApplicationReport:
    path = tmp_path / "log"
    path.write_bytes(data)
    return read_log("log", [("log", lambda: path.open("rb"))])


def spoilt(lines: list[bytes]) -> bytes:
    """The good log with these lines in the middle of it."""
    good = text(events()).splitlines(keepends=True)
    return b"".join([*good[:8], *(line + b"\n" for line in lines), *good[8:]])


LINES: dict[str, bytes] = {
    "half": b'{"Event":"SparkListenerTaskEnd","Stage ID":0,"Task In',
    "deep": b'{"Event":"SparkListenerTaskEnd","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "NaN": b'{"Event":"SparkListenerTaskEnd","Stage ID":NaN}',
    "wrong type": b'{"Event":"SparkListenerTaskEnd","Stage ID":"0","Task Info":[]}',
    "too large": b'{"Event":"SparkListenerTaskEnd","Stage ID":1e999,"Task Info":{"Index":99999999999999999999999}}',
    "no UTF-8": b'{"Event":"SparkListenerApplicationStart","App Name":"\xff\xfe"}',
    "nothing in it": b'{"Event":"SparkListenerTaskEnd"}',
    "null": b'{"Event":"SparkListenerStageCompleted","Stage Info":null}',
    "no JSON": b"\x00\x01\x02 free text",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_that_cannot_be_read_is_counted_and_the_rest_is_read(line: bytes, tmp_path: Path) -> None:
    """The stage is found as if it were not there."""
    got = report(spoilt([line, line]), tmp_path)
    assert [finding.lost for finding in got.findings] == [18.75]
    assert len(got.unread) == 1
    assert got.unread[0].startswith("2 lines ")


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are not held."""
    monkeypatch.setattr(log_lines, "LONGEST", 100_000)
    monkeypatch.setattr(log_lines, "CHUNK", 10_000)
    got = report(spoilt([b'{"Event":"SparkListenerTaskEnd","x":"' + b"a" * 300_000 + b'"}']), tmp_path)
    assert len(got.findings) == 1
    assert got.unread == ("1 line longer than 32 MB",)


@pytest.mark.parametrize(
    "extra",
    [
        stage_info("Completed"),
        stage_info("Submitted"),
        task(0, 5e12, 10**15),
        task(3, -5.0, -10),
        {"Event": f"{SQL}ExecutionEnd", "executionId": 77},
        {"Event": f"{SQL}ExecutionStart", "executionId": 0, "sparkPlanInfo": plan("other#1")},
        {"Event": "SparkListenerExecutorAdded", "Executor ID": "2", "Executor Info": {"Total Cores": -5}},
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.task.cpus": "zero"}},
        {"Event": "SparkListenerJobStart", "Stage IDs": [0], "Properties": {"spark.sql.execution.id": "²"}},
    ],
)
def test_numbers_that_repeat_or_make_no_sense_end_nothing(extra: dict[str, Any], tmp_path: Path) -> None:
    """Wherever in the log such an event stands."""
    lines = events()
    for at in range(len(lines) + 1):
        report(text([*lines[:at], extra, *lines[at:]]), tmp_path)


@settings(max_examples=60)
@given(at=st.integers(0, 10**9), pack=st.sampled_from([bytes, zstd, lz4]))
def test_a_log_that_breaks_off_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, at: int, pack: Any
) -> None:
    """Cut at any byte: each task whose line is whole counts, and at most one line could not be read."""
    whole = pack(text(events()))
    cut = whole[: at % (len(whole) + 1)]
    got = report(cut, tmp_path_factory.getbasetemp())
    assert got.tasks <= 16
    assert len(got.unread) <= 2
    if pack is bytes:
        assert got.tasks - cut[: cut.rfind(b"\n") + 1].count(b"ListenerTaskEnd") in (0, 1)


def test_of_a_packed_log_that_breaks_off_nearly_all_is_read(tmp_path: Path) -> None:
    """Of many tasks all but those in the last few kilobytes, by zstd and by lz4."""
    good = events()
    many = text([*good[:6], *(task(index, index % 977 / 7, index**2 % 7919) for index in range(8_000))])
    for pack in (zstd, lz4):
        packed = pack(many)
        got = report(packed[: len(packed) * 3 // 4], tmp_path)
        assert got.tasks > 5_000
        assert "breaks off" in got.unread[0]


def test_spaces_between_the_parts_of_an_event_do_no_harm(tmp_path: Path) -> None:
    """As other tools write JSON."""
    data = "".join(f" {json.dumps(event)}\n" for event in events()).encode()
    assert len(report(data, tmp_path).findings) == 1


@settings(max_examples=60)
@given(at=st.integers(0, 10**9), value=st.integers(0, 255), pack=st.sampled_from([bytes, zstd, lz4]))
def test_a_byte_that_was_changed_ends_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, pack: Any
) -> None:
    """Whatever it was; the answer may be another one."""
    data = bytearray(pack(text(events())))
    data[at % len(data)] = value
    report(bytes(data), tmp_path_factory.getbasetemp())


def test_an_application_that_runs_is_judged_by_what_has_ended(tmp_path: Path) -> None:
    """No end of stage, query or application: the tasks so far, less sure."""
    got = report(text(events()[:-3]), tmp_path)
    (finding,) = got.findings
    assert (finding.operator.kind, finding.cause.sureness) == ("other", "likely")
    assert got.application.ended is None


@pytest.mark.parametrize("packing", [b"\x82SNAPPY\x00", b"ZV\x01", b"\x1f\x8b\x08"])
def test_a_packing_that_is_not_read_is_named(packing: bytes, tmp_path: Path) -> None:
    """With what to do."""
    (said,) = report(packing + b"x" * 100, tmp_path).unread
    assert "unpack it first" in said


def test_nothing_of_a_log_is_run_by_a_terminal_or_a_browser(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names of applications, stages, queries and columns that are HTML, control codes, markup or slots of the page."""
    lines = events(NASTY, f"{NASTY}#1L")
    lines[3]["description"] = NASTY
    path = tmp_path / "log"
    path.write_bytes(text(lines))
    done = in_process(capsys, "events", path, path, "--html", tmp_path / "report.html")
    assert done.code == 0
    assert not {"\x1b", "\u202e"} & set(done.out)
    html = (tmp_path / "report.html").read_text()
    assert "<script" not in html
    assert html.count("<table>") == 1
    assert html.count("</title>") == 1


def test_names_of_a_megabyte_are_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """On the terminal, in JSON and on the page."""
    path = tmp_path / "log"
    path.write_bytes(text(events("n" * 1_000_000, "k" * 1_000_000 + "#1L")))
    done = in_process(capsys, "events", path, "--html", tmp_path / "report.html")
    assert done.code == 0
    assert len(done.out) < 50_000
    assert len((tmp_path / "report.html").read_text()) < 100_000


@pytest.mark.long
def test_a_log_of_two_gigabytes_needs_less_than_400_megabytes(tmp_path: Path) -> None:
    """Written by zstd, one application; the process may have no more."""
    from benchmarks.events import write

    path = write(tmp_path, 2_000_000_000, 25)["zstd"]
    (tmp_path / "log").unlink()
    code = (
        "import sys; from unskew.cli.entry import main\n"
        "try: main(['events', *sys.argv[1:]])\n"
        "finally: print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), "--json"], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["applications"][0]["tasks"] > 100_000
    assert int(done.stderr) < 400_000

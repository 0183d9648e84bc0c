"""``unskew events`` as a user has it: which paths it takes, what it prints and writes, and its exit codes."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cli.command import Done, in_process, is_one_line, on_a_terminal
from tests.events.event_lines import events, lz4, stage_info, task, text, write, zstd


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "app-1", events())


def found(capsys: pytest.CaptureFixture[str], *paths: str | Path) -> list[dict[str, Any]]:
    """The applications of ``--json``."""
    done = in_process(capsys, "events", *paths, "--json")
    assert (done.code, done.err) == (0, "")
    applications: list[dict[str, Any]] = json.loads(done.out)["applications"]
    return applications


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Done:
    return in_process(capsys, "events", *arguments)


# -- what it says


def test_the_table_names_operator_key_seconds_and_the_line_to_write(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    """Thirty seconds on four slots, of which 18.8 are lost; the call that counts keys, and that this is a bound."""
    done = run(capsys, log)
    assert (done.code, done.err) == (0, "")
    row = next(line for line in done.out.splitlines() if line.startswith("1  "))
    assert re.split(r"\s{2,}", row)[1:5] == ["18.8 s", "19%", "30.0 s", "11.2 s"]
    for part in ("group_apply on user", "sk.advise(df, key='user', operator='group_apply')", "upper bound", "job.py:9"):
        assert part in done.out


def test_json_has_the_same(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    """One document; seconds and shares as numbers."""
    (application,) = found(capsys, log)
    (stage,) = application["stages"]
    assert (application["id"], application["name"], application["ended"]) == ("app-1", "nightly", True)
    assert application["share_lost"] == pytest.approx(0.1875)
    assert (stage["operator"], stage["keys"], stage["partitions"]) == ("group_apply", [["user"]], 16)
    assert (stage["seconds_lost"], stage["skew"], stage["sureness"]) == (18.75, True, "sure")


def test_even_stages_are_not_spoken_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line, and exit code 0 also under a strict limit."""
    even = [task(index, 5.0, 500) for index in range(16)]
    path = write(tmp_path / "even", [*events()[:6], *even, *events()[-3:]])
    done = run(capsys, path, "--fail-above", "0%")
    assert done.code == 0
    assert done.out == "1 application, 16 tasks: no stage waits for a task that has more rows than the others\n"


@pytest.mark.parametrize(("limit", "code"), [("18%", 1), ("18.7%", 1), ("19%", 0), ("100%", 0)])
def test_the_exit_code_says_whether_too_much_is_lost(
    capsys: pytest.CaptureFixture[str], log: Path, limit: str, code: int
) -> None:
    """For CI: 1 above the limit, with everything printed; 2 is for errors."""
    done = run(capsys, log, "--fail-above", limit)
    assert (done.code, done.err) == (code, "")
    assert "18.8 s" in done.out


def test_top_shows_the_worst_and_says_how_many_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Over all applications."""
    for at in range(3):
        longer = [task(index, 1.0 if index else 30.0 + at, 100 if index else 3_000 + 100 * at) for index in range(16)]
        write(tmp_path / f"app-{at}", [*events(f"job {at}")[:6], *longer, *events()[-3:]])
    done = run(capsys, tmp_path, "--top", "1")
    assert "job 2" in done.out
    assert "job 1" not in done.out
    assert "2 more; --top 3 shows them" in done.out


def test_a_failed_a_repeated_and_a_second_attempt_of_a_task_count_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A speculative copy that also ended, one that was killed, one that failed; the first success counts."""
    lines = events()
    lines[7:7] = [task(1, 90.0, 9_000, reason="ExceptionFailure"), task(2, 50.0, 100, reason="TaskKilled")]
    lines.insert(12, task(0, 80.0, 3_000))
    (application,) = found(capsys, write(tmp_path / "log", lines))
    (stage,) = application["stages"]
    assert (stage["tasks"], stage["seconds"]) == (16, 30.0)
    assert "3 attempts" in stage["reasons"][-1]


def test_the_last_plan_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """AQE's update comes while the query runs."""
    from tests.events.event_lines import SQL, plan

    lines = events(key="wrong#1")
    update = {"Event": f"{SQL}AdaptiveExecutionUpdate", "executionId": 0, "sparkPlanInfo": plan("right#4")}
    (application,) = found(capsys, write(tmp_path / "log", [*lines[:10], update, *lines[10:]]))
    assert application["stages"][0]["keys"] == [["right"]]


# -- where it reads


@pytest.mark.parametrize("pack", [bytes, zstd, lz4])
@pytest.mark.parametrize("name", ["app-1", "app-1.inprogress"])
def test_a_log_is_read_however_it_is_packed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pack: Any, name: str
) -> None:
    """Seen from its first bytes, not from its name."""
    (tmp_path / name).write_bytes(pack(text(events())))
    (application,) = found(capsys, tmp_path / name)
    assert len(application["stages"]) == 1


def rolling(folder: Path, parts: int = 12) -> Path:
    """A rolling log of so many files, with what Spark puts beside them."""
    lines = events()
    target = folder / "eventlog_v2_app-1"
    target.mkdir()
    for part in range(parts):
        here = lines[part * len(lines) // parts : (part + 1) * len(lines) // parts]
        (target / f"events_{part + 1}_app-1.zstd").write_bytes(zstd(text(here)))
    (target / "appstatus_app-1").write_bytes(b"")
    (target / ".appstatus_app-1.crc").write_bytes(b"crc")
    return target


def test_a_rolling_log_is_one_application_in_the_order_of_its_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Twelve files, so that 10 comes after 9; given itself or the folder that it lies in."""
    target = rolling(tmp_path)
    assert found(capsys, target) == [dict(one, log=str(target)) for one in found(capsys, tmp_path)]
    assert len(found(capsys, target)[0]["stages"]) == 1


def test_a_compacted_part_stands_for_those_before_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """They may still lie there; what they say would count twice."""
    target = rolling(tmp_path)
    before = b"".join(
        text(events()[part * len(events()) // 12 : (part + 1) * len(events()) // 12]) for part in range(5)
    )
    (target / "events_5_app-1.zstd.compact").write_bytes(zstd(before))
    for part in (1, 3):
        (target / f"events_{part}_app-1.zstd").write_bytes(zstd(text([{"Event": "SparkListenerLogStart"}])))
    assert found(capsys, target)[0]["stages"][0]["tasks"] == 16


def test_a_folder_has_many_logs_and_other_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is no log is told in a line."""
    write(tmp_path / "app-2", events("second"))
    rolling(tmp_path)
    (tmp_path / "README.md").write_text("no log\n")
    (tmp_path / ".hidden").write_text("x")
    done = run(capsys, tmp_path)
    assert done.code == 0
    assert "2 applications, 32 tasks" in done.out
    assert "README.md: 1 line no event of Spark" in done.out


def test_a_path_may_be_a_uri(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    """As Spark's own settings name folders."""
    assert len(found(capsys, log.as_uri())[0]["stages"]) == 1


def zipped(*names: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            archive.writestr(name, text(events()))
    return target.getvalue()


def test_a_zip_of_a_history_server_is_read_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Downloaded from its page."""
    (tmp_path / "eventLogs.zip").write_bytes(zipped("app-1"))
    assert len(found(capsys, tmp_path / "eventLogs.zip")[0]["stages"]) == 1


@pytest.fixture
def server() -> Iterator[str]:
    """A history server with two applications."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = {
                "/api/v1/applications?limit=20": json.dumps([{"id": "app-1"}, {"id": "app-2"}]).encode(),
                "/api/v1/applications/app-1/logs": zipped("app-1"),
                "/api/v1/applications/app-2/logs": zipped("eventlog_v2_app-2/events_1_app-2"),
            }
            body = answers.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_a_history_server_gives_the_newest_or_the_named(capsys: pytest.CaptureFixture[str], server: str) -> None:
    """Single files and rolling logs."""
    assert [len(one["stages"]) for one in found(capsys, "--history-server", server)] == [1, 1]
    assert len(found(capsys, "--history-server", f"{server}/", "app-2")) == 1


# -- what it writes


def test_the_page_has_a_picture_for_each_stage_and_asks_nobody(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    """One file without scripts, links to elsewhere or pictures from elsewhere."""
    target = log.parent / "report.html"
    assert run(capsys, log, "--html", target).code == 0
    html = target.read_text()
    assert html.count("<svg") == 1
    assert html.count("<rect") == 16
    assert not re.search(r"<script|<img|<link|https?:|@import|url\(", html)


def test_on_a_terminal_the_table_fits_its_width(log: Path) -> None:
    """Also on a narrow one nothing is cut away."""
    lines = on_a_terminal(70, "events", log)
    rows = lines[1 : next(at for at, line in enumerate(lines) if line.startswith("1. "))]
    assert max(map(len, rows)) <= 70
    assert any("group_apply on user" in row and "sure" in row for row in rows)


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--history-server"),
        (["there-is-none"], "no such file"),
        (["empty"], "no event log in this folder"),
        (["readme.txt"], "no events of Spark"),
        (["broken.zip"], "as a zip"),
        (["nowhere://x/y"], "cannot be opened"),
        (["log", "--top", "0"], "--top"),
        (["log", "--fail-above", "20"], "such as 20%"),
        (["log", "--fail-above", "101%"], "0% to 100%"),
        (["log", "--html", "missing/report.html"], "does not exist"),
        (["--history-server", "ftp://x"], "http://history:18080"),
        (["--history-server", "http://127.0.0.1:1"], "no answer from the history server"),
    ],
)
def test_a_mistake_is_one_line_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    """Exit code 2, and nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "log", events())
    (tmp_path / "empty").mkdir()
    (tmp_path / "readme.txt").write_text("hello\n")
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 no zip")
    done = run(capsys, *arguments)
    assert (done.code, done.out) == (2, "")
    assert is_one_line(done.err), done.err
    assert says in done.err


def test_a_server_that_has_no_such_application_is_told(capsys: pytest.CaptureFixture[str], server: str) -> None:
    """By its own answer."""
    done = run(capsys, "--history-server", server, "app-3")
    assert done.code == 2
    assert "404" in done.err


def test_a_stage_whose_job_is_not_sql_goes_by_its_call_site(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The stage before it is named after the call that shuffles."""
    lines = [line for line in events() if "sql" not in line["Event"]]
    lines[3] = {"Event": "SparkListenerJobStart", "Stage IDs": [9, 0], "Properties": {}}
    lines.insert(4, stage_info("Submitted", stage=9, name="groupByKey at /jobs/nightly/job.py:7"))
    done = run(capsys, write(tmp_path / "log", lines))
    assert "rdd groupByKey at job.py:7" in done.out
    assert "sk.partition_by(" in done.out

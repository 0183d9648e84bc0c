"""Logs that older releases of Spark wrote (``tools/make_event_logs.py``): the same stages are named in all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.events.event_lines import LOGS
from unskew.cli.events.log_files import logs_at
from unskew.cli.events.read_log import read_log

SKEWED = {
    ("join", "user = uid"), ("window", "user"), ("repartition", "user"), ("aggregate", "user"),
    ("group_apply", "user"), ("rdd", ""),
}  # fmt: skip


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_each_skewed_stage_is_named_in_the_log_of_each_release(path: Path) -> None:
    """Six jobs with a stage each that waits for one key; nothing of the log is left unread."""
    (log,) = logs_at(str(path))
    report = read_log(log.name, log.files)
    skewed = [finding for finding in report.findings if finding.is_skew]
    assert report.unread == ()
    assert report.application.spark in path.stem
    assert {(finding.operator.kind, finding.operator.key_text) for finding in skewed} == SKEWED
    assert len(skewed) == len(SKEWED)
    assert {finding.slots for finding in skewed} == {4}


def test_there_are_logs_of_several_releases() -> None:
    """With AQE on and off each."""
    assert len(LOGS) >= 4
    assert {"on", "off"} == {path.stem.rpartition("-")[2] for path in LOGS}

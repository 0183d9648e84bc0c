"""Where rounds are merged: small ones on the loop, where it takes a moment, large ones beside it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.service.engines import a_report, engines, run
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Report
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.rounds import round_driver
from unskew.service.engine.rounds.reducer import RoundResult, reduce_round

ROWS, WORKERS = 300, 512  # 1.2 MB of cells


def large() -> Report:
    small = a_report(workers=WORKERS)
    values = np.full((ROWS, WORKERS), 0.25)
    table = QTable.of(np.arange(ROWS), values, np.ones(ROWS, np.int64), values > 0)
    return Report("a", 1, 1, table, small.records, small.frequent, small.loads, 1.0, longer=False)


@pytest.mark.parametrize(("report", "beside"), [(a_report(workers=WORKERS), False), (large(), True)])
def test_only_a_large_round_is_merged_in_a_thread(
    report: Report, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of reports is the bound; either way the agent is answered."""
    threads: list[threading.Thread] = []

    def seen(job: Any) -> RoundResult:
        threads.append(threading.current_thread())
        return reduce_round(job)

    monkeypatch.setattr(round_driver, "reduce_round", seen)

    async def main() -> None:
        async with engines() as (engine,):
            await engine.put_stream("clicks", StreamSpec(WORKERS, dsync=1.0, dsync_min=1.0))
            found = await engine.sync("clicks", report, 5.0, NOTHING_SEEN)
            assert found.merged

    run(main())
    assert [thread is not threading.main_thread() for thread in threads] == [beside]

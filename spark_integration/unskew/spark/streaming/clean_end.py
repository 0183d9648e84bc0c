"""Runs that ended cleanly: what lets the first batch of the next run be bound anew (``pin_log``).

A run that starts cannot know whether the one before has begun its first batch, so it keeps to that one's plan. A job
that is started for one batch at a time would stay on its first plan for ever. But a run knows when it is over: once
Spark says that its query has ended, without an error and with the last bound batch committed, nobody can have begun the
next one, and that is written beside the pins. The commit must be this run's own: an older driver that is only cut off
can then not commit that batch, and so not begin the next.

Spark is asked when the handler is closed, when another query starts in this process, and when the process ends. Who is
killed says nothing, and the next run keeps to the plan that is there.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from threading import Lock

from unskew.spark.streaming.pin_log import PinLog

__all__ = ["RunEnd", "note_ended_runs"]

_log = logging.getLogger("unskew.spark")
_running: list[RunEnd] = []
_lock = Lock()


class RunEnd:
    """One run of a query, asked after from now on. ``ended_with`` asks Spark for the last batch that the run committed,
    None while it runs; it may fail where Spark is gone."""

    def __init__(self, pins: PinLog, ended_with: Callable[[], int | None]) -> None:
        self._pins, self._ended_with = pins, ended_with
        with _lock:
            _running.append(self)

    def note(self) -> bool:
        """Write that the run has ended, if it has. Whether it need not be asked again."""
        try:
            batch = self._ended_with()
            if batch is None:
                return False
            self._pins.end(batch)
        except Exception as why:  # noqa: BLE001 - Spark or the folder is gone: the next run keeps to the plan it finds
            _log.info("whether a query has ended is not known: %s", why)
        return True


def note_ended_runs() -> None:
    """Write for each run of this process that has ended that it has."""
    with _lock:
        _running[:] = [run for run in _running if not run.note()]


atexit.register(note_ended_runs)

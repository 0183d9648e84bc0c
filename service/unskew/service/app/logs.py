"""Logs on stderr, one JSON document a line or plain text: time, level, logger, message, the fields that the caller
added (``extra={"stream": ..}``), and the trace. Bodies, keys and credentials are never logged. Of lines from one place
in the code ``_MOST_LINES`` are written in ``_SPAN`` seconds, of warnings and errors fewer, and how many were left out;
the audit log is whole.

``EventLog`` logs the reason of every plan, round and advice, and of everything that was skipped.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from time import monotonic
from typing import Any

from unskew.service.events.events import Event, PlanBuilt, RoundMerged, ScaleAdvised, Skipped
from unskew.service.events.spans import ids
from unskew.service.lru_cache import LruCache

__all__ = ["EventLog", "FloodGate", "configure", "mute_grpc", "tell_left_out"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_QUIET = 30.0  # seconds for which an equal line is not logged again
_LONGEST = 2000
_MOST_LINES, _MOST_WARNINGS, _SPAN = 1000, 50, 10.0
_AUDIT = "unskew.audit"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_added(record),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        added = "".join(f" {name}={_on_one_line(str(value))}" for name, value in _added(record).items())
        when = datetime.fromtimestamp(record.created, timezone.utc).strftime("%H:%M:%S")
        line = f"{when} {record.levelname.lower():7} {_on_one_line(record.getMessage())}{added}"
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join((line, *(f"  {_on_one_line(one)}" for one in trace)))


def _on_one_line(text: str) -> str:
    """Text from a caller must not look like another line of this log."""
    return text if text.isprintable() else "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def _added(record: logging.LogRecord) -> dict[str, Any]:
    added = {name: value for name, value in vars(record).items() if name not in _OWN}
    traced = ids()
    return added if traced is None else {**added, "trace_id": traced[0], "span_id": traced[1]}


@dataclass
class _PlaceSpan:
    began: float
    logger: str
    level: int
    lines: int = 0
    left_out: int = 0


class FloodGate(logging.Filter):
    """Lets so many lines of one place in the code through in each span of time, and says how many it left out."""

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._timer = timer
        self._spans: dict[tuple[str, int], _PlaceSpan] = {}  # as many as there are places that log

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _AUDIT:
            return True
        place, now = (record.pathname, record.lineno), self._timer()
        span = self._spans.get(place)
        if span is None or (not span.left_out and now - span.began >= _SPAN):
            span = self._spans[place] = _PlaceSpan(now, record.name, record.levelno)
        span.lines += 1
        passed = span.lines <= (_MOST_WARNINGS if record.levelno >= logging.WARNING else _MOST_LINES)
        span.left_out += not passed
        return passed

    def tell(self) -> None:
        """To be called every few seconds: a line for each place of which lines were left out, once the span is over."""
        now = self._timer()
        for place, span in list(self._spans.items()):
            if span.left_out and now - span.began >= _SPAN:
                del self._spans[place]
                text = "%d more lines like those before were left out in %.0f s"
                logging.getLogger(span.logger).log(span.level, text, span.left_out, now - span.began)


_gate = FloodGate()
tell_left_out = _gate.tell


def mute_grpc() -> None:
    """gRPC's C library writes to stderr past this log, a line for each handshake that fails: anybody could fill it. To
    be called before grpc is imported; ``GRPC_VERBOSITY=info`` in the environment brings its lines back."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def configure(level: str, form: str) -> None:
    """The log of this process. Libraries log from warnings on, the audit log always."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_gate)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("unskew").setLevel(level.upper())
    logging.getLogger(_AUDIT).setLevel(logging.INFO)


class EventLog:
    """An observer. Repetitions are logged once: a plan that was made before only at the level ``debug``, an equal
    reason for skipping and equal advice once in half a minute, with a count."""

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        self._timer = timer
        self._log = logging.getLogger("unskew.engine")
        self._logged: LruCache[tuple[str, str, str], tuple[float, int]] = LruCache(10_000)
        self._on: dict[type, Callable[[Any], None]] = {
            PlanBuilt: self._plan_built,
            RoundMerged: self._round_merged,
            ScaleAdvised: self._scale_advised,
            Skipped: self._skipped,
        }

    def __call__(self, event: Event, /) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _plan_built(self, event: PlanBuilt) -> None:
        info = event.info
        fields = {
            "stream": event.stream,
            "version": str(info.version),
            "batch": info.batch,
            "policy": event.policy,
            "digest": event.digest,
            "partitions": event.partitions,
            "hot_keys": event.hot_keys,
            "fragments": event.fragments,
            "moved": round(info.moved_rows, 6),
            "seconds": round(event.seconds, 6),
        }
        level = logging.DEBUG if event.outcome == "repeated" else logging.INFO
        self._log.log(level, "plan %s: %s", event.outcome, event.reason[:_LONGEST], extra=fields)

    def _round_merged(self, event: RoundMerged) -> None:
        fields = {
            "stream": event.stream,
            "round": event.epoch,
            "reports": event.reports,
            "dsync": event.dsync,
            "seconds": round(event.seconds, 6),
        }
        level = logging.DEBUG if event.outcome == "repeated" else logging.INFO
        self._log.log(level, "round merged: %s", event.outcome, extra=fields)

    def _scale_advised(self, event: ScaleAdvised) -> None:
        what = f"{event.action} {event.zone} {event.map_tasks} {event.reduce_tasks}"
        if self._suppressed(event.stream, "scale", what) is not None:
            fields = {"stream": event.stream, "zone": event.zone, "map": event.map_tasks, "reduce": event.reduce_tasks}
            self._log.info("scale %s: %s", event.action, event.reason[:_LONGEST], extra=fields)

    def _skipped(self, event: Skipped) -> None:
        suppressed = self._suppressed(event.stream, event.what, event.reason)
        if suppressed is None:
            return
        fields: dict[str, Any] = {"stream": event.stream}
        if event.round is not None:
            fields["round"] = event.round
        if suppressed:
            fields["suppressed"] = suppressed
        level = logging.WARNING if event.what in ("news", "round") else logging.INFO
        self._log.log(level, "%s skipped: %s", event.what, event.reason[:_LONGEST], extra=fields)

    def _suppressed(self, stream: str, what: str, text: str) -> int | None:
        """How many equal lines were left out since the last one; None: this one is left out, too."""
        now, key = self._timer(), (stream, what, text)
        at, suppressed = self._logged.find(key) or (float("-inf"), 0)
        if now - at < _QUIET:
            self._logged.put(key, (at, suppressed + 1))
            return None
        self._logged.put(key, (now, 0))
        return suppressed

"""One JSON document a line on stderr, or plain text: time, level, logger, message, and what the caller added by name
(``extra={"stream": ..}``). Bodies, keys and credentials are never logged."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any

__all__ = ["configure"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


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
        added = "".join(f" {name}={value}" for name, value in _added(record).items())
        when = datetime.fromtimestamp(record.created, timezone.utc).strftime("%H:%M:%S")
        line = f"{when} {record.levelname.lower():7} {record.getMessage()}{added}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _added(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def configure(level: str, form: str) -> None:
    """The log of this process. Libraries speak from warnings on; the audit log always does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("unskew").setLevel(level.upper())
    logging.getLogger("unskew.audit").setLevel(logging.INFO)

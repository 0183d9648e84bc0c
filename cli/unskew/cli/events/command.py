"""``unskew events``: checks the options, reads the logs, prints what was found, and fails if it is too much."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unskew.cli.errors import InputError, MissingExtraError
from unskew.cli.numbers import whole
from unskew.cli.output import check_file, path_of, writing
from unskew.core.errors import ConfigError

try:
    from unskew.cli.events.history_server import logs_of_server
    from unskew.cli.events.log_files import EventLog, logs_at
    from unskew.cli.events.read_log import ApplicationReport, Tick, read_log
except ModuleNotFoundError as missing:
    if missing.name != "msgspec":
        raise
    raise MissingExtraError(
        "unskew events needs msgspec, not installed; pip install 'unskew[cli]', or '.[cli]' in a clone"
    ) from None

__all__ = ["EventsOptions", "run"]

TOO_MUCH = 1
_PERCENT = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?%")


@dataclass(frozen=True)
class EventsOptions:
    """The options, checked. The report can be written."""

    paths: tuple[str, ...]
    server: str
    top: int
    fail_above: float | None
    as_json: bool
    html: Path | None

    @classmethod
    def of(
        cls, *, paths: Sequence[str], server: str, top: str, fail_above: str, as_json: bool, html: str | None
    ) -> EventsOptions:
        if not paths and not server:
            raise ConfigError("PATH", "", "an event log or a folder of them, or --history-server URL")
        page = None if html is None else path_of("--html", html)
        if page is not None:
            check_file("--html", page)
        most = None if not fail_above else _share(fail_above)
        return cls(tuple(paths), server, whole("--top", top, 1, 100_000), most, as_json, page)


def _share(text: str) -> float:
    share = float(text[:-1]) / 100.0 if _PERCENT.fullmatch(text) else 2.0
    if share > 1.0:
        raise ConfigError("--fail-above", text, "a share of an application's time, 0% to 100%, such as 20%")
    return share


def run(options: EventsOptions) -> int:
    """Print what was found; the exit code."""
    reports = _reports(options)
    if not any(report.events for report in reports):
        raise InputError(_nothing(reports))
    files = {} if options.html is None else {options.html: _page(reports, options.top).encode()}
    with writing(files):
        print(_text(reports, options), end="", flush=True)
    if options.fail_above is None:
        return 0
    return TOO_MUCH if any(report.share_lost > options.fail_above for report in reports) else 0


def _nothing(reports: Sequence[ApplicationReport]) -> str:
    first = reports[0]
    why = f" ({first.unread[0]})" if first.unread else ""
    return f"{first.log}: no events of Spark in it{why}; give a log that spark.eventLog.enabled=true wrote"


def _text(reports: Sequence[ApplicationReport], options: EventsOptions) -> str:
    if options.as_json:
        from unskew.cli.events.json_report import as_json

        return as_json(reports, options.top)
    from unskew.cli.events.table import as_table

    return as_table(reports, options.top)


def _page(reports: Sequence[ApplicationReport], top: int) -> str:
    from unskew.cli.events.html_report import page

    return page(reports, top)


def _reports(options: EventsOptions) -> list[ApplicationReport]:
    with _progress() as tick:
        return [read_log(log.name, log.files, tick) for log in _logs(options)]


def _logs(options: EventsOptions) -> Iterable[EventLog]:
    if options.server:
        return logs_of_server(options.server, options.paths)
    return [log for path in options.paths for log in logs_at(path)]


@contextmanager
def _progress() -> Iterator[Tick]:
    """On a terminal how much was read, on stderr; it is removed at the end. A packed log's size says little."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TransferSpeedColumn

    columns = SpinnerColumn(), "reading event logs", DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("events", total=None)
        yield lambda size: bar.advance(task, size)

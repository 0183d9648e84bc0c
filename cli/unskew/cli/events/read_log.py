"""Reads one application's log, its files one after another, and says what could not be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from msgspec import DecodeError

from unskew.cli.events.application_log import ApplicationLog
from unskew.cli.events.log_lines import LogDamagedError, lines_of
from unskew.cli.events.messages import DECODERS
from unskew.core.diagnosis.findings import Application, Finding

__all__ = ["ApplicationReport", "Tick", "read_log"]

Tick = Callable[[int], None]
_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"]*)"')


@dataclass(frozen=True)
class ApplicationReport:
    """``unread``: what could not be read, one text a kind; ``tasks`` that were looked at."""

    log: str
    application: Application
    findings: tuple[Finding, ...]
    unread: tuple[str, ...] = ()
    events: int = 0
    tasks: int = 0

    @property
    def seconds_lost(self) -> float:
        """To rows that are unevenly placed, in all stages."""
        return sum(finding.lost for finding in self.findings if finding.is_skew)

    @property
    def share_lost(self) -> float:
        """The same as a share of the application's time."""
        seconds = self.application.seconds
        return min(self.seconds_lost / seconds, 1.0) if seconds > 0 else 0.0


@dataclass
class _Skipped:
    damaged: int = 0
    too_long: int = 0
    foreign: int = 0

    def texts(self) -> tuple[str, ...]:
        """One for each kind of line that was skipped."""
        kinds = (
            (self.damaged, "could not be read as the event it should be"),
            (self.too_long, "longer than 32 MB"),
            (self.foreign, "no event of Spark"),
        )
        return tuple(f"{count:,} line{'s' * (count > 1)} {what}" for count, what in kinds if count)


def read_log(
    log: str, files: Iterable[tuple[str, Callable[[], BinaryIO]]], tick: Tick = lambda _: None
) -> ApplicationReport:
    """The report of the log whose ``files`` are these, each with its name and how it is opened."""
    gathered, skipped, broken = ApplicationLog(), _Skipped(), []
    for name, open_file in files:
        try:
            with open_file() as file:
                _read(file, gathered, skipped, tick)
        except LogDamagedError as why:
            broken.append(f"{name} {why}")
        except OSError as why:
            broken.append(f"{name} cannot be read: {why.strerror or why}")
    unread = (*broken, *skipped.texts())
    found = gathered.findings()
    return ApplicationReport(log, gathered.application(), found, unread, gathered.events, gathered.tasks)


def _read(file: BinaryIO, gathered: ApplicationLog, skipped: _Skipped, tick: Tick) -> None:
    for line in lines_of(file):
        if line is None:
            skipped.too_long += 1
            continue
        tick(len(line) + 1)
        kind = _EVENT.match(line)
        if kind is None:
            skipped.foreign += bool(line.strip())
            continue
        decoder = DECODERS.get(kind[1])
        if decoder is None:
            continue
        try:
            gathered.add(decoder.decode(line), line)
        except (DecodeError, RecursionError, OverflowError, UnicodeDecodeError):
            skipped.damaged += 1

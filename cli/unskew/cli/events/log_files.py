"""Which logs a path means: a file, a folder of them, a rolling log (``eventlog_v2_*``), or a zip from a history server.

Paths are local, or of a store that pyarrow knows (``s3://``, ``gs://``, ``hdfs://``); nothing is copied here first.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow import fs

from unskew.cli.errors import InputError, first_line

__all__ = ["EventLog", "logs_at", "logs_in_zip"]

_PART = re.compile(r"events_(\d{1,9})_.*")
_ROLLING = "eventlog_v2_"
_COMPACT = ".compact"


@dataclass(frozen=True)
class EventLog:
    """One application's log: its files in order, each with its name and how it is opened; bytes where it is known."""

    name: str
    files: tuple[tuple[str, Callable[[], BinaryIO]], ...]
    size: int


@dataclass(frozen=True)
class _Entry:
    name: str
    open: Callable[[], BinaryIO]
    size: int


def logs_at(text: str) -> list[EventLog]:
    """The logs that a path names; one clear error where there are none."""
    if not text:
        raise InputError("PATH: an empty path; give an event log, or a folder of them")
    system, path = _system(text)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise InputError(f"{text}: there is no such file or folder; give an event log, or a folder of them")
        if info.type == fs.FileType.File:
            return _of_file(text, system, info)
        logs = list(_in_folder(text, system, path))
    except (OSError, pa.ArrowException) as why:
        raise InputError(f"{text}: cannot be read: {first_line(why)}") from None
    if not logs:
        raise InputError(f"{text}: no event log in this folder; give the folder that spark.eventLog.dir names")
    return logs


def _system(text: str) -> tuple[fs.FileSystem, str]:
    if "://" not in text:
        return fs.LocalFileSystem(), str(Path(text).absolute())
    try:
        system, path = fs.FileSystem.from_uri(text)
    except (OSError, ValueError, pa.ArrowException) as why:
        raise InputError(f"{text}: this store cannot be opened: {first_line(why)}; copy the log here first") from None
    return system, path


def _of_file(text: str, system: fs.FileSystem, info: fs.FileInfo) -> list[EventLog]:
    if text.endswith(".zip"):
        return logs_in_zip(text, cast(BinaryIO, system.open_input_file(info.path)))
    return [EventLog(text, ((info.base_name, _opener(system, info.path)),), max(info.size, 0))]


def _opener(system: fs.FileSystem, path: str) -> Callable[[], BinaryIO]:
    return lambda: cast(BinaryIO, system.open_input_stream(path, compression=None))


def _in_folder(text: str, system: fs.FileSystem, path: str) -> Iterator[EventLog]:
    infos = sorted(system.get_file_info(fs.FileSelector(path)), key=lambda info: info.base_name)
    entries = [_Entry(info.base_name, _opener(system, info.path), max(info.size, 0)) for info in infos if info.is_file]
    rolling = _rolling(entries)
    if rolling:
        yield _log(text, rolling)
        return
    for info in infos:
        if not info.is_file and info.base_name.startswith(_ROLLING):
            yield from _in_folder(f"{text.rstrip('/')}/{info.base_name}", system, info.path)
    for entry in entries:
        if not entry.name.startswith((".", "_", "appstatus_")) and entry.size:
            yield EventLog(f"{text.rstrip('/')}/{entry.name}", ((entry.name, entry.open),), entry.size)


def _rolling(entries: Iterable[_Entry]) -> list[_Entry]:
    """The parts of a rolling log in order; a compacted part stands for all before it."""
    numbered = [(int(match[1]), entry) for entry in entries if (match := _PART.fullmatch(entry.name))]
    compacted = max((number for number, entry in numbered if entry.name.endswith(_COMPACT)), default=0)
    kept = [
        (number, entry)
        for number, entry in numbered
        if number > compacted or (number == compacted and entry.name.endswith(_COMPACT)) or compacted == 0
    ]
    return [entry for _, entry in sorted(kept, key=lambda one: (one[0], one[1].name))]


def _log(name: str, entries: Sequence[_Entry]) -> EventLog:
    return EventLog(name, tuple((entry.name, entry.open) for entry in entries), sum(entry.size for entry in entries))


def logs_in_zip(name: str, file: BinaryIO) -> list[EventLog]:
    """The logs in a zip, as a history server gives them: files, or the folder of a rolling log."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as why:
        raise InputError(f"{name}: cannot be read as a zip: {first_line(why)}") from None
    folders: dict[str, list[_Entry]] = {}
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if not member.is_dir() and not path.name.startswith((".", "appstatus_")):
            entry = _Entry(path.name, partial(_open_member, archive, member), member.file_size)
            folders.setdefault(str(path.parent), []).append(entry)
    logs = []
    for entries in folders.values():
        rolling = _rolling(entries)
        groups = [rolling] if rolling else [[entry] for entry in entries]
        logs += [_log(f"{name}: {group[0].name}", group) for group in groups]
    return logs


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    try:
        return cast(BinaryIO, archive.open(member))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as why:
        raise OSError(None, first_line(why)) from None

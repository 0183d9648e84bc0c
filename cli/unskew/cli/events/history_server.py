"""Logs from a history server, by its REST API: the newest applications, or those that are named."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

from msgspec import DecodeError, Struct
from msgspec.json import decode

from unskew.cli.errors import InputError, first_line
from unskew.cli.events.log_files import EventLog, logs_in_zip
from unskew.core.errors import ConfigError

__all__ = ["logs_of_server"]

NEWEST = 20
_TIMEOUT = 60.0
_CHUNK = 1 << 20
_MOST_JSON = 64 << 20


class _Listed(Struct):
    id: str


def logs_of_server(url: str, applications: Sequence[str]) -> Iterator[EventLog]:
    """The logs of these applications, else of the newest ones. Each is kept in a temporary file while it is read."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("--history-server", url, "its address, such as http://history:18080")
    root = f"{url.rstrip('/')}/api/v1/applications"
    for application in applications or _newest(root):
        with tempfile.TemporaryFile() as kept:
            _fetch(f"{root}/{quote(application, safe='')}/logs", cast(BinaryIO, kept))
            yield from logs_in_zip(application, cast(BinaryIO, kept))


def _newest(root: str) -> list[str]:
    with tempfile.TemporaryFile() as kept:
        _fetch(f"{root}?limit={NEWEST}", cast(BinaryIO, kept))
        text = kept.read(_MOST_JSON)
    try:
        return [listed.id for listed in decode(text, type=list[_Listed])]
    except DecodeError:
        raise InputError(f"{root}: gave no list of applications; is it a Spark history server?") from None


def _fetch(url: str, into: BinaryIO) -> None:
    """The body of the answer, in the file, from its start."""
    try:
        with urlopen(url, timeout=_TIMEOUT) as answer:
            while chunk := answer.read(_CHUNK):
                into.write(chunk)
    except HTTPError as why:
        raise InputError(f"{url}: the history server answered {why.code} {why.reason}") from None
    except (OSError, ValueError) as why:
        reason = getattr(why, "reason", None) or first_line(why)
        raise InputError(f"{url}: no answer from the history server: {reason}") from None
    into.seek(0)

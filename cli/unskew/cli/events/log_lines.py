"""A log's lines, unpacked as they are read: plain, zstd, or lz4 as Spark writes it. Memory does not grow with the log.

How a file is packed is seen from its first bytes, not from its name. What breaks off is read as far as it goes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa

__all__ = ["LONGEST", "LogDamagedError", "lines_of"]

LONGEST = 32 << 20  # bytes of a line; a longer one is skipped
CHUNK = 1 << 20
_SMALL = 1 << 13  # a read of packed data; of a log that breaks off no more than this is lost
_MAGIC = 8
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_RAW, _LZ4_METHODS = 0x10, (0x10, 0x20)
_LZ4_MOST = 64 << 20  # bytes of a block
_BROKEN = "breaks off, or is damaged, in its packed data"


class LogDamagedError(Exception):
    """The rest of a log cannot be read; says why."""


def lines_of(file: BinaryIO) -> Iterator[bytes | None]:
    """Each line, None for one that is too long. Raises ``LogDamagedError`` where the log breaks off."""
    held = bytearray()
    dropping = False
    for chunk in _unpacked(file):
        first, *others = chunk.split(b"\n")
        if not dropping:
            held += first
        if not others:
            if len(held) > LONGEST:
                held.clear()
                dropping = True
            continue
        yield None if dropping else bytes(held)
        yield from others[:-1]
        held, dropping = bytearray(others[-1]), False
    if dropping or held:
        yield None if dropping else bytes(held)


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    head = file.read(_MAGIC)
    for magic, name in _UNREAD.items():
        if head.startswith(magic):
            raise LogDamagedError(f"is packed by {name}, which is not read; unpack it first")
    unpack = next((how for magic, how in _PACKINGS.items() if head.startswith(magic)), _plain)
    yield from unpack(_Rejoined(head, file))


class _Rejoined:
    """A file whose first bytes were read already; what Arrow and we need of a file."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head = head
        self._file = file
        self.closed = False

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes, none at the end."""
        head, self._head = self._head[:size], self._head[size:]
        return head or self._file.read(size)

    def exactly(self, size: int) -> bytes:
        """So many bytes, or fewer at the end of the file."""
        parts, missing = [], size
        while missing and (part := self.read(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """The caller closes the file."""
        self.closed = True


def _plain(file: _Rejoined) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _zstd(file: _Rejoined) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
        while chunk := _next(stream):
            yield chunk


def _next(stream: pa.CompressedInputStream) -> bytes:
    try:
        return bytes(stream.read(_SMALL))
    except OSError:
        raise LogDamagedError(_BROKEN) from None


def _lz4(file: _Rejoined) -> Iterator[bytes]:
    """The blocks that Java's LZ4BlockOutputStream writes; an empty one ends a stream, after which another may begin."""
    codec = pa.Codec("lz4_raw")
    while header := file.exactly(_LZ4_HEADER.size):
        if len(header) < _LZ4_HEADER.size:
            raise LogDamagedError(_BROKEN)
        magic, token, packed, size, _ = _LZ4_HEADER.unpack(header)
        method = token & 0xF0
        if magic != b"LZ4Block" or method not in _LZ4_METHODS or not 0 <= max(packed, size) <= _LZ4_MOST or packed < 0:
            raise LogDamagedError(_BROKEN)
        data = file.exactly(packed)
        if len(data) < packed:
            raise LogDamagedError(_BROKEN)
        if size > 0:
            yield data if method == _LZ4_RAW else _block(codec, data, size)


def _block(codec: pa.Codec, data: bytes, size: int) -> bytes:
    try:
        return bytes(codec.decompress(data, decompressed_size=size, asbytes=True))
    except (OSError, ValueError):
        raise LogDamagedError(_BROKEN) from None


_PACKINGS: dict[bytes, Callable[[_Rejoined], Iterator[bytes]]] = {b"\x28\xb5\x2f\xfd": _zstd, b"LZ4Block": _lz4}
_UNREAD = {b"\x82SNAPPY\x00": "snappy", b"ZV": "lzf", b"\x1f\x8b": "gzip", b"\x04\x22\x4d\x18": "lz4's own command"}

"""Histograms as messages: whole, or in chunks that a receiver joins within set bounds.

Keys may be in any order and in any chunks; the histogram is the same. A key that occurs twice, in one chunk or in two,
is refused with a ``WireError``, because it is not clear which count is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import sealed
from unskew.core.arrays.ranking import ascending
from unskew.core.errors import UnskewError, WireError
from unskew.core.histogram.histogram import MAX_ROWS, Histogram, Tail
from unskew.core.sketches.tally import exact_sum
from unskew.core.stream_spec import Part, check_name
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import packed
from unskew.wire.refusals import encoder, parsed, refusal
from unskew.wire.streams import part_from_message, part_to_message

__all__ = [
    "MAX_HOSTS", "Assembler", "chunks", "histogram_from_bytes", "histogram_from_message", "histogram_to_bytes",
    "histogram_to_message",
]  # fmt: skip

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

MAX_HOSTS = 1 << 17  # 2 MB of a chunk's 4
_HOST_BITS = MAX_HOSTS.bit_length() - 1
_CHUNK_KEYS = 1 << 16  # 1 MB, 1.5 with spread: an event loop decodes it in a short time
_OVERHEAD = 1024  # what a chunk takes beside its arrays
_U8 = np.dtype("<u8")
_NUMBERS = [
    pb.Histogram.DESCRIPTOR.fields_by_name[name].number
    for name in ("hashes", "counts", "spread", "tail_rows", "tail_keys")
]

Message = pb.Histogram | pb.ReportHistogramRequest


class _Keys(NamedTuple):
    hashes: U64
    counts: I64
    spread: I64 | None

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.counts.nbytes + (0 if self.spread is None else self.spread.nbytes)


def histogram_to_message(histogram: Histogram) -> pb.Histogram:
    message = pb.Histogram()
    _put_keys(message, histogram, slice(None))
    _put_tail(message, histogram.tail)
    return message


def histogram_from_message(message: pb.Histogram, field: str = "histogram", max_keys: int | None = None) -> Histogram:
    """The histogram, its keys in any order, each once."""
    keys = _keys_of(message, f"{field}.", max_keys)
    return _histogram([keys], _tail_of(message, f"{field}."), f"{field}.")


def histogram_to_bytes(histogram: Histogram, before: bytes = b"") -> bytes:
    """The message's bytes, after these ``before``.

    They are joined here: a protobuf message copies each array four times, and copying 16 MB blocks all threads.
    """
    tail = (None, None) if histogram.tail is None else (histogram.tail.rows, histogram.tail.keys)
    arrays = (histogram.hashes, histogram.counts, histogram.spread, *tail)
    pieces: list[bytes | bytearray | memoryview] = [before]
    for number, array in zip(_NUMBERS, arrays, strict=True):
        if array is not None and len(array):
            data = np.ascontiguousarray(array).astype(_U8, copy=False).data.cast("B")
            pieces += (packed.field_head(number, data.nbytes), data)
    return b"".join(pieces)


def histogram_from_bytes(data: bytes) -> Histogram:
    return histogram_from_message(parsed(pb.Histogram, data, "histogram"))


def chunks(
    histogram: Histogram, stream: str, part: Part, keys: int = _CHUNK_KEYS
) -> Iterator[pb.ReportHistogramRequest]:
    """Chunks of at most so many keys; the tail is in the first, folded to 131,072 hosts where it is finer."""
    tail = histogram.tail
    first = _first_chunk(stream, part)
    _put_tail(first, tail.fold(_HOST_BITS) if tail is not None and tail.bits > _HOST_BITS else tail)
    for start in range(0, max(len(histogram.hashes), 1), keys):
        chunk = pb.ReportHistogramRequest() if start else first
        _put_keys(chunk, histogram, slice(start, start + keys))
        yield chunk


@encoder("stream")
def _first_chunk(stream: str, part: Part) -> pb.ReportHistogramRequest:
    return pb.ReportHistogramRequest(stream=stream, part=part_to_message(part))


class Assembler:
    """Joins the chunks of a histogram, within bounds. A chunk that is refused changes nothing.

    ``max_bytes`` bounds the bytes of all chunks plus a kilobyte for each, because many small ones take memory too.
    """

    def __init__(self, max_keys: int = 4_000_000, max_bytes: int = 128 << 20) -> None:
        self.max_keys, self.max_bytes = max_keys, max_bytes
        self._header: tuple[str, Part] | None = None
        self._parts: list[_Keys] = []
        self._tail: Tail | None = None
        self._keys = self._rows = self._bytes = 0

    @property
    def stream(self) -> str:
        """The stream that the first chunk names; empty before it."""
        return "" if self._header is None else self._header[0]

    def add(self, chunk: pb.ReportHistogramRequest) -> None:
        """Add the next chunk, or raise a ``WireError``."""
        header = self._header_of(chunk)
        keys, tail = _keys_of(chunk, "", self.max_keys - self._keys), _tail_of(chunk, "")
        size = self._bytes + keys.nbytes + (0 if tail is None else tail.rows.nbytes + tail.keys.nbytes) + _OVERHEAD
        if size > self.max_bytes:
            raise WireError("hashes", f"more than {self.max_bytes:,} bytes in all; list fewer keys", too_much=True)
        if tail is not None and self._tail is not None:
            raise WireError("tail_rows", "there is a tail in an earlier chunk; give it in one chunk only")
        if self._parts and len(keys.hashes) and (keys.spread is None) != (self._parts[0].spread is None):
            raise WireError("spread", "in some chunks only; give it for all keys or for none")
        rows = self._rows + exact_sum(keys.counts) + (exact_sum(tail.rows) if tail is not None else 0)
        if rows > MAX_ROWS:
            raise WireError("counts", f"{rows} rows in all; a histogram holds at most 2^63 - 1")
        self._header, self._bytes, self._rows = header, size, rows
        self._tail = tail if tail is not None else self._tail
        if len(keys.hashes):
            self._parts.append(keys)
            self._keys += len(keys.hashes)

    def finish(self) -> tuple[str, Part, Histogram]:
        """The stream, the part and the histogram of all chunks. Not for an event loop: it may sort a million keys."""
        if self._header is None:
            raise WireError("stream", "no chunk came; the first one says whose histogram it is")
        return *self._header, _histogram(self._parts, self._tail, "")

    def _header_of(self, chunk: pb.ReportHistogramRequest) -> tuple[str, Part]:
        """The header: in the first chunk; a later one may repeat it."""
        if self._header is None:
            try:
                return check_name("stream", chunk.stream), part_from_message(chunk.part)
            except UnskewError as why:
                raise refusal("", why) from None
        stream, part = self._header
        if chunk.stream and chunk.stream != stream:
            raise WireError("stream", f"the first chunk is of stream {stream!r}; send each histogram by itself")
        if chunk.HasField("part") and part_from_message(chunk.part) != part:
            raise WireError("part", "not the part of the first chunk; send each histogram by itself")
        return self._header


def _put_keys(message: Message, histogram: Histogram, at: slice) -> None:
    message.hashes = packed.pack_numbers(histogram.hashes[at])
    message.counts = packed.pack_numbers(histogram.counts[at])
    if histogram.spread is not None:
        message.spread = packed.pack_numbers(histogram.spread[at])


def _put_tail(message: Message, tail: Tail | None) -> None:
    if tail is not None:
        message.tail_rows = packed.pack_numbers(tail.rows)
        message.tail_keys = packed.pack_numbers(tail.keys)


def _keys_of(message: Message, at: str, most: int | None) -> _Keys:
    """The listed keys in the order of the message; ``at`` is its path for errors."""
    hashes = packed.unpack_hashes(message.hashes, f"{at}hashes")
    if most is not None and len(hashes) > most:
        raise WireError(f"{at}hashes", f"{len(hashes):,} keys where {most:,} are left; list fewer", too_much=True)
    counts = packed.unpack_counts(message.counts, f"{at}counts", len(hashes), least=1)
    spread = message.spread
    return _Keys(hashes, counts, packed.unpack_counts(spread, f"{at}spread", len(hashes)) if spread else None)


def _tail_of(message: Message, at: str) -> Tail | None:
    rows, keys = message.tail_rows, message.tail_keys
    if not rows and not keys:
        return None
    hosts = len(rows) // 8
    if hosts > MAX_HOSTS:
        raise WireError(f"{at}tail_rows", f"{hosts:,} hosts; at most {MAX_HOSTS:,} are allowed", too_much=True)
    row_counts = packed.unpack_counts(rows, f"{at}tail_rows", hosts)
    key_counts = packed.unpack_counts(keys, f"{at}tail_keys", hosts)
    try:
        return Tail(row_counts, key_counts)
    except UnskewError as why:
        raise refusal(f"{at}tail_rows", why) from None


def _histogram(parts: list[_Keys], tail: Tail | None, at: str) -> Histogram:
    parts = parts or [_Keys(np.zeros(0, np.uint64), np.zeros(0, np.int64), None)]
    hashes, counts, spread = parts[0]
    if len(parts) > 1:
        hashes = sealed(np.concatenate([part.hashes for part in parts]))
        counts = sealed(np.concatenate([part.counts for part in parts]))
        if spread is not None:
            spread = sealed(np.concatenate([part.spread for part in parts if part.spread is not None]))
    if not ascending(hashes):
        order = np.argsort(hashes)
        hashes, counts = sealed(hashes[order]), sealed(counts[order])
        spread = None if spread is None else sealed(spread[order])
        twice = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(twice):
            raise WireError(f"{at}hashes", f"key {int(hashes[twice[0]])} is there twice; give each key once")
    try:
        return Histogram(hashes, counts, tail, spread, _checked=True)  # checked above: in order, and each count above 0
    except UnskewError as why:
        raise refusal(f"{at}counts", why) from None

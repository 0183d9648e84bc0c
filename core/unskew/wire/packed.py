"""Arrays as bytes and back: 64-bit numbers, little endian, eight bytes each; sets as bits, the lowest of a byte first.

On a little-endian machine reading copies only sets of bits: other arrays are read-only views of the message's bytes.
The length is checked first, so no memory is allocated for a size that only the sender claims.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.frozen import sealed
from unskew.core.errors import WireError
from unskew.core.histogram.histogram import MAX_ROWS

__all__ = [
    "field_head", "pack_bits", "pack_floats", "pack_numbers", "unpack_bits", "unpack_counts", "unpack_floats",
    "unpack_hashes",
]  # fmt: skip

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_U8, _F8 = np.dtype("<u8"), np.dtype("<f8")
_BYTES = 8
_LENGTH = 2  # the wire type of a field that begins with its length


def field_head(number: int, size: int) -> bytearray:
    """What stands before the bytes, or the message, of a protobuf field: its number, its kind and its length."""
    head = bytearray([number << 3 | _LENGTH])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return head


def pack_numbers(numbers: U64 | I64) -> bytes:
    """Hashes, or counts of 0 or more; the reader refuses a negative count, which looks like one beyond 2^63 - 1."""
    return numbers.astype("<i8" if numbers.dtype == np.int64 else _U8, copy=False).tobytes()


def pack_floats(numbers: F64) -> bytes:
    """-0.0 is written as 0.0: equal tables must be equal bytes."""
    return (numbers + 0.0).astype(_F8, copy=False).tobytes()


def pack_bits(rows: NDArray[np.bool_]) -> bytes:
    """Each row in whole bytes."""
    return np.packbits(rows, axis=1, bitorder="little").tobytes()


def unpack_hashes(data: bytes, field: str) -> U64:
    """All hashes in these bytes."""
    if len(data) % _BYTES:
        raise WireError(field, f"{len(data):,} bytes are no whole number of hashes; each takes {_BYTES}")
    return _native(np.frombuffer(data, _U8))


def unpack_counts(data: bytes, field: str, count: int, *, least: int = 0, most: int = MAX_ROWS) -> I64:
    """``count`` counts, each within the bounds."""
    _sized(data, field, count, "counts", count * _BYTES)
    counts: U64 = _native(np.frombuffer(data, _U8))
    if count and (int(counts.max()) > most or (least and int(counts.min()) < least)):
        wrong = int(counts.max()) if int(counts.max()) > most else int(counts.min())
        raise WireError(field, f"{wrong} is not allowed; use {least} to {most}")
    return counts.view(np.int64)


def unpack_floats(data: bytes, field: str, rows: int, columns: int) -> F64:
    """A table of ``rows`` by ``columns`` numbers; the caller validates the values."""
    _sized(data, field, rows, f"rows of {columns} numbers", rows * columns * _BYTES)
    table: F64 = _native(np.frombuffer(data, _F8)).reshape(rows, columns)
    return table


def unpack_bits(data: bytes, field: str, rows: int, columns: int) -> NDArray[np.bool_]:
    """A table of ``rows`` by ``columns`` bits. A bit beyond the last column is refused: the sender has more of them."""
    wide = -(-columns // 8)
    _sized(data, field, rows, f"rows of {columns} bits in {wide} bytes", rows * wide)
    packed = np.frombuffer(data, np.uint8).reshape(rows, wide)
    if columns % 8 and (packed[:, -1] >> (columns % 8)).any():
        raise WireError(field, f"a bit beyond the {columns} of its row is set; the rest of a row's last byte is 0")
    bits = np.unpackbits(packed, axis=1, count=columns, bitorder="little")
    return sealed(sealed(bits).view(np.bool_))


def _sized(data: bytes, field: str, count: int, what: str, size: int) -> None:
    if len(data) != size:
        raise WireError(field, f"{len(data):,} bytes; {count:,} {what} take {size:,}")


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the machine's byte order: unchanged where that is little endian."""
    return array if _U8.isnative else sealed(array.astype(array.dtype.newbyteorder("=")))

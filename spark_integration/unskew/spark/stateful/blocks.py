"""Blocks of state as bytes in files, and back: each is an Arrow batch, compressed, after its size and a checksum.

What is read and written is counted to the byte. On a disk of its own a task reads just the blocks that it needs; on a
store that is asked over a network it reads the gaps between them too, where they are short, and asks less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from unskew.core.errors import StateError
from unskew.core.operators.keyed_state import BLOCK, NEVER, Blocks, StatePart, cut, no_blocks

if TYPE_CHECKING:
    from unskew.spark.folders import Folder

__all__ = ["EXPIRES", "HASH", "Reader", "Writer", "micros"]

HASH, EXPIRES = "h", "x"  # of a stored table: the key's hash first; micros of expiry last, where keys expire
_CODEC = "zstd"
_SIZE = 4  # bytes: how many, or how large, what follows is when it is not compressed
_HEAD = 2 * _SIZE  # of a block: that, and the checksum of it and its first hash
_GAP = 1 << 16


@dataclass(eq=False)
class Reader:
    """Reads blocks and indexes of a folder; ``read`` counts the bytes."""

    folder: Folder
    schema: pa.Schema
    read: int = field(default=0, init=False)

    def index(self, part: StatePart) -> Blocks:
        """Where the blocks of this partition are."""
        if not part.index_bytes:
            return no_blocks()
        file = part.files[-1]
        data = self._bytes(file.name, [(file.size - part.index_bytes, part.index_bytes)])[0]
        if xxhash.xxh64_intdigest(data) != part.index_digest:
            raise StateError(self._damaged(file.name))
        return _index_from_bytes(data)

    def table(self, part: StatePart, blocks: Blocks) -> pa.Table:
        data = self.raw(part, blocks)
        batches = [pa.ipc.read_record_batch(_unpacked(one), self.schema) for one in data]
        return pa.Table.from_batches(batches, self.schema)

    def raw(self, part: StatePart, blocks: Blocks) -> list[memoryview]:
        """The bytes of these blocks, in their order."""
        blocks_read: list[memoryview] = [memoryview(b"")] * len(blocks)
        for number in np.unique(blocks["file"]).tolist():
            at = np.flatnonzero(blocks["file"] == number)
            at = at[np.argsort(blocks["offset"][at])]
            name = part.files[number].name
            places = list(zip(blocks["offset"][at].tolist(), blocks["length"][at].tolist(), strict=True))
            for where, data in zip(at.tolist(), self._bytes(name, places), strict=True):
                if data[_SIZE:_HEAD] != _check(data, int(blocks["first"][where])):
                    raise StateError(self._damaged(name))
                blocks_read[where] = data
        return blocks_read

    def _bytes(self, name: str, places: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes at these places (offset, length), ascending."""
        gap = 0 if self.folder.local is not None else _GAP
        pieces = []
        try:
            with self.folder.fs.open_input_file(self.folder.path(name)) as file:
                for start, stop, inside in _together(places, gap):
                    data = memoryview(file.read_at(stop - start, start))
                    self.read += len(data)
                    pieces += [data[offset - start : offset - start + length] for offset, length in inside]
        except FileNotFoundError:
            raise StateError(
                f"{self.folder.path(name)} is listed by the last manifest and is not there: was the checkpoint copied "
                "in part, or cleaned by something else? Restore it whole, or delete the state and begin anew"
            ) from None
        return pieces

    def _damaged(self, name: str) -> str:
        return f"{self.folder.path(name)} is damaged: a checksum does not fit. Restore the checkpoint from a copy"


def _together(places: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """What to read at once: (start, stop, the places inside)."""
    reads: list[tuple[int, int, list[tuple[int, int]]]] = []
    for offset, length in places:
        if reads and offset - reads[-1][1] <= gap:
            start, _, inside = reads.pop()
            reads.append((start, offset + length, [*inside, (offset, length)]))
        else:
            reads.append((offset, offset + length, [(offset, length)]))
    return reads


@dataclass(eq=False)
class Writer:
    """The one new file of a task, in the making. ``number`` is its place in the part's list of files."""

    number: int
    _pieces: list[bytes | memoryview] = field(default_factory=list, init=False)
    size: int = field(default=0, init=False)

    def add(self, table: pa.Table, size: int) -> Blocks:
        """A table in the order of its hashes, cut into blocks."""
        table = table.combine_chunks()
        hashes = table.column(HASH).to_numpy()
        starts = cut(hashes, size)
        blocks = np.zeros(len(starts), BLOCK)
        for i, (start, stop) in enumerate(zip(starts, [*starts, len(hashes)][1:], strict=True)):
            rows = table.slice(start, stop - start)
            blocks[i] = (hashes[start], *self._put(_packed(rows, int(hashes[start]))), stop - start, _least(rows))
        return blocks

    def copy(self, data: Sequence[memoryview], blocks: Blocks) -> Blocks:
        """Blocks as they are, from another file."""
        moved = blocks.copy()
        for i, one in enumerate(data):
            moved["file"][i], moved["offset"][i], moved["length"][i] = self._put(one)
        return moved

    def _put(self, data: bytes | memoryview) -> tuple[int, int, int]:
        self._pieces.append(data)
        self.size += len(data)
        return self.number, self.size - len(data), len(data)

    def finish(self, index: Blocks) -> tuple[bytes, int, int]:
        """The file, with this index at its end; the index's size and digest."""
        data = _index_to_bytes(index)
        self._put(data)
        return b"".join(self._pieces), len(data), xxhash.xxh64_intdigest(data)


# -- encodings --------------------------------------------------------------------------------------------------


def _packed(rows: pa.Table, first: int) -> bytes:
    (batch,) = rows.to_batches()
    plain = batch.serialize()
    packed: bytes = pa.compress(plain, _CODEC, asbytes=True)
    size = len(plain).to_bytes(_SIZE, "little")
    return size + _check(memoryview(size + bytes(_SIZE) + packed), first) + packed


def _check(data: memoryview, first: int) -> bytes:
    """Of the block that begins with this hash: another one's is another, wherever it was read by mistake."""
    size = int.from_bytes(data[:_SIZE], "little")
    return xxhash.xxh32_intdigest(data[_HEAD:], (first ^ size) & 0xFFFFFFFF).to_bytes(_SIZE, "little")


def _unpacked(data: memoryview) -> pa.Buffer:
    return pa.decompress(data[_HEAD:], int.from_bytes(data[:_SIZE], "little"), _CODEC)


def _index_to_bytes(index: Blocks) -> bytes:
    """Column by column: each is much like its neighbours."""
    data = b"".join(np.ascontiguousarray(index[name]).tobytes() for name in BLOCK.names or ())
    packed: bytes = pa.compress(data, _CODEC, asbytes=True)
    return len(index).to_bytes(_SIZE, "little") + packed


def _index_from_bytes(data: memoryview) -> Blocks:
    count = int.from_bytes(data[:_SIZE], "little")
    plain = pa.decompress(data[_SIZE:], count * BLOCK.itemsize, _CODEC)
    index, at = np.zeros(count, BLOCK), 0
    for name in BLOCK.names or ():
        kind = BLOCK[name]
        index[name] = np.frombuffer(plain, kind, count, at)
        at += kind.itemsize * count
    return index


def _least(rows: pa.Table) -> int:
    if rows.column_names[-1] != EXPIRES:
        return NEVER
    return int(micros(rows.column(EXPIRES)).min(initial=NEVER))


def micros(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Microseconds since 1970; never, where there is none."""
    times: NDArray[np.int64] = column.fill_null(NEVER).to_numpy()
    return times

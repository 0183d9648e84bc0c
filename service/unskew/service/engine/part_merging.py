"""Parts of a batch are merged as they come, so that what is kept has the size of the histogram and not of the reports.

A part keeps its name, under which it counts once: of merged parts the first has the counts of all, the others are
empty. So repeated, late and older parts are known as before, and the release before this one reads the same sum. Parts
are merged where as much has come as was merged before, and a megabyte at least: each byte is merged a few times at
most, and what is not merged yet is never more than half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unskew.core.errors import UnskewError
from unskew.service.concurrency import SingleFlight
from unskew.service.engine.base import Base
from unskew.service.errors import QuotaError
from unskew.service.events.events import Skipped
from unskew.service.lru_cache import LruCache
from unskew.service.stores.part_bytes import empty_part, keys_in, merged_part, types_of
from unskew.service.stores.records import PartKey, PartOutcome, StoredPart

__all__ = ["PartMerging", "merged_parts"]

_LEAST = 1 << 20
_SOURCES, _TRIES = 10_000, 4
_MAKES_ROOM = {"batch bytes", "identity bytes", "store"}


@dataclass
class _Sizes:
    """Bytes of a source in its run: what came here since the last merge, and what that left."""

    run: int
    loose: int = 0
    merged: int = 0

    @property
    def due(self) -> bool:
        return self.loose >= max(_LEAST, self.merged)


class PartMerging:
    def __init__(self, base: Base) -> None:
        self._base = base
        self._sizes: LruCache[tuple[str, str, int, str], _Sizes] = LruCache(_SOURCES)
        self._merges: SingleFlight[bool] = SingleFlight()

    async def put(self, stream: str, key: PartKey, data: bytes) -> PartOutcome:
        """Store the part. Where there is no room, and its source has parts that are not merged, merging makes some."""
        store = self._base.store
        try:
            outcome = await store.put_part(stream, key, data)
        except QuotaError as why:
            sizes = self._of(stream, key)
            if why.quota not in _MAKES_ROOM or not sizes.loose or not await self._merged(stream, key, sizes):
                raise
            outcome = await store.put_part(stream, key, data)
        if outcome is PartOutcome.STORED:
            sizes = self._of(stream, key)
            if sizes.loose or sizes.merged:
                sizes.loose += len(data)
            else:
                sizes.merged = len(data)  # the first one here: there is nothing to merge it with
            while sizes.due and await self._merged(stream, key, sizes):
                pass  # what came meanwhile may be as much again
        return outcome

    def _of(self, stream: str, key: PartKey) -> _Sizes:
        name = stream, key.kind, key.batch, key.source
        sizes = self._sizes.find(name)
        if sizes is None or sizes.run < key.run:
            sizes = self._sizes.put(name, _Sizes(key.run))
        return sizes

    async def _merged(self, stream: str, key: PartKey, sizes: _Sizes) -> bool:
        name = stream, key.kind, key.batch, key.source
        return await self._merges.once(name, lambda: self._merge(stream, key, sizes))

    async def _merge(self, stream: str, key: PartKey, sizes: _Sizes) -> bool:
        """Whether the parts take less now. The part is stored already: what fails here fails no report."""
        base = self._base
        try:
            async with base.room(sizes.loose + sizes.merged):
                for _ in range(_TRIES):  # another replica may be faster
                    loose = sizes.loose
                    seen = await base.store.source_parts(stream, key.kind, key.batch, key.source)
                    data = await base.heavy(keys_in(seen.parts), merged_parts, seen.parts)
                    if not data or await base.store.replace_parts(stream, seen, data):
                        sizes.loose -= loose
                        sizes.merged = sum(len(data.get(part.key, part.data)) for part in seen.parts)
                        return bool(data)
        except UnskewError as why:
            base.observer(Skipped(stream, "report", f"its parts are merged later: {why}"))
        return False


def merged_parts(parts: Sequence[StoredPart]) -> dict[PartKey, bytes]:
    """What takes the place of these parts, of one source and kind; nothing where they cannot be added up. Pure."""
    by_types: dict[bytes, list[StoredPart]] = {}
    for part in parts:
        by_types.setdefault(types_of(part), []).append(part)
    replaced: dict[PartKey, bytes] = {}
    for group in by_types.values():
        full = [part for part in group if part.data != empty_part(part)]
        if len(full) > 1:
            try:
                first = merged_part(full)
            except (UnskewError, ValueError):
                continue  # too many rows for one histogram: whoever plans from them is told
            replaced |= {full[0].key: first, **_emptied(full[1:])}
    return replaced


def _emptied(parts: Iterable[StoredPart]) -> dict[PartKey, bytes]:
    return {part.key: empty_part(part) for part in parts}

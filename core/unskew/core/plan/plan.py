"""The plan: an immutable routing table with a version, and the one rule by which rows are routed.

1. A hot key that is kept whole goes to its partition.
2. A hot key that is split goes to one of its slots, chosen by the row's spread hash (``slots``).
3. Every other key goes where its host goes: ``tail[h >>> (64 - log2 H)]``.

``route`` is the rule in numpy and ``route_one`` in plain Python; in Spark the same tables are compiled to expressions.
All three agree to the bit in every process (DESIGN, promise 3). How a plan is made is in ``planners``, how it is
encoded in ``unskew.wire``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.apportion import apportion
from unskew.core.arrays.frozen import by_fields, derived, freeze, hashes_of
from unskew.core.arrays.types import I32, I64, U64
from unskew.core.errors import PlanError
from unskew.core.histogram.histogram import Histogram, fold_hosts, host_of
from unskew.core.plan.check import check_plan
from unskew.core.plan.hot_keys import SPLIT, HotKeys, pick
from unskew.core.plan.slots import UNITS_BITS
from unskew.core.sketches.tally import exact_sum

__all__ = ["Explanation", "Plan", "PlanInfo", "Version"]


_BLOCK = 16_384  # rows routed at a time: the intermediate arrays stay in cache
_UINT64 = 2**64 - 1


@dataclass(frozen=True, order=True)
class Version:
    """The number of a plan, (incarnation, number); an agent adopts only a newer plan."""

    incarnation: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.incarnation <= _UINT64 and 0 <= self.number <= _UINT64):
            raise PlanError(f"version {self.incarnation}.{self.number}: both parts must fit 64 bits, unsigned")

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.number}"

    def next(self) -> Version:
        return Version(self.incarnation, self.number + 1)


@dataclass(frozen=True)
class PlanInfo:
    """The origin of a plan and its predictions. Two plans may differ in this and route alike."""

    stream: str = ""
    version: Version = field(default_factory=Version)
    policy: str = ""
    reason: str = ""
    batch: int | None = None
    previous: Version | None = None
    moved_rows: float = 0.0
    moved_keys: float = 0.0
    rows: int = 0
    keys: int = 0
    loads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Where one key's rows go, and why."""

    hash: int
    kind: str
    partitions: tuple[int, ...]
    shares: tuple[float, ...]
    rows: int | None
    share_of_rows: float | None
    reason: str
    version: Version | None = None  # of the plan

    def __str__(self) -> str:
        where = ", ".join(f"{p} ({s:.1%})" for p, s in zip(self.partitions, self.shares, strict=True))
        heavy = "" if self.share_of_rows is None else f", {self.rows:,} rows, {self.share_of_rows:.2%} of all"
        return f"hash {self.hash:#018x}: {self.kind}{heavy}\n  partition {where}\n  because {self.reason}"


@dataclass(frozen=True, eq=False)
class Plan:
    """An immutable routing table, as ``make_planner(...).plan(histogram)`` returns it.

    Plans with equal digests route equally; equal plans also have the same ``info``.

    Parameters
    ----------
    partitions
        How many partitions there are.
    tail
        The partition of each host, for the keys that are not listed.
    hot
        The listed keys and their routes.
    key_types
        The Spark types of the key columns.
    info
        The origin of the plan and its predictions.

    Raises
    ------
    PlanError
        If the tables are not a plan, such as a route outside the partitions.

    Examples
    --------
    >>> from unskew.core import Histogram, hash_keys, make_planner
    >>> hashes = hash_keys(["a", "b", "a"])
    >>> plan = make_planner("hash", partitions=2).plan(Histogram.from_hashes(hashes))
    >>> plan.route(hashes).tolist() == [plan.route_one(int(h)) for h in hashes]
    True
    """

    partitions: int
    tail: I32
    hot: HotKeys
    key_types: tuple[str, ...] = ()
    info: PlanInfo = field(default_factory=PlanInfo)

    def __post_init__(self) -> None:
        freeze(self, tail=np.int32)
        check_plan(self)

    __reduce__ = by_fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and (self.digest, self.info) == (other.digest, other.info)

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def version(self) -> Version:
        """The number of this plan."""
        return self.info.version

    @property
    def tail_bits(self) -> int:
        """log2 of the number of hosts."""
        return len(self.tail).bit_length() - 1

    @derived
    def digest(self) -> str:
        """Identifies everything that decides a route, and nothing else."""
        slots = self.hot.slots
        parts = (self.hot.hashes, self.hot.home, slots.bits, slots.first, slots.second, slots.cut, self.tail)
        content = hashlib.sha256(f"unskew plan 1 {self.partitions} {list(self.key_types)}".encode())
        for part in parts:
            content.update(len(part).to_bytes(8, "little"))
            content.update(part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes())
        return content.hexdigest()

    @property
    def slots(self) -> int:
        """Entries of the hot table: one for a whole key, its slots for a split one. At most ``MAX_SLOTS``."""
        whole = len(self.hot) - len(self.hot.slots.bits)
        return whole + len(self.hot.slots.first)

    @property
    def fragments_held(self) -> int:
        """(key, partition) pairs of the hot keys: one for a whole key, one for each partition of a split key."""
        return len(self.hot) - len(self.hot.slots.bits) + self.hot.slots.fragments

    @property
    def splits(self) -> bool:
        """Whether any key is split, so that routing needs a spread hash a row."""
        return len(self.hot.slots.bits) > 0

    # -- the rule, in numpy ---------------------------------------------------------------------------------

    def route(self, hashes: U64, spread: U64 | None = None) -> I32:
        """The partition of each row.

        Parameters
        ----------
        hashes
            The rows' key hashes, as ``hash_keys`` returns them or signed as Spark has them; not the keys themselves.
        spread
            A hash of the rows' other columns, needed where the plan splits keys (``splits``).

        Raises
        ------
        PlanError
            If the plan splits keys and there are no spread hashes, or lengths differ.
        """
        keys = hashes_of(hashes, "hashes")
        spread = None if spread is None else hashes_of(spread, "spread")
        self._need_spread(keys, spread)
        out = np.empty(len(keys), np.int32)
        for start in range(0, len(keys), _BLOCK):
            part = slice(start, start + _BLOCK)
            block, bucket = self._place_block(keys[part])
            if bucket is not None and self.splits and spread is not None:
                self._route_split(block, bucket, spread[part])
            out[part] = block
        return out

    def _place_block(self, keys: U64) -> tuple[I32, I64 | None]:
        """The partition of each key, below 0 where the spread hash decides; and its bucket, if there are any."""
        tail = self.tail.take(host_of(keys, self.tail_bits))
        if len(self.hot) == 0:
            return tail, None
        table, home = self.hot.table
        bucket = self.hot.lookup.bucket(keys)
        return pick(table.take(bucket) == keys, home.take(bucket), tail), bucket

    def _route_split(self, out: I32, bucket: I64, spread: U64) -> None:
        """Replace the places below 0 by a partition: picked out where they are few, else all at once."""
        offset, shift = self.hot.split_table
        split = out < 0
        if np.count_nonzero(split) * 3 < len(out):
            rows = np.flatnonzero(split)
            at = bucket[rows]
            out[rows] = self.hot.slots.route(offset.take(at), shift.take(at), spread[rows])
        else:
            out[:] = pick(split, self.hot.slots.route(offset.take(bucket), shift.take(bucket), spread), out)

    def _need_spread(self, keys: U64, spread: U64 | None) -> None:
        if spread is None and self.splits:
            raise PlanError(
                "this plan splits keys, so each row needs a spread hash: route(hashes, spread), where spread is a "
                "hash of the row's other columns; or plan with a policy that keeps keys whole (kip)"
            )
        if spread is not None and len(spread) != len(keys):
            raise PlanError(f"{len(keys)} key hashes but {len(spread)} spread hashes: give one of each a row")

    # -- the rule, one row at a time ------------------------------------------------------------------------

    def route_one(self, key: int, spread: int = 0) -> int:
        """The partition of one row, by the ``key`` and ``spread`` hashes as Python ints: the rule that others are
        tested by."""
        key, spread = key & _UINT64, spread & _UINT64
        index = self._index(key)
        if index < 0:
            return int(self.tail[key >> (64 - self.tail_bits)])
        home = int(self.hot.home[index])
        if home >= 0:
            return home
        slots = self.hot.slots
        j = SPLIT - home
        slot = int(slots.offset[j]) + ((spread >> 1) >> (UNITS_BITS - int(slots.bits[j])))
        return int(slots.first[slot] if (spread >> 1) < int(slots.cut[slot]) else slots.second[slot])

    def _index(self, key: int) -> int:
        at = int(np.searchsorted(self.hot.hashes, np.uint64(key)))
        return at if at < len(self.hot) and int(self.hot.hashes[at]) == key else -1

    # -- what the plan means --------------------------------------------------------------------------------

    def explain(self, key: int) -> Explanation:
        """Where the key with this hash (``key``) goes, its share of the rows, and why."""
        key &= _UINT64
        index = self._index(key)
        if index < 0:
            partition, host = self.route_one(key), key >> (64 - self.tail_bits)
            return Explanation(
                key, "tail", (partition,), (1.0,), None, None,
                f"it is not listed in this plan: its host, {host}, goes there", self.version,
            )  # fmt: skip
        home, rows = int(self.hot.home[index]), int(self.hot.rows[index])
        units = {home: 1 << UNITS_BITS} if home >= 0 else self.hot.slots.units(SPLIT - home)
        return Explanation(
            key, "hot" if home >= 0 else f"hot, split in {len(units)}", tuple(units),
            tuple(part / 2**UNITS_BITS for part in units.values()), rows,
            rows / self.info.rows if self.info.rows else None, self.hot.reasons[int(self.hot.reason[index])],
            self.version,
        )  # fmt: skip

    def fragments(self, hashes: U64, counts: I64) -> tuple[I64, I32, I64]:
        """How the ``counts`` of the keys ``hashes`` are shared out: (index of the key, partition, rows) triples.

        Split keys are shared out in whole rows by their slots; the rows really routed scatter around these
        figures, binomially, because the spread hash decides row by row.
        """
        place = self.place(hashes)
        whole = np.flatnonzero(place >= 0)
        key, partition, part = self._split_fragments(place, counts)
        return (
            np.concatenate([whole, key]),
            np.concatenate([place[whole], partition]),
            np.concatenate([counts[whole], part]),
        )

    def _split_fragments(self, place: I32, counts: I64) -> tuple[I64, I32, I64]:
        """The same for the split keys alone."""
        nothing = np.zeros(0, np.int64)
        keys, partitions, rows = [nothing], [nothing.astype(np.int32)], [nothing]
        for i in np.flatnonzero(place < 0).tolist():
            units = self.hot.slots.units(SPLIT - int(place[i]))
            parts = np.array(apportion(int(counts[i]), list(units.values())), np.int64)
            some = parts > 0
            keys.append(np.full(int(some.sum()), i))
            partitions.append(np.fromiter(units, np.int32, len(units))[some])
            rows.append(parts[some])
        return np.concatenate(keys), np.concatenate(partitions), np.concatenate(rows)

    def place(self, hashes: U64) -> I32:
        """The partition of each key of ``hashes``, or -1 - j where it is the j-th split key."""
        keys = hashes_of(hashes, "hashes")
        out = np.empty(len(keys), np.int32)
        for start in range(0, len(keys), _BLOCK):
            part = slice(start, start + _BLOCK)
            out[part], _ = self._place_block(keys[part])
        return out

    def loads(self, histogram: Histogram) -> I64:
        """The rows that each partition would get of those in ``histogram``."""
        return self._allotted(histogram, histogram.counts) + self._tail_sum(histogram, "rows")

    def cardinalities(self, histogram: Histogram) -> I64:
        """The distinct keys (fragments) that each partition would get of those in ``histogram``."""
        return self._allotted(histogram, np.ones(len(histogram.hashes), np.int64)) + self._tail_sum(histogram, "keys")

    def _allotted(self, histogram: Histogram, each: I64) -> I64:
        """``each`` key's rows summed per partition (or 1s: fragments); split keys one by one, the others at once."""
        place = self.place(histogram.hashes)
        if not self.splits:
            return self._sum(place, each)
        whole = place >= 0
        key, partition, rows = self._split_fragments(place, histogram.counts)
        part = rows if each is histogram.counts else each[key]
        return self._sum(np.where(whole, place, 0), np.where(whole, each, 0)) + self._sum(partition, part)

    def _sum(self, partitions: I32, rows: I64) -> I64:
        if exact_sum(rows) < 2**53:
            return np.bincount(partitions, weights=rows, minlength=self.partitions).astype(np.int64)
        sums = np.zeros(self.partitions, np.int64)
        np.add.at(sums, partitions, rows)
        return sums

    def _tail_sum(self, histogram: Histogram, what: str) -> I64:
        if histogram.tail is None:
            return np.zeros(self.partitions, np.int64)
        bits = max(self.tail_bits, histogram.tail.bits)
        return self._sum(self.tail_at(bits), fold_hosts(getattr(histogram.tail, what), bits))

    def tail_at(self, bits: int) -> I32:
        """The tail as a table of ``2**bits`` hosts, of which it has at most as many (``bits`` >= ``tail_bits``)."""
        return np.repeat(self.tail, 1 << (bits - self.tail_bits))

    def moved(self, previous: Plan, histogram: Histogram) -> tuple[float, float]:
        """The share of the rows of ``histogram``, and of its keys, that are elsewhere than under ``previous``."""
        rows, keys = _moved_listed(self, previous, histogram)
        total, distinct = histogram.total, histogram.keys
        if histogram.tail is not None:
            bits = max(self.tail_bits, previous.tail_bits, histogram.tail.bits)
            gone = self.tail_at(bits) != previous.tail_at(bits)
            rows += exact_sum(fold_hosts(histogram.tail.rows, bits)[gone])
            keys += exact_sum(fold_hosts(histogram.tail.keys, bits)[gone])
        return (rows / total if total else 0.0, keys / distinct if distinct else 0.0)

    def moved_share(self, previous: Plan, histogram: Histogram) -> float:
        """The share of the rows of ``histogram`` (of their state, if it grows with them) that moves from
        ``previous``."""
        return self.moved(previous, histogram)[0]


def _moved_listed(plan: Plan, previous: Plan, histogram: Histogram) -> tuple[int, int]:
    now, before = plan.place(histogram.hashes), previous.place(histogram.hashes)
    whole = (now >= 0) & (before >= 0)
    gone = whole & (now != before)
    rows, keys = exact_sum(histogram.counts[gone]), int(gone.sum())
    for i in np.flatnonzero(~whole).tolist():
        count = int(histogram.counts[i])
        there, here = _shares(previous, int(before[i])), _shares(plan, int(now[i]))
        stay = sum(min(units, there.get(partition, 0)) for partition, units in here.items())
        moved = count - (count * stay >> UNITS_BITS)
        rows += moved
        keys += moved > 0
    return rows, keys


def _shares(plan: Plan, place: int) -> dict[int, int]:
    return {place: 1 << UNITS_BITS} if place >= 0 else plan.hot.slots.units(SPLIT - place)

"""RDDs: records put where a plan says, by ``mapPartitions`` with vector hashing of their keys.

The partition of a record is a function of the plan and the record alone, so it holds for RDDs of any source, for
``DStream.transform``, and for tasks that run again. Keys are hashed as the plan's key types, as Spark hashes a column
of them. A key that does not fit the plan's type is refused, whatever other keys it comes with. Classic Spark only.

With a pin each task reports what its partition held, when the last record is out. Nothing is learned here: that would
hold a partition's objects in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from unskew.core.errors import ConfigError, KeyTypeError, PlanError, UnskewError
from unskew.core.histogram.histogram import Histogram
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import parse
from unskew.core.plan.plan import Plan
from unskew.core.rounds.partition_agent import PartitionRouting
from unskew.spark.place.executor import this_partition
from unskew.spark.place.task_pin import TaskPin
from unskew.spark.place.task_reports import report

if TYPE_CHECKING:
    from pyspark import RDD

__all__ = ["RecordRouter", "partition_by", "router_of", "spread_hash"]

T = TypeVar("T")

_CHUNK = 4096  # records hashed at a time
_SEED = 0x5EED
_PLAIN = (int, str, bytes, float, bool, type(None))
_UNFIT = (UnskewError, TypeError, ValueError, OverflowError)


def partition_by(
    rdd: RDD[T],
    key: Callable[[T], Any],
    plan: Plan,
    spread: Callable[[T], Any] | None = None,
    types: Sequence[str] = (),
    pin: TaskPin | None = None,
) -> RDD[T]:
    """The records themselves, each in the partition that ``plan`` gives it.

    ``key`` gives a record's key: a value, or a tuple where the plan has several key types. ``spread`` gives what tells
    the records of one key apart, an id say: a number, string, bytes, or a tuple of these.
    ``types``: the keys' Spark types, where the plan has none. ``pin``: the batch that this is, to be reported.
    """
    _check(rdd)
    router = router_of(key, plan, spread, types)
    if pin is not None:
        if pin.plan is None or pin.plan.digest != plan.digest:
            raise ConfigError("pin", pin, "a pin of the plan that places the records: pin(plan)")
        router = replace(router, pin=replace(pin, parts=rdd.getNumPartitions()))
    pairs = rdd.mapPartitions(router, preservesPartitioning=False)
    return pairs.partitionBy(plan.partitions, lambda partition: partition).mapPartitions(_records)


def _check(rdd: object) -> None:
    from pyspark import RDD

    if not isinstance(rdd, RDD):
        allowed = "an RDD of classic Spark; Spark Connect has none: use repartition(df, key) or place(df, key)"
        raise ConfigError("rdd", type(rdd).__name__, allowed)


def router_of(
    key: Callable[[T], Any], plan: Plan, spread: Callable[[T], Any] | None, types: Sequence[str]
) -> RecordRouter:
    """What places the records, or why they cannot be placed."""
    if not callable(key):
        raise ConfigError("key", key, "a function of a record that gives its key")
    if spread is not None and not callable(spread):
        raise ConfigError("spread", spread, "a function of a record that gives what tells records of one key apart")
    if plan.splits and spread is None:
        raise PlanError(
            "this plan splits keys: give spread=, a function of a record that tells those of one key apart (an id, or "
            "offset), or plan with a policy that keeps keys whole (kip)"
        )
    return RecordRouter(plan, key, spread, _types(plan, types))


def _types(plan: Plan, given: Sequence[str]) -> tuple[str, ...]:
    types = tuple(str(parse(name)) for name in given)
    if plan.key_types and types and types != plan.key_types:
        raise PlanError(f"the plan is for keys of type ({', '.join(plan.key_types)}), not ({', '.join(types)})")
    if not plan.key_types and not types:
        raise ConfigError("types", (), "the Spark type of each key column, as ('bigint',): the plan does not have any")
    return plan.key_types or types


@dataclass(frozen=True, eq=False)
class RecordRouter:
    """What runs in a task: records to (partition, record)."""

    plan: Plan
    key: Callable[[Any], Any]
    spread: Callable[[Any], Any] | None
    types: tuple[str, ...]
    pin: TaskPin | None = None

    def __call__(self, records: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        rest, hashes_of_chunks = iter(records), [np.zeros(0, np.uint64)]
        while chunk := list(islice(rest, _CHUNK)):
            hashes, where = self._placed(chunk)
            if self._reports:
                hashes_of_chunks.append(hashes)
            yield from zip(where, chunk, strict=True)
        if self.pin is not None and self._reports:
            held = Histogram.from_hashes(np.concatenate(hashes_of_chunks))
            report(self.pin, this_partition(), PartitionRouting(np.zeros(0, np.int32), held))

    @property
    def _reports(self) -> bool:
        return self.pin is not None and self.pin.service is not None

    def _placed(self, records: Sequence[Any]) -> tuple[NDArray[np.uint64], list[int]]:
        hashes = self._hashes([self.key(record) for record in records])
        spread = None
        if self.plan.splits and self.spread is not None:
            spread = np.fromiter((spread_hash(self.spread(one)) for one in records), np.uint64, len(records))
        where: list[int] = self.plan.route(hashes, spread).tolist()
        return hashes, where

    def _hashes(self, keys: list[Any]) -> NDArray[np.uint64]:
        """Together where they go together; else one by one. So no key is taken or refused for its neighbours: 1 and
        2.5 are doubles by themselves, and no column of one type."""
        columns = [[*map(_plain, one)] for one in ([keys] if len(self.types) == 1 else self._columns(keys))]
        try:
            return hash_keys(*columns, types=self.types)
        except _UNFIT:
            return np.concatenate([self._hash(*one) for one in zip(*columns, strict=True)])

    def _hash(self, *key: Any) -> NDArray[np.uint64]:
        try:
            return hash_keys(*([part] for part in key), types=self.types)
        except _UNFIT as why:
            raise self._wrong(key if len(key) > 1 else key[0], why) from None

    def _columns(self, keys: list[Any]) -> list[list[Any]]:
        for key in keys:
            if not isinstance(key, (tuple, list)) or len(key) != len(self.types):
                raise self._wrong(key, f"give a tuple of {len(self.types)}")
        return [list(column) for column in zip(*keys, strict=True)]

    def _wrong(self, key: Any, why: object) -> KeyTypeError:
        return KeyTypeError(
            f"key {key!r:.80} ({type(key).__name__}) does not fit the plan's key type ({', '.join(self.types)}): {why}"
        )


def spread_hash(value: Any) -> int:
    """A hash of a plain value that is the same in every process."""
    parts = value if isinstance(value, tuple) else (value,)
    plain = tuple(_plain(part) for part in parts)
    if not all(isinstance(part, _PLAIN) for part in plain):
        raise ConfigError("spread", value, "a number, string, bytes, or a flat tuple of these, for each record")
    return int(xxhash.xxh64_intdigest(repr(plain).encode("utf-8", "surrogatepass"), _SEED))


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's: the size of one must not depend on its neighbours' either."""
    return value.item() if isinstance(value, (np.number, np.bool_)) else value


def _records(pairs: Iterable[tuple[int, T]]) -> Iterator[T]:
    return (record for _, record in pairs)

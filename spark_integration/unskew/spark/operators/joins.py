"""Joins of skewed keys: split on one side, copied on the other, and two native shuffles in all.

Without a plan both sides are placed in flight (``in_flight``): written into the same cells by Spark's hash of their
keys, a task reads the same cells of both, and of a hot cell a part of one side and the whole of the other. With one:

The rows of a hot key on the split side are spread over the partitions that the plan gives it, by their spread hash.
The other side's rows of this key are copied to exactly these partitions, so each row of one side meets each of the
other once. Both sides go through ``repartitionById`` with the same n, and the frames are joined by the partition and
the key: Spark finds the rows where it needs them and shuffles no more, with AQE or without.

- The side that is copied must not keep rows without partner by itself, so left, semi and anti joins split the left
  side, right joins the right one, inner joins either, and full joins none: they take plans that keep keys whole.
- A NULL in the key never matches. Such rows are dropped before the shuffle where the join drops them; where it keeps
  them they are placed by their spread hash instead of their key: any partition is sound, and none is hot.
- Semi and anti joins become joins with the right side's distinct keys. As they stand, Spark's optimiser pushes them
  below the exchange of the left side, and shuffles three times.
- The columns are those of ``left.join(right, on, how)``, for Spark itself resolves the join ``USING`` the key and the
  helper column, which is dropped; so aliases (``F.col("e.time")``) hold as well.
- Spark 4.0 joins without a further shuffle only what is partitioned by all that it is joined by. There the exchange is
  by the key's columns and a salt that, hashed after them, gives the partition. Spark compares floats in a normal form
  that it does not hash by, so float keys are shuffled again.

Where Spark would broadcast one side there is no skew to mend: unless a plan is given, such a join is left to Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import ConfigError, PlanError
from unskew.core.in_flight.layout import fine_cells
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT, Bounds, JoinPlan, JoinRows, join_plan, side_of
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin
from unskew.spark.caller_frame import warn
from unskew.spark.frame.histogram import Sampling, counted_sides
from unskew.spark.frame.jvm import expected_rows, input_partitions, physical_text, slots_of
from unskew.spark.frame.keys import AUTO, Columns, free_names, is_auto, key_of, quoted, spread_of
from unskew.spark.frame.physical import nodes
from unskew.spark.in_flight.cell_sample import KeyCells, SampledCells
from unskew.spark.in_flight.join_sides import JoinPlacing, PlacedJoin, place_sides
from unskew.spark.in_flight.map_stage import moved_already
from unskew.spark.in_flight.place import cuts_finely, shows_plan
from unskew.spark.operators.join_keys import JoinKeys, On, how_of, join_keys
from unskew.spark.place.native import never_null, replicated, route_column
from unskew.spark.place.repartition import direct_way, salt_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Join", "JoinWarning"]

_LOG = logging.getLogger(__name__)
_OTHER = {LEFT: RIGHT, RIGHT: LEFT}
_KEEPS = {"left": (LEFT,), "left_anti": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}  # rows without partner


class JoinWarning(UserWarning):
    """A join that is left to Spark, or that stays skewed, with the reason.

    >>> import warnings
    >>> from unskew.spark import JoinWarning
    >>> warnings.simplefilter("ignore", JoinWarning)
    """


@dataclass(frozen=True, eq=False)
class Join:
    """Two frames and how they are to be joined, checked. ``spread`` is of the side that is split."""

    frames: dict[str, DataFrame]
    keys: JoinKeys
    how: str
    spread: Columns
    side: str | None
    partitions: int

    @classmethod
    def of(
        cls,
        left: DataFrame,
        right: DataFrame,
        on: On,
        how: str = "inner",
        *,
        partitions: int,
        spread: Columns = AUTO,
        side: str | None = None,
    ) -> Join:
        """All that can be refused without a plan, refused here. No job runs."""
        kind = how_of(how)
        frames = {LEFT: left, RIGHT: right}
        if side is not None and side not in HOWS[kind]:
            raise ConfigError("side", side, _sides_of(kind))
        for name, df in frames.items():
            if df.isStreaming:
                raise ConfigError(name, "a streaming frame", "frames that can be counted: join inside foreachBatch")
        made = cls(frames, join_keys(left, right, on), kind, spread, side or _only(HOWS[kind]), partitions)
        return made._told()

    def _told(self) -> Join:
        """With the side whose columns the spread is of; where it is of both, the side is still open."""
        if is_auto(self.spread):
            return self
        sides = [self.side] if self.side else list(HOWS[self.how])
        fit, wrong = [], None
        for side in sides:
            try:
                spread_of(self.frames[side], self.spread)
                fit.append(side)
            except ConfigError as why:
                wrong = wrong or why
        if not fit and wrong is not None:
            raise wrong
        return replace(self, side=_only(fit))

    def takes(self, plan: Plan) -> bool:
        """Whether a plan made for the left side serves both."""
        fits = plan.key_types == tuple(self.keys.types) and plan.partitions == self.partitions
        return fits and (not plan.splits or (LEFT in HOWS[self.how] and self.side in (None, LEFT)))

    # -- the plan ---------------------------------------------------------------------------------------------

    def plan(
        self,
        bounds: Bounds | None = None,
        sampling: Sampling | None = None,
        *,
        weights: Sequence[float] = (),
        seed: int = 7,
        stream: str = "",
    ) -> JoinPlan:
        """A plan by what both sides have: four jobs, a sample and a count of each side's key columns."""
        limits, how = bounds or Bounds(), sampling or Sampling(seed=seed)
        rows = self.counted(how)
        side = self.side or side_of(rows, limits.work, self.partitions)
        origin = Origin(stream=stream, key_types=self.keys.types)
        plan = join_plan(rows, side, self.partitions, limits, weights=weights, seed=seed, origin=origin)
        _LOG.info("%s", plan)
        if plan.whole:
            warn(
                f"{plan.whole} keys have more work than a partition should, and stay whole: the rows of each have too "
                f"few distinct values on the {side} side to be told apart. Give spread= columns that are different in "
                "each row, or side= to split the other side of an inner join",
                JoinWarning,
            )
        return plan

    def counted(self, how: Sampling) -> JoinRows:
        """The rows of both sides by key: four jobs, a sample and a count of each side's key columns."""
        split = (self.side,) if self.side else HOWS[self.how]
        left, right = (
            (self._matching(side), self._hash(side), self._spread_hash(side) if side in split else None)
            for side in (LEFT, RIGHT)
        )
        return counted_sides(self.how, left, right, self.partitions, how)

    # -- the join ---------------------------------------------------------------------------------------------

    def run(self, given: JoinPlan | Plan) -> DataFrame:
        """The join placed by a plan."""
        plan, side = self._fitting(given)
        helper, spare, *names = free_names(2 + len(self.keys.types), *self.frames.values())
        placed = {
            side: self._split(side, plan, helper),
            _OTHER[side]: replicated(self._matching(_OTHER[side]), plan, self._hash(_OTHER[side], plan), helper, spare),
        }
        return self._joined(self._moved(placed, plan.partitions, names, helper), names, helper, spare)

    def in_flight(self, bounds: Bounds | None = None) -> tuple[DataFrame, PlacedJoin] | None:
        """The join placed by what comes, without a plan: both sides are written into cells by their keys, and then it
        is decided which cells each task reads. None where that cannot be done."""
        if not all(shows_plan(df) for df in self.frames.values()):
            return None
        sides = (self.side,) if self.side else HOWS[self.how]
        slots = slots_of(self.frames[LEFT].sparkSession) or self.partitions
        if sides and not any(cuts_finely(input_partitions(self.frames[one]), self.partitions, slots) for one in sides):
            return None
        helper, spare, *names = free_names(2 + len(self.keys.types), *self.frames.values())
        how = JoinPlacing(self.how, self.side, self.partitions, bounds or Bounds(), helper)
        placed = place_sides({side: self._written(side) for side in (LEFT, RIGHT)}, how)
        if placed is None:
            return None
        moved = self._moved(placed.frames, len(placed.cells.ranges.ranges), names, helper)
        joined = self._joined({side: moved_already(df) for side, df in moved.items()}, names, helper, spare)
        made = PlacedJoin(placed.cells, placed.histogram, self.keys.types, placed.slots)
        _LOG.info("%s", made)
        return joined, made

    def _written(self, side: str) -> SampledCells:
        """A side as it is written into cells: by Spark's hash of its keys. A row with a NULL among them that is kept is
        alone with its spread hash, which is NULL for all others and leaves their hash as it is."""
        df, keys, nulls = self._matching(side), self.keys.cast(side), self._null(side)
        spread = self._spread_hash(side) if side in _KEEPS.get(self.how, ()) else None
        if nulls is not None and spread is not None:
            keys.append(F.when(nulls, spread))
        if side == RIGHT and self.how in ("left_semi", "left_anti"):
            df = df.select(*dict.fromkeys(map(quoted, self.keys.right)))
        cells = KeyCells(keys, fine_cells(self.partitions))
        return SampledCells(df, cells, self._hash(side), self.partitions, expected_rows(df))

    def _to_meet(self, placed: dict[str, DataFrame], names: list[str], helper: str) -> dict[str, DataFrame]:
        """Both sides with the columns that they meet in, and of a right side that only says what there is no others."""
        met = dict(placed)
        if self.how in ("left_semi", "left_anti"):
            met[RIGHT] = placed[RIGHT].select(*self._meeting(RIGHT, names), quoted(helper))
        elif not self.keys.using:
            met[RIGHT] = placed[RIGHT].select("*", *self._meeting(RIGHT, names))
        if not self.keys.using:
            met[LEFT] = placed[LEFT].select("*", *self._meeting(LEFT, names))
        return met

    def _names(self, names: list[str]) -> list[str]:
        """The columns of the key in which both sides meet."""
        return list(self.keys.left) if self.keys.using else names

    def _moved(
        self, placed: dict[str, DataFrame], partitions: int, names: list[str], helper: str
    ) -> dict[str, DataFrame]:
        """Each row in its partition, which is in ``helper``; where Spark's own hash has to put it there, that turns to
        a salt."""
        met, target = self._to_meet(placed, names, helper), F.col(quoted(helper))
        if direct_way(self.frames[LEFT]):
            return {side: df.repartitionById(partitions, target) for side, df in met.items()}
        on = zip(self._names(names), self.keys.types, strict=True)
        keys = [F.col(quoted(name)).cast(kind) for name, kind in on]
        salt = never_null(salt_column(partitions, target, keys))
        return {side: df.withColumn(helper, salt).repartition(partitions, *keys, target) for side, df in met.items()}

    def _joined(self, moved: dict[str, DataFrame], names: list[str], helper: str, spare: str) -> DataFrame:
        """Both sides, joined by the key and the partition, without the columns that are ours."""
        on, added = [*self._names(names), helper], [helper, *(() if self.keys.using else names)]
        left, right = moved[LEFT], moved[RIGHT]
        if self.how == "left_semi":
            return left.join(right.dropDuplicates(), on, "inner").drop(*added)
        if self.how == "left_anti":
            marked = right.dropDuplicates().withColumn(spare, F.lit(1))
            return left.join(marked, on, "left").where(F.col(quoted(spare)).isNull()).drop(spare, *added)
        return left.join(right, on, self.how).drop(*added)

    def _meeting(self, side: str, names: list[str]) -> list[Column]:
        """The key in the common types: by the left side's names where both have them, else by names of our own."""
        return [column.alias(name) for column, name in zip(self.keys.cast(side), self._names(names), strict=True)]

    def _split(self, side: str, plan: Plan, helper: str) -> DataFrame:
        spread = self._spread_hash(side) if plan.splits else None
        return self._matching(side).withColumn(helper, never_null(route_column(plan, self._hash(side, plan), spread)))

    def _fitting(self, given: JoinPlan | Plan) -> tuple[Plan, str]:
        """The plan and the side to split, or why it cannot be used here."""
        plan = given.plan if isinstance(given, JoinPlan) else given
        side = self.side or (given.side if isinstance(given, JoinPlan) else LEFT)
        if plan.partitions != self.partitions:
            raise PlanError(
                f"the plan is for {plan.partitions} partitions and this join for {self.partitions}: make a plan with "
                "this number, or use a session with the plan's"
            )
        if plan.splits and not HOWS[self.how]:
            raise PlanError(
                "a full outer join cannot split keys: both sides keep rows without partner, and a copied one would be "
                "kept once for each copy. Leave plan out, or make one with a policy that keeps keys whole (kip)"
            )
        if plan.splits and side not in HOWS[self.how]:
            raise PlanError(f"the plan splits the {side} side and a {self.how} join may not: {_sides_of(self.how)}")
        self._hash(LEFT, plan)
        return plan, side

    # -- Spark's own ------------------------------------------------------------------------------------------

    def by_spark(self) -> DataFrame:
        """The same join as Spark does it."""
        left, right, keys = self.frames[LEFT], self.frames[RIGHT], self.keys
        if keys.using:
            return left.join(right, list(keys.left), self.how)
        names = free_names(len(keys.types), *self.frames.values())
        left, right = (df.select("*", *self._meeting(side, names)) for side, df in self.frames.items())
        return left.join(right, names, self.how).drop(*names)

    def broadcast_by_spark(self) -> str | None:
        """Why Spark does this join without a shuffle by the key, if so: its physical plan says it, no job runs."""
        top = next((node for node in nodes(physical_text(self.by_spark())) if node.name.endswith("Join")), None)
        if top is None or not top.name.startswith("Broadcast"):
            return None
        side = RIGHT if "BuildRight" in top.text else LEFT
        return (
            f"Spark broadcasts the {side} side ({top.name}), so no row is shuffled by its key and no key is too heavy"
        )

    def keyed(self, side: str) -> tuple[DataFrame, Column, list[Column]]:
        """A side, what places its rows, and the key columns that Spark hashes for its own join."""
        return self._matching(side), self._hash(side), list(self.keys.cast(side))

    def null_rows(self) -> dict[str, int]:
        """Rows with a NULL in their key, of each side that keeps them; one small job a side that may have any."""
        nulls = {side: self._null(side) for side in _KEEPS.get(self.how, ())}
        return {side: self.frames[side].where(null).count() for side, null in nulls.items() if null is not None}

    def left_to_spark(self, why: str) -> DataFrame:
        """Spark's own join, and a warning that says so."""
        warn(
            f"this join is left to Spark: {why}. To place its rows by a plan all the same, give plan=plan_join(...), "
            "or set spark.sql.autoBroadcastJoinThreshold to -1",
            JoinWarning,
        )
        return self.by_spark()

    # -- the sides --------------------------------------------------------------------------------------------

    def _matching(self, side: str) -> DataFrame:
        """The frame without the rows that this join drops for a NULL in their key."""
        df, nulls = self.frames[side], self._null(side)
        return df if nulls is None or side in _KEEPS.get(self.how, ()) else df.where(~nulls)

    def _hash(self, side: str, plan: Plan | None = None) -> Column:
        """What a row is placed by: its key's hash, and its spread hash where it has a NULL in its key and is kept."""
        hashed = key_of(self.frames[side], self.keys.cast(side), plan=plan).hash
        nulls = self._null(side)
        if nulls is None or side not in _KEEPS.get(self.how, ()):
            return hashed
        spread = self._spread_hash(side)
        return hashed if spread is None else F.when(nulls, spread).otherwise(hashed)

    def _null(self, side: str) -> Column | None:
        cast = self.keys.cast(side)
        fields = self.frames[side].select(*cast).schema.fields
        nulls = [column.isNull() for column, field in zip(cast, fields, strict=True) if field.nullable]
        return reduce(or_, nulls) if nulls else None

    def _spread_hash(self, side: str) -> Column | None:
        """None where nothing was asked for and no column will do: such rows stay together."""
        mine = side == self.side or (self.side is None and side in HOWS[self.how])
        if mine and not is_auto(self.spread):
            return spread_of(self.frames[side], self.spread).hash
        try:
            return spread_of(self.frames[side], AUTO).hash
        except ConfigError:
            return None


def _only(sides: Sequence[str]) -> str | None:
    return sides[0] if len(sides) == 1 else None


def _sides_of(how: str) -> str:
    sides = HOWS[how]
    if not sides:
        return "no side: a full outer join keeps all keys whole"
    return f"{' or '.join(sides)} for a {how} join, whose rows without partner are there once"

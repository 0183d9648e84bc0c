"""``Unskew``: what a job writes. It binds a Spark session to a stream and, where there is one, to a service.

Each verb hands over to the module of its name; what they share is the plans of the stream (``unskew.spark.planning``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column, SparkSession

from unskew.client import Client
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import Advice
from unskew.core.operators.group_plan import group_partitions, group_plan
from unskew.core.operators.join_plan import Bounds, JoinPlan
from unskew.core.plan.plan import Plan, Version
from unskew.core.planners import PLANNERS, Origin
from unskew.spark.frame.histogram import Sampling, histogram_of
from unskew.spark.frame.jvm import freed, input_splits, slots_of, spark_version
from unskew.spark.frame.keys import AUTO, Columns, is_auto, key_of, key_unseen, spread_unseen
from unskew.spark.frame.physical import dropped_exchange
from unskew.spark.operators.advising import advise_on_frame, advise_on_join, names_of
from unskew.spark.operators.aggregation import Aggregation, aggregation_of, at_input, at_plan, place_for
from unskew.spark.operators.groups import groups_of, run_groups
from unskew.spark.operators.join_keys import On
from unskew.spark.operators.joins import Join
from unskew.spark.operators.user_functions import Function
from unskew.spark.place.by_tasks import place
from unskew.spark.place.dstream import partition_dstream
from unskew.spark.place.native import route_column
from unskew.spark.place.rdd import partition_by
from unskew.spark.place.repartition import repartition, routed
from unskew.spark.place.salting import salt, salted_join, unsalted
from unskew.spark.place.task_pins import Pins
from unskew.spark.planning import Plans, spec_of
from unskew.spark.stateful.handler import stateful
from unskew.spark.streaming.foreach import for_each_batch

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from unskew.spark.place.executor import TaskPin

__all__ = ["Unskew"]

T = TypeVar("T")

_NAME = "partition"  # of a route: Spark would name the column by all its tables


class Unskew:
    """Plans and placement for the frames of one stream.

    ``service``: None, ``"embedded"`` (a real service beside the driver, gone with it), or ``"grpc://host:port"``;
    ``"grpcs://..."`` with TLS. ``access``: how driver and tasks show who they are, as ``Client`` takes it
    (``token_file``, ``ca``, ``certificate`` and ``key``, ``insecure``); the rest each process has in its environment.
    ``parameters`` are the policy's own. A service that has the stream already keeps its settings, but for the number of
    partitions, which must be the same here and there.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        stream: str,
        partitions: int,
        policy: str = "auto",
        service: str | None = None,
        parameters: Mapping[str, object] | None = None,
        weights: Sequence[float] = (),
        seed: int = 7,
        sampling: Sampling | None = None,
        required: bool = False,
        timeout: float = 10.0,
        access: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "stream": stream,
            "partitions": partitions,
            "policy": policy,
            "service": service,
            "parameters": parameters,
            "weights": weights,
            "seed": seed,
            "sampling": sampling,
            "required": required,
            "timeout": timeout,
            "access": dict(access or {}),
        }
        spec = spec_of(partitions, policy, parameters, weights, seed)
        spark_version(spark.range(0))
        self._plans = Plans(spark, stream, spec, service, required, timeout, dict(access or {}))
        self._pins = Pins(self._plans)
        self._sampling = sampling or Sampling(seed=seed)
        self._spread: Columns = AUTO
        self._held: list[DataFrame] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """As configuration: a handler under Spark Connect runs in another process, with a session of its own."""
        return _again, (self._settings,)

    # -- plans ------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        return self._plans.spark

    @property
    def stream(self) -> str:
        return self._plans.stream

    @property
    def partitions(self) -> int:
        return self._plans.partitions

    @property
    def client(self) -> Client | None:
        """The service's verbs, where there is a service."""
        return self._plans.client

    @property
    def plans(self) -> Plans:
        """What the verbs share (``unskew.spark.planning``)."""
        return self._plans

    @property
    def sampling(self) -> Sampling:
        return self._sampling

    @property
    def last(self) -> Plan | None:
        """The plan that is used where none is given: the last one made here."""
        return self._plans.last

    def histogram(self, df: DataFrame, key: Columns, spread: Columns | None = AUTO) -> Histogram:
        """How the rows of ``df`` are distributed over keys; two jobs (``unskew.spark.frame.histogram``)."""
        return histogram_of(df, key, self.partitions, spread, self._sampling)

    def plan(self, df: DataFrame, key: Columns, spread: Columns | None = AUTO) -> Plan:
        """A plan for rows distributed like those of ``df``. ``spread``: what tells the rows of one key apart."""
        types = key_of(df, key).types
        client = self._plans.ready(types)
        return self._made(client, self.histogram(df, key, spread), types, spread)

    def _made(
        self, client: Client | None, histogram: Histogram, types: tuple[str, ...], spread: Columns | None
    ) -> Plan:
        made = self._plans.made(client, histogram, types)
        self._spread = AUTO if spread is None else spread
        return made

    def advise(
        self,
        df: DataFrame,
        key: Columns,
        operator: str,
        *,
        other: DataFrame | None = None,
        how: str = "inner",
        spread: Columns = AUTO,
    ) -> Advice:
        """Whether to use an operator, and why, without running it: ``"group_apply"``, ``"aggregate"``, ``"join"`` (with
        ``other``, its right side), ``"repartition"``, or ``"sql"`` for Spark's own aggregates. Print it."""
        if operator == "join":
            if other is None:
                raise ConfigError("other", other, "the right side, which decides what a join costs")
            asked = self._join(df, other, names_of(key), how, spread, None)
            return advise_on_join(asked, lambda: self.histogram(df, key, spread))
        key_of(df, key)
        return advise_on_frame(df, operator, self.partitions, lambda: self.histogram(df, key, spread))

    # -- placement --------------------------------------------------------------------------------------------

    def route(
        self, key: Columns, plan: Plan | None = None, spread: Columns | None = None, *, df: DataFrame | None = None
    ) -> Column:
        """The partition of each row as a Column. With ``df`` keys are checked now and ``spread`` may be "auto"; without
        it Spark checks the key types when it plans the query, and a split plan needs ``spread`` columns."""
        chosen = self._plans.chosen(plan)
        if df is not None:
            return routed(df, chosen, key, AUTO if spread is None else spread).alias(_NAME)
        if chosen.splits and (spread is None or is_auto(spread)):
            raise ConfigError("spread", spread, "columns that tell the rows of a key apart, or give df= for auto")
        told = None if spread is None or is_auto(spread) else spread_unseen(spread)
        return route_column(chosen, key_unseen(key, chosen), told).alias(_NAME)

    def repartition(
        self,
        df: DataFrame,
        key: Columns,
        plan: Plan | None = None,
        spread: Columns | None = None,
        *,
        column: str | None = None,
    ) -> DataFrame:
        """``df`` placed by the plan, in one native shuffle (``unskew.spark.place.repartition``). Without ``spread`` by
        that of the last plan made here, which the plan was judged by."""
        here = self._plans.bound_for(df, key) if plan is None else None
        if here is not None and here.plan is not None:
            return repartition(df, here.plan, key, here.spread_for(df) if spread is None else spread, column=column)
        told = self._spread if spread is None else spread
        return repartition(df, self._plans.chosen(plan), key, told, column=column)

    # -- placement by tasks -----------------------------------------------------------------------------------

    def pin(
        self,
        plan: Plan | None = None,
        learn: bool = False,  # noqa: FBT001, FBT002 - named in the design
        sync: bool | None = None,  # noqa: FBT001 - as above
        *,
        batch: int | None = None,
        source: str | None = None,
    ) -> TaskPin:
        """What the tasks of one batch are bound to (``unskew.spark.place.task_pins``): ``plan`` or the last one made
        here, or with ``learn`` the newest Q-table of the service. ``sync``: whether tasks report what they learn; by
        default where there is a service. ``source`` names the query, where an application has several on one stream."""
        chosen = None if learn and plan is None else self._plans.chosen(plan)
        number = self._plans.next_batch() if batch is None else batch
        return self._pins.pin(source or self._plans.source, chosen, number, learn=learn, sync=sync)

    def place(
        self,
        df: DataFrame,
        key: Columns,
        plan: Plan | None = None,
        spread: Columns | None = None,
        learn: bool = False,  # noqa: FBT001, FBT002 - named in the design
        pin: TaskPin | None = None,
        column: str | None = None,
    ) -> DataFrame:
        """``df`` placed by Python tasks, one decision a partition (``unskew.spark.place.executor``): by ``pin``, or by
        one made here from ``plan`` and ``learn``. A pin is for one frame. ``spread`` and ``column`` as for
        ``repartition``. Where a plan is all that decides, that is cheaper: no row goes through Python."""
        told = self._spread if spread is None else spread
        if pin is None:
            pin = self.pin(plan, learn)
        elif plan is not None or learn:
            raise ConfigError("pin", pin, "a pin, or plan and learn to make one of, not both")
        elif pin.partitions != self.partitions:
            raise PlanError(f"the pin is for {pin.partitions} partitions and this session for {self.partitions}")
        return place(df, pin, key, told, column)

    def partition_by(
        self,
        rdd: RDD[T],
        key: Callable[[T], Any],
        plan: Plan | None = None,
        spread: Callable[[T], Any] | None = None,
        types: Sequence[str] = (),
        pin: TaskPin | None = None,
    ) -> RDD[T]:
        """The records of an RDD, placed by the plan (``unskew.spark.place.rdd``); classic Spark only. With ``pin``, by
        its plan, and each task tells the service what its partition held."""
        chosen = self._plans.chosen(pin.plan if plan is None and pin is not None else plan)
        return partition_by(rdd, key, chosen, spread, types, pin)

    # -- streams: what these say is said where they are ---------------------------------------------------------

    for_each_batch = for_each_batch
    partition_dstream = staticmethod(partition_dstream)
    salt = staticmethod(salt)
    salted_join = staticmethod(salted_join)
    stateful = stateful
    unsalted = staticmethod(unsalted)

    # -- operators --------------------------------------------------------------------------------------------

    def group_apply(
        self,
        df: DataFrame,
        key: Columns,
        fn: Function,
        schema: StructType | str,
        plan: Plan | None = None,
        *,
        form: str = "pandas",
        memory: int | str | None = None,
    ) -> DataFrame:
        """``df.groupBy(key).applyInPandas(fn, schema)`` with heavy groups alone and first
        (``unskew.spark.operators.groups``).

        Without a plan it makes its own, of at least three partitions a slot; two jobs. ``form``: ``"pandas"`` or
        ``"arrow"``. ``memory``: of one Python worker; groups that will not fit are named by a ``GroupMemoryWarning``.
        """
        call = groups_of(df, key, fn, schema, form, memory)
        here = self._plans.bound_for(df, key) if plan is None else None
        if here is not None and here.plan is not None and not here.plan.splits:
            plan = here.plan
        if plan is None:
            wanted = group_partitions(self.partitions, slots_of(self.spark) or 0)
            counts = histogram_of(df, key, wanted, None, self._sampling)
            origin = Origin(stream=self.stream, key_types=key_of(df, key).types, version=Version(0, 1))
            plan = group_plan(counts, wanted, self._plans.spec.seed, origin)
        return run_groups(call, plan)

    def aggregate(
        self,
        df: DataFrame,
        key: Columns,
        partial: Function,
        merge: Function,
        schema: StructType | str,
        plan: Plan | None = None,
        *,
        spread: Columns | None = None,
        form: str = "pandas",
        at: str = "plan",
    ) -> DataFrame:
        """A state per key by ``partial``; hot keys in pieces, put together by ``merge``
        (``unskew.spark.operators.aggregation``).

        ``schema`` has the key's columns and the state. ``partial(rows)`` or ``partial(key, rows)`` gives the state of a
        piece, ``merge(states)`` or ``merge(key, states)`` one state of several; of one alone it must be that state, for
        it is not called then. ``at``: ``"plan"``, ``"input"`` or ``"auto"``. Where the plan splits keys the states are
        made now, in a job of their own, and kept until ``release()``; in a handler, until the end of its batch.
        """
        call = aggregation_of(df, key, partial, merge, schema, form, at)
        here = self._plans.bound_for(df, key) if plan is None else None
        if here is not None:
            plan, spread = here.plan, here.spread_for(df) if spread is None else spread
        elif plan is not None:
            plan = self._plans.chosen(plan)
        told = spread if spread is not None else AUTO if plan is None else self._spread
        if plan is None and at == "input":
            plan = self._plans.own("hash", Histogram.empty(), key_of(df, key).types)
        if plan is None or at == "auto":
            plan, at = self._for_aggregate(call, told, plan, at)
        if at == "input":
            return at_input(call, plan)
        result, held = at_plan(call, plan, told)
        if held is not None:
            batch = self._plans.bound
            (self._held if batch is None else batch.held).append(held)
        return result

    def _for_aggregate(self, call: Aggregation, spread: Columns, plan: Plan | None, at: str) -> tuple[Plan, str]:
        """The plan by this session's policy, or Prompt's where that keeps keys whole; and the place that was meant."""
        types, splits = key_of(call.df, call.key).types, PLANNERS[self._plans.spec.policy].splits
        client = self._plans.ready(types) if plan is None and splits else None
        counts = self.histogram(call.df, call.key, spread)
        if plan is None:
            plan = self._made(client, counts, types, spread) if splits else self._plans.own("prompt", counts, types)
        if at == "auto":
            at = place_for(counts, plan, input_splits(call.df), call.form, slots_of(self.spark) or 1)
        return plan, at

    def release(self) -> None:
        """Free what ``aggregate`` has persisted. Its results can still be used, and are computed anew."""
        held, self._held = self._held, []
        freed(held)

    def dropped_exchange(self, df: DataFrame, plan: Plan | None = None) -> str | None:
        """Why rows of ``df`` are not where the plan puts them, or None (``unskew.spark.frame.physical``)."""
        return dropped_exchange(df, self._plans.chosen(plan))

    def join(
        self,
        left: DataFrame,
        right: DataFrame,
        on: On,
        how: str = "inner",
        plan: JoinPlan | Plan | None = None,
        spread: Columns = AUTO,
        side: str | None = None,
        bounds: Bounds | None = None,
    ) -> DataFrame:
        """``left.join(right, on, how)`` with hot keys split on one side and copied on the other
        (``unskew.spark.operators.joins``). ``on`` may also be a list of pairs (left name, right name).

        Without ``plan`` one is made by counting both sides (``plan_join``), unless Spark would broadcast one of them:
        then the join is Spark's own. A plan from elsewhere splits the left side, or ``side``. ``spread`` tells the
        rows of one key of the split side apart."""
        asked = self._join(left, right, on, how, spread, side)
        if plan is None:
            why = asked.broadcast_by_spark()
            if why is not None:
                return asked.left_to_spark(why)
            plan = self._bound_join(asked, left, on) or self._join_planned(asked, bounds)
        return asked.run(plan)

    def plan_join(
        self,
        left: DataFrame,
        right: DataFrame,
        on: On,
        how: str = "inner",
        spread: Columns = AUTO,
        side: str | None = None,
        bounds: Bounds | None = None,
    ) -> JoinPlan:
        """The plan that ``join`` would make, with what it expects; print it, and give it to joins of such frames."""
        return self._join_planned(self._join(left, right, on, how, spread, side), bounds)

    def _bound_join(self, asked: Join, left: DataFrame, on: On) -> Plan | None:
        """The plan of the batch in hand, if the left side is it and may be placed by it."""
        names = [on] if isinstance(on, str) else [one for one in on if isinstance(one, str)]
        here = self._plans.bound_for(left, names) if names else None
        return None if here is None or here.plan is None or not asked.takes(here.plan) else here.plan

    def _join(self, left: DataFrame, right: DataFrame, on: On, how: str, spread: Columns, side: str | None) -> Join:
        return Join.of(left, right, on, how, partitions=self.partitions, spread=spread, side=side)

    def _join_planned(self, asked: Join, bounds: Bounds | None) -> JoinPlan:
        spec = self._plans.spec
        return asked.plan(bounds, self._sampling, weights=spec.weights, seed=spec.seed, stream=self.stream)

    def close(self) -> None:
        """End the connection, and the embedded service; free what is persisted."""
        try:
            self.release()
        finally:
            self._plans.close()

    def __enter__(self) -> Unskew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _again(settings: Mapping[str, Any]) -> Unskew:
    """The same in another process, with the session that is active there."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError("spark", None, "an active session where this is unpickled: only handlers of a stream are")
    return Unskew(spark, **settings)

"""``Unskew``: what a job writes. It binds a Spark session to a stream and, where there is one, to a service.

Each verb hands over to the module of its name; what they share is in ``unskew.spark.planning``. The verbs of streams
(``for_each_batch``, ``stateful``, ``salt``, ...) have their words and their code where they are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column, SparkSession

from unskew.client import Client
from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram.histogram import Histogram
from unskew.core.in_flight.layout import coarse_cells
from unskew.core.operators.advice import Advice
from unskew.core.operators.group_plan import group_partitions, group_plan
from unskew.core.operators.join_plan import Bounds, JoinPlan
from unskew.core.plan.plan import Plan, Version
from unskew.core.planners import PLANNERS, Origin
from unskew.spark.frame.histogram import Sampling, Weight, histogram_of
from unskew.spark.frame.jvm import input_splits, slots_of, spark_version, unpersist
from unskew.spark.frame.keys import AUTO, Columns, check_new, is_auto, key_of, key_without_frame, spread_without_frame
from unskew.spark.frame.physical import dropped_exchange
from unskew.spark.in_flight.join_sides import PlacedJoin
from unskew.spark.in_flight.place import PlacedRows, Placing, place_in_flight
from unskew.spark.operators.advising import WorkSeconds, advise_on_frame, advise_on_join, names_of
from unskew.spark.operators.aggregation import (
    Aggregation,
    aggregation_of,
    at_input,
    at_plan,
    place_for,
)
from unskew.spark.operators.aggregation_in_flight import aggregation_placing, at_placed
from unskew.spark.operators.groups import groups_of, groups_placing, run_groups, run_placed_groups
from unskew.spark.operators.join_keys import On
from unskew.spark.operators.joins import Join
from unskew.spark.operators.user_functions import Function
from unskew.spark.place.by_tasks import place
from unskew.spark.place.dstream import partition_dstream
from unskew.spark.place.native import route_column
from unskew.spark.place.pin_maker import PinMaker
from unskew.spark.place.rdd import partition_by
from unskew.spark.place.repartition import repartition, routed
from unskew.spark.place.salting import salt, salted_join, unsalted
from unskew.spark.planning import Plans
from unskew.spark.session_stream import spec_of
from unskew.spark.stateful.handler import stateful
from unskew.spark.streaming.foreach import for_each_batch

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from unskew.spark.place.task_pin import TaskPin

__all__ = ["Unskew"]

T = TypeVar("T")

_NAME = "partition"  # of a route: Spark would name the column by all its tables


class Unskew:
    """Plans and placement for the frames of one stream.

    Parameters
    ----------
    spark : The session, classic or Spark Connect; Spark 4.0 or later.
    stream, partitions, policy, parameters, weights, seed
        The stream's name and settings. ``parameters`` are the policy's own, ``weights`` the capacity of each partition.
        A service that has the stream already keeps its settings, but the number of partitions must be the same.
    service : None, ``"embedded"`` (a real service beside the driver, gone with it), ``"grpc://host:port"``, or
        ``"grpcs://..."`` with TLS.
    sampling : How rows are sampled before they are counted.
    required : Raise where the service does not answer, instead of planning in the driver with a ``ServiceWarning``.
    timeout : Seconds for a call of the service.
    access : How driver and tasks show who they are, as ``Client`` takes it (``token_file``, ``ca``, ``certificate`` and
        ``key``, ``insecure``); the rest each process has in its environment.

    Raises
    ------
    ConfigError : A setting is not allowed; the message names it and says what is.
    NoAnswerError : ``required=True`` and nobody answers.

    Examples
    --------
    In all examples ``spark`` is a session and ``clicks`` a frame of 600 rows: ``user`` (one has half of them), ``id``.

    >>> from unskew.spark import Unskew
    >>> with Unskew(spark, stream="clicks", partitions=4, policy="balanced") as sk:
    ...     plan = sk.plan(clicks, "user", spread="id")
    ...     sk.repartition(clicks, "user").rdd.getNumPartitions()
    4
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
        self._settings = {name: value for name, value in locals().items() if name not in ("self", "spark")}
        spec = spec_of(partitions, policy, parameters, weights, seed)
        spark_version(spark.range(0))
        self._plans = Plans.open(spark, stream, spec, service, required=required, timeout=timeout, access=access)
        self._pins = PinMaker(self._plans)
        self._sampling = sampling or Sampling(seed=seed)
        self._spread: Columns = AUTO
        self._placed: PlacedRows | PlacedJoin | None = None
        self._held: list[DataFrame] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """As configuration: a handler under Spark Connect runs in another process, with a session of its own."""
        return _again, (self._settings,)

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._plans.stream.spark

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._plans.stream.name

    @property
    def partitions(self) -> int:
        """Into how many partitions plans place rows; an elastic query changes it."""
        return self._plans.stream.partitions

    @property
    def client(self) -> Client | None:
        """The service's verbs, where there is a service."""
        return self._plans.link.client

    @property
    def plans(self) -> Plans:
        """What the verbs share (``unskew.spark.planning``)."""
        return self._plans

    @property
    def sampling(self) -> Sampling:
        """How rows are sampled before they are counted."""
        return self._sampling

    @property
    def last(self) -> Plan | None:
        """The plan that is used where none is given: the last one made here."""
        return self._plans.last

    # -- plans ------------------------------------------------------------------------------------------------

    def histogram(
        self, df: DataFrame, key: Columns, spread: Columns | None = AUTO, weight: Weight | None = None
    ) -> Histogram:
        """How the rows of ``df`` are distributed over keys, counted by two jobs (``unskew.spark.frame.histogram``).

        Parameters
        ----------
        df, key : The rows, and the columns of their key: a name, a ``Column``, or several in a list.
        spread : Columns that tell the rows of one key apart; ``"auto"``: all that can. None: not looked at.
        weight
            What a row weighs, where rows do not cost alike: a number, by name, as an expression in SQL such as
            ``"size(items)"``, or as a ``Column``. A key has its weight then, in rows of the mean weight.

        Returns
        -------
        Histogram : Exact rows of each heavy key and of each host.

        Raises
        ------
        ConfigError, KeyTypeError : A column is not there, or of a type that cannot be a key.

        Examples
        --------
        >>> sk.histogram(clicks, "user").total
        600
        """
        return histogram_of(df, key, self.partitions, spread, self._sampling, weight)

    def plan(self, df: DataFrame, key: Columns, spread: Columns | None = AUTO, weight: Weight | None = None) -> Plan:
        """A plan for rows distributed like those of ``df``, used from now on where none is given.

        Parameters
        ----------
        df, key, spread : As for ``histogram``; ``spread`` is also what ``repartition`` goes by from now on.
        weight : As for ``histogram``: the plan evens out weight, not rows.

        Returns
        -------
        Plan : Made by the service if it answers, else here.

        Raises
        ------
        ConfigError, PlanError
            The service has the stream for another number of partitions, or for keys of other types.

        Examples
        --------
        >>> sk.plan(clicks, "user", spread="id").key_types
        ('bigint',)
        """
        types = key_of(df, key).types
        ready = self._plans.ready(types)
        return self._make_plan(self.histogram(df, key, spread, weight), types, spread, ready=ready)

    def _make_plan(self, histogram: Histogram, types: tuple[str, ...], spread: Columns | None, *, ready: bool) -> Plan:
        plan = self._plans.make(histogram, types, ready=ready)
        self._spread = AUTO if spread is None else spread
        return plan

    def advise(
        self,
        df: DataFrame,
        key: Columns,
        operator: str,
        *,
        other: DataFrame | None = None,
        how: str = "inner",
        spread: Columns = AUTO,
        weight: Weight | None = None,
        row_seconds: float | None = None,
        key_seconds: float | None = None,
    ) -> Advice:
        """Whether to use an operator, and why, without running it: Spark as it is set, Spark with one setting changed
        and the operator are compared in seconds. Print the answer, or ``explain()`` of it.

        Parameters
        ----------
        df, key, spread : As for ``histogram``.
        operator
            ``"group_apply"``, ``"aggregate"``, ``"join"``, ``"repartition"``, or ``"sql"`` for Spark's own aggregates.
        other, how : For a join its right side and type.
        weight : As for ``histogram``; a join takes none.
        row_seconds, key_seconds
            What a row, and a group, costs a task in your own work after the shuffle; of a join a row that comes out. By
            default what rows cost without any.

        Returns
        -------
        Advice : What to use, the reason, and the predicted seconds of each way.

        Raises
        ------
        ConfigError : The operator is none of these, a join lacks its right side, or a cost is below 0.

        Examples
        --------
        >>> sk.advise(clicks, "user", "sql").choice
        'spark'
        """
        work = WorkSeconds(row_seconds, key_seconds)
        if operator == "join":
            if other is None:
                raise ConfigError("other", other, "the right side, which decides what a join costs")
            if weight is not None:
                raise ConfigError("weight", weight, "None for a join: its cost is the rows that go in and come out")
            join = self._join(df, other, names_of(key), how, spread, None)
            return advise_on_join(join, self._sampling, work)
        key_of(df, key)
        counted = partial(self.histogram, df, key, spread, weight)
        return advise_on_frame(df, key, operator, self.partitions, counted, work)

    # -- placement --------------------------------------------------------------------------------------------

    def route(
        self, key: Columns, plan: Plan | None = None, spread: Columns | None = None, *, df: DataFrame | None = None
    ) -> Column:
        """The partition of each row as a Column. No job runs.

        Parameters
        ----------
        key, plan : The key's columns, and the plan; by default the last one made here.
        spread
            Columns that tell the rows of a split key apart; needed by a plan that splits keys, unless ``df`` is given.
        df : The frame, for keys to be checked now and ``spread`` to be ``"auto"``; without it Spark checks the key
            types when it plans the query.

        Returns
        -------
        Column : An int, never NULL.

        Raises
        ------
        ConfigError, PlanError : There is no plan, or it does not fit the key.

        Examples
        --------
        >>> clicks.select(sk.route("user", spread="id")).columns
        ['partition']
        """
        chosen = self._plans.chosen(plan)
        if df is not None:
            return routed(df, chosen, key, AUTO if spread is None else spread).alias(_NAME)
        if chosen.splits and (spread is None or is_auto(spread)):
            raise ConfigError("spread", spread, "columns that tell the rows of a key apart, or give df= for auto")
        spread_hash = None if spread is None or is_auto(spread) else spread_without_frame(spread)
        return route_column(chosen, key_without_frame(key, chosen), spread_hash).alias(_NAME)

    def repartition(
        self,
        df: DataFrame,
        key: Columns,
        plan: Plan | None = None,
        spread: Columns | None = None,
        *,
        column: str | None = None,
    ) -> DataFrame:
        """``df`` placed in one native shuffle: by the plan (``unskew.spark.place.repartition``), or, where there is
        none, in flight: by what the rows are, in the job that reads them (``unskew.spark.in_flight``).

        Parameters
        ----------
        df, key, plan
            The rows, their key's columns, and the plan; by default that of the batch in hand, or the last one made.
        spread
            Columns that tell the rows of a split key apart; by default those that the plan was made with. In flight
            none are needed.
        column : The name of an int column to add, different for every partition.

        Returns
        -------
        DataFrame : The same rows.

        Raises
        ------
        ConfigError, PlanError : There is no plan, or it does not fit the key.

        Examples
        --------
        >>> sk.repartition(clicks, "user", column="part").groupBy("part", "user").count().count() >= 7
        True
        """
        batch = self._plans.context.matching(df, key) if plan is None else None
        if batch is not None and batch.plan is not None:
            spread = batch.spread_for(df) if spread is None else spread
            return repartition(df, batch.plan, key, spread, column=column)
        if plan is None and self.last is None:
            if column is not None:
                check_new(df, column)
            n = self.partitions
            how = Placing(n, coarse_cells(n, cut=self._splits), cut=self._splits, most=n, column=column)
            placed = None if self._weighted else self._place(df, key, how, "repartition")
            if placed is not None:
                return placed[0]
            plan = self._counted_plan(df, key, AUTO if spread is None else spread)
        return repartition(df, self._plans.chosen(plan), key, self._spread if spread is None else spread, column=column)

    @property
    def _weighted(self) -> bool:
        """Whether partitions have capacities of their own: a plan gives each its share."""
        return bool(self._plans.stream.spec.weights)

    @property
    def _splits(self) -> bool:
        """Whether the stream's policy may split keys."""
        return self._plans.planner(()).cuts

    def _place(
        self, df: DataFrame, key: Columns, how: Placing, what: str, weight: Weight | None = None
    ) -> tuple[DataFrame, PlacedRows] | None:
        """The rows placed in flight, which the service is told of; None where that cannot be done."""
        placed = place_in_flight(df, key, how, what=what, weight=weight)
        if placed is not None:
            self._show(placed[1])
        return placed

    def _show(self, placed: PlacedRows | PlacedJoin) -> None:
        """Keep what was placed in flight, and tell the service of it."""
        self._placed = placed
        self._plans.report(placed.histogram, placed.key_types)

    def _counted_plan(self, df: DataFrame, key: Columns, spread: Columns) -> Plan:
        """A plan from a count of this frame alone, which no other frame follows."""
        histogram = self.histogram(df, key, spread if self._splits else None)
        return self._plans.own(self._plans.stream.spec.policy, histogram, key_of(df, key).types)

    @property
    def placed(self) -> PlacedRows | PlacedJoin | None:
        """What was decided about the rows that were placed in flight last: print it."""
        return self._placed

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
        """What the tasks of one batch are bound to (``unskew.spark.place.pin_maker``).

        Parameters
        ----------
        plan : The plan; by default the last one made here.
        learn : Bind tasks to the newest Q-table of the service instead.
        sync : Whether tasks report what they learn; by default where there is a service.
        batch : The batch's number; by default the next one.
        source : The query's name, where an application has several on one stream.

        Returns
        -------
        TaskPin : For one frame.

        Raises
        ------
        ConfigError, PlanError : ``plan`` and ``learn`` are both given, or there is no plan.

        Examples
        --------
        >>> sk.pin(learn=True).partitions
        4
        """
        return self._pins.pin(plan, learn=learn, sync=sync, batch=batch, source=source)

    def place(
        self,
        df: DataFrame,
        key: Columns,
        plan: Plan | None = None,
        spread: Columns | None = None,
        learn: bool = False,  # noqa: FBT001, FBT002 - named in the design
        pin: TaskPin | None = None,
        column: str | None = None,
        router: str | None = None,
    ) -> DataFrame:
        """``df`` placed by Python tasks, one decision a partition (``unskew.spark.place.executor``). Where a plan is
        all that decides, ``repartition`` is cheaper: no row goes through Python.

        Parameters
        ----------
        df, key, spread, column : As for ``repartition``.
        plan, learn : What to make a pin from, as for ``pin``.
        pin : Or a pin that is made, for this frame alone.
        router
            Or the name of a router that sees every row, such as ``"wchoices"``, ``"dchoices"`` or ``"cam"`` (``unskew
            policies`` lists them): each task routes its partition by the loads that it has made. Executors should have
            ``unskew[fast]``.

        Returns
        -------
        DataFrame : The same rows.

        Raises
        ------
        ConfigError, PlanError : The pin does not fit, or the key is another one when a task runs again.

        Examples
        --------
        >>> sk.place(clicks, "user", spread="id", learn=True).count()
        600
        >>> sk.place(clicks, "user", spread="id", router="wchoices").count()
        600
        """
        if pin is None:
            pin = self._pins.pin(plan, learn=learn, router=router, types=key_of(df, key).types)
        elif plan is not None or learn or router is not None:
            raise ConfigError("pin", pin, "a pin, or plan, learn or router to make one of, not both")
        elif pin.partitions != self.partitions:
            raise PlanError(f"the pin is for {pin.partitions} partitions and this session for {self.partitions}")
        return place(df, pin, key, self._spread if spread is None else spread, column)

    def partition_by(
        self,
        rdd: RDD[T],
        key: Callable[[T], Any],
        plan: Plan | None = None,
        spread: Callable[[T], Any] | None = None,
        types: Sequence[str] = (),
        pin: TaskPin | None = None,
    ) -> RDD[T]:
        """The records of an RDD, placed by the plan (``unskew.spark.place.rdd``); classic Spark only.

        Parameters
        ----------
        rdd, key : The records, and a function that gives a record's key: a value, or a tuple for several key types.
        plan : By default that of the pin, or the last one made here.
        spread
            A function that gives what tells the records of one key apart: a number, string, bytes, or a tuple of these.
        types : The keys' Spark types, where the plan has none.
        pin : With it each task reports to the service what its partition held.

        Returns
        -------
        RDD : The same records.

        Raises
        ------
        ConfigError, PlanError, KeyTypeError : There is no plan, or it does not fit the keys.

        Examples
        --------
        >>> sk.partition_by(clicks.rdd, lambda row: row.user, spread=lambda row: row.id).count()
        600
        """
        chosen = self._plans.chosen(pin.plan if plan is None and pin is not None else plan)
        return partition_by(rdd, key, chosen, spread, types, pin)

    # -- streams ----------------------------------------------------------------------------------------------

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
        weight: Weight | None = None,
    ) -> DataFrame:
        """``df.groupBy(key).applyInPandas(fn, schema)`` with heavy groups alone and first
        (``unskew.spark.operators.groups``).

        Parameters
        ----------
        df, key, fn, schema : As Spark takes them: ``fn(rows)`` or ``fn(key, rows)``.
        plan : One that keeps keys whole. By default the rows are placed in flight, in at least three tasks a slot.
        form : ``"pandas"`` or ``"arrow"``.
        memory : Of one Python worker; a ``GroupMemoryWarning`` names the groups that will not fit.
        weight : As for ``histogram``: tasks have even weight, not even rows. Without ``plan``, outside of a handler.

        Returns
        -------
        DataFrame : The rows that ``fn`` returned.

        Raises
        ------
        ConfigError, PlanError : The function, form or schema will not do, or the plan splits keys.

        Examples
        --------
        >>> sk.group_apply(clicks, "user", lambda rows: rows.head(1), clicks.schema).count()
        7
        """
        groups = groups_of(df, key, fn, schema, form, memory)
        batch = self._plans.context.matching(df, key) if plan is None else None
        _check_weight(weight, given=plan is not None or batch is not None)
        if batch is not None and batch.plan is not None and not batch.plan.splits:
            plan = batch.plan
        if plan is None:
            partitions = group_partitions(self.partitions, slots_of(self.spark) or 0)
            placed = self._place(df, key, groups_placing(groups, partitions), "group_apply", weight)
            if placed is not None:
                return run_placed_groups(groups, *placed)
            histogram = histogram_of(df, key, partitions, None, self._sampling, weight)
            origin = Origin(stream=self.stream, key_types=key_of(df, key).types, version=Version(0, 1))
            plan = group_plan(histogram, partitions, self._plans.stream.spec.seed, origin)
        return run_groups(groups, plan)

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
        weight: Weight | None = None,
    ) -> DataFrame:
        """A state per key; hot keys in pieces, which are merged (``unskew.spark.operators.aggregation``).

        Where the plan splits keys the states are made now, in a job of their own, and kept until ``release()``; in a
        handler, until the end of its batch.

        Parameters
        ----------
        df, key, plan, spread : As for ``repartition``; without any plan the rows are placed in flight.
        partial : ``partial(rows)`` or ``partial(key, rows)`` gives the state of a piece.
        merge : ``merge(states)`` or ``merge(key, states)`` gives one state of several; of one alone it must be that
            state, for it is not called then.
        schema : The key's columns and the state.
        form : ``"pandas"`` or ``"arrow"``.
        at : Where states are made: ``"plan"``, ``"input"`` (with ``"arrow"``) or ``"auto"``.
        weight : As for ``group_apply``.

        Returns
        -------
        DataFrame : A row for each key.

        Raises
        ------
        ConfigError, PlanError : A function, the form or the schema will not do, or the plan does not fit the key.

        Examples
        --------
        >>> def count(rows):
        ...     return rows.assign(n=1).groupby("user", as_index=False)["n"].sum()
        >>> def add(states):
        ...     return states.groupby("user", as_index=False)["n"].sum()
        >>> sk.aggregate(clicks, "user", count, add, "user bigint, n bigint").where("n > 200").count()
        1
        """
        call = aggregation_of(df, key, partial, merge, schema, form, at)
        batch = self._plans.context.matching(df, key) if plan is None else None
        _check_weight(weight, given=plan is not None or batch is not None or at == "input")
        if batch is not None:
            plan, spread = batch.plan, batch.spread_for(df) if spread is None else spread
        elif plan is not None:
            plan = self._plans.chosen(plan)
        if spread is None:
            spread = AUTO if plan is None else self._spread
        if plan is None and batch is None and at == "plan":
            how = aggregation_placing(call, self.partitions)
            placed = self._place(df, key, how, "aggregate", weight)
            made = None if placed is None else at_placed(call, *placed, self.partitions)
            if made is not None:
                return made
        if plan is None and at == "input":
            plan = self._plans.own("hash", Histogram.empty(), key_of(df, key).types)
        if plan is None or at == "auto":
            plan, at = self._for_aggregate(call, spread, plan, at, weight)
        if at == "input":
            return at_input(call, plan)
        return self._keep(*at_plan(call, plan, spread))

    def _keep(self, result: DataFrame, held: DataFrame | None) -> DataFrame:
        """The result; what was persisted for it is freed at the end of the batch in hand, or by ``release``."""
        if held is not None:
            in_hand = self._plans.context.batch
            (self._held if in_hand is None else in_hand.held).append(held)
        return result

    def _for_aggregate(
        self, call: Aggregation, spread: Columns, plan: Plan | None, at: str, weight: Weight | None
    ) -> tuple[Plan, str]:
        """The plan by this session's policy, or Prompt's where that keeps keys whole; and where to make states."""
        types, splits = key_of(call.df, call.key).types, PLANNERS[self._plans.stream.spec.policy].splits
        ready = plan is None and splits and self._plans.ready(types)
        histogram = self.histogram(call.df, call.key, spread, weight)
        if plan is None and splits:
            plan = self._make_plan(histogram, types, spread, ready=ready)
        elif plan is None:
            plan = self._plans.own("prompt", histogram, types)
        if at == "auto":
            at = place_for(histogram, plan, input_splits(call.df), call.form, slots_of(self.spark) or 1)
        return plan, at

    def release(self) -> None:
        """Free what ``aggregate`` has persisted. Its results can still be used, and are computed again.

        Examples
        --------
        >>> sk.release()
        """
        held, self._held = self._held, []
        unpersist(held)

    def dropped_exchange(self, df: DataFrame, plan: Plan | None = None) -> str | None:
        """Why rows of ``df`` are not where the plan puts them; None where they are. No job runs.

        Parameters
        ----------
        df, plan : A frame that was placed by the plan; by default the last one made here.

        Returns
        -------
        str or None : What has moved the rows since.

        Raises
        ------
        ConfigError : There is no plan.

        Examples
        --------
        >>> sk.dropped_exchange(sk.repartition(clicks, "user")) is None
        True
        """
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
        (``unskew.spark.operators.joins``).

        Parameters
        ----------
        left, right, on, how : As Spark takes them; ``on`` may also be a list of pairs (left name, right name).
        plan : By default the rows of both sides are placed in flight, unless Spark would broadcast one of them: then
            the join is Spark's own. A plan from elsewhere splits the left side, or ``side``.
        spread : Columns that tell the rows of one key of the split side apart; in flight none are needed.
        side : The side to split, ``"left"`` or ``"right"``, where the type of join leaves a choice.
        bounds : How much may be copied, and what a task may weigh.

        Returns
        -------
        DataFrame : The columns and rows of Spark's own join.

        Raises
        ------
        ConfigError, KeyTypeError, PlanError
            The keys cannot be compared, or the plan or side does not fit the type of join.

        Examples
        --------
        >>> users = clicks.select("user").distinct()
        >>> sk.join(clicks, users, "user", plan=sk.plan_join(clicks, users, "user")).count()
        600
        """
        join = self._join(left, right, on, how, spread, side)
        if plan is None:
            why = join.broadcast_by_spark()
            if why is not None:
                return join.left_to_spark(why)
            plan = self._plan_of_batch(join, left, on)
            placed = join.in_flight(bounds) if plan is None and not self._weighted else None
            if placed is not None:
                self._show(placed[1])
                return placed[0]
            plan = plan or self._plan_for(join, bounds)
        return join.run(plan)

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
        """The plan that ``join`` would make, with what it expects; print it, and give it to joins of such frames.

        Parameters
        ----------
        left, right, on, how, spread, side, bounds : As for ``join``.

        Returns
        -------
        JoinPlan : The plan, the side to split, and the work and copies that it expects.

        Raises
        ------
        ConfigError, KeyTypeError : The keys cannot be compared, or the side does not fit the type of join.

        Examples
        --------
        >>> sk.plan_join(clicks, clicks.select("user").distinct(), "user").side
        'left'
        """
        return self._plan_for(self._join(left, right, on, how, spread, side), bounds)

    def _plan_of_batch(self, join: Join, left: DataFrame, on: On) -> Plan | None:
        """The plan of the batch in hand, if the left side is it and may be placed by it."""
        names = [on] if isinstance(on, str) else [one for one in on if isinstance(one, str)]
        batch = self._plans.context.matching(left, names) if names else None
        return None if batch is None or batch.plan is None or not join.takes(batch.plan) else batch.plan

    def _join(self, left: DataFrame, right: DataFrame, on: On, how: str, spread: Columns, side: str | None) -> Join:
        return Join.of(left, right, on, how, partitions=self.partitions, spread=spread, side=side)

    def _plan_for(self, join: Join, bounds: Bounds | None) -> JoinPlan:
        spec = self._plans.stream.spec
        return join.plan(bounds, self._sampling, weights=spec.weights, seed=spec.seed, stream=self.stream)

    def close(self) -> None:
        """End the connection, and the embedded service; free what is persisted.

        Examples
        --------
        >>> from unskew.spark import Unskew
        >>> Unskew(spark, stream="clicks", partitions=4).close()
        """
        try:
            self.release()
        finally:
            self._plans.close()

    def __enter__(self) -> Unskew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _again(settings: Mapping[str, Any]) -> Unskew:
    """The same in another process, with the session that is active there."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError("spark", None, "an active session where this is unpickled: only handlers of a stream are")
    return Unskew(spark, **settings)


def _check_weight(weight: Weight | None, *, given: bool) -> None:
    """Refuse a weight that would change nothing."""
    if weight is not None and given:
        raise ConfigError("weight", weight, "None where a plan is given or nothing is planned: give it to sk.plan()")

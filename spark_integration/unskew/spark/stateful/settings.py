"""What ``stateful`` is given, checked where the user stands: plain values, which Spark Connect can pickle."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StructType, TimestampNTZType, TimestampType

from unskew.core.errors import ConfigError
from unskew.core.operators.keyed_plan import KIP
from unskew.core.planners import PLANNERS, Planner, make_planner
from unskew.spark.stateful.calls import FORMS, Function, check_arity
from unskew.spark.stateful.store import EXPIRY
from unskew.spark.streaming.settings import check_given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StatefulSettings", "arrow_schema", "schema_of"]

_TIMES = (LongType, TimestampType, TimestampNTZType)
_LARGEST_BLOCK = 1 << 16
_GLOB = re.compile(r"[\[\]{}*?\\]")


@dataclass(frozen=True)
class StatefulSettings:
    """The arguments of ``Unskew.stateful`` and of its session. ``delay`` is in seconds."""

    handle: Callable[[DataFrame, int], object]
    fn: Function
    key: tuple[str, ...]
    output: StructType
    state: StructType
    stream: str
    partitions: int
    checkpoint: str
    name: str
    form: str = "pandas"
    time: str | None = None
    delay: float = 0.0
    policy: str = "kip"
    parameters: Mapping[str, object] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    seed: int = 7
    block: int = 32

    def __post_init__(self) -> None:
        check_given(self.checkpoint, self.name)
        if _GLOB.search(self.checkpoint):
            raise ConfigError("checkpoint", self.checkpoint, r"a path without []{}*?\: Spark reads those as a pattern")
        if not callable(self.handle):
            raise ConfigError("handle", self.handle, "a function of (output, batch_id)")
        if self.form not in FORMS:
            raise ConfigError("form", self.form, FORMS)
        check_arity(self.fn, self.form)
        self._check_numbers()
        self._check_state()
        arrow_schema("schema", self.output)
        self._check_policy()

    def _check_numbers(self) -> None:
        if isinstance(self.block, bool) or not isinstance(self.block, int) or not 1 <= self.block <= _LARGEST_BLOCK:
            raise ConfigError("block", self.block, f"a whole number of keys, 1 to {_LARGEST_BLOCK:,}")
        if not (isinstance(self.delay, (int, float)) and 0 <= self.delay < math.inf):
            raise ConfigError("delay", self.delay, "seconds, 0 or more")

    def _check_state(self) -> None:
        arrow_schema("state", self.state)
        names = [name.casefold() for name in self.state.names]
        twice = sorted({one for one in [*names, *(key.casefold() for key in self.key)] if names.count(one) > 1})
        both = sorted(set(names) & {key.casefold() for key in self.key})
        if twice or both:
            wrong = ", ".join([*twice, *both])
            raise ConfigError("state", wrong, "names that are in it once, and are no key's: those are kept beside it")
        if EXPIRY not in self.state.names:
            if self.time is not None:
                raise ConfigError(
                    "time", self.time, f"a state with a column {EXPIRY}, a timestamp or a bigint of milliseconds"
                )
            return
        if self.time is None:
            raise ConfigError("time", None, f"the column of event time, by which the state's {EXPIRY} is meant")
        check_time("state", EXPIRY, self.state[EXPIRY].dataType)

    def _check_policy(self) -> None:
        self.planner()
        if PLANNERS[self.policy].splits:
            whole = [name for name, entry in PLANNERS.items() if not entry.splits]
            raise ConfigError(
                "policy", self.policy, f"one that keeps keys whole, for a state is in one place: {', '.join(whole)}"
            )

    def planner(self) -> Planner:
        given = {**KIP, **self.parameters} if self.policy == "kip" else self.parameters
        return make_planner(self.policy, self.partitions, self.seed, self.weights or None, **given)


def check_time(what: str, name: str, kind: DataType) -> None:
    if not isinstance(kind, _TIMES):
        raise ConfigError(what, f"{name} {kind.simpleString()}", "a timestamp or a bigint of milliseconds since 1970")


def schema_of(what: str, given: StructType | str) -> StructType:
    """A schema from DDL, or as it is."""
    try:
        schema = StructType.fromDDL(given) if isinstance(given, str) else given
    except PySparkException as why:
        reason = str(why).splitlines()[0][:200]
        raise ConfigError(what, given, f"columns and types, as in 'user string, n bigint' ({reason})") from None
    if not isinstance(schema, StructType) or not len(schema):
        raise ConfigError(what, given, "columns and types, as in 'user string, n bigint'")
    return schema


def arrow_schema(what: str, schema: StructType) -> pa.Schema:
    """The same for Arrow, once it is known that a file can hold it. Every column may hold NULL: Arrow does not put
    tables together of which one says so and another does not."""
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    arrow: Any = to_arrow_schema
    try:
        result: pa.Schema = arrow(schema, **zone)
        pq.write_table(result.empty_table(), pa.BufferOutputStream())
    except (PySparkException, pa.ArrowException) as why:
        reason = str(why).splitlines()[0][:200]
        raise ConfigError(what, schema.simpleString(), f"types that Arrow and Parquet can carry ({reason})") from None
    return pa.schema([(field.name, field.type) for field in result])

"""What is read of each event of Spark's event log. What is not named here is skipped without being decoded.

Fields that a release does not write have a default. A value of another type than here makes the line unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

__all__ = [
    "DECODERS",
    "FIRST_TASK",
    "QUERY_PLAN",
    "ApplicationEnd",
    "ApplicationStart",
    "Environment",
    "ExecutorAdded",
    "ExecutorRemoved",
    "JobStart",
    "LogStart",
    "NodeInfo",
    "PlanUpdate",
    "QueryEnd",
    "QueryStart",
    "StageEvent",
    "TaskEnd",
]


class LogStart(Struct):
    version: str = field(name="Spark Version", default="")


class ApplicationStart(Struct):
    name: str = field(name="App Name", default="")
    id: str | None = field(name="App ID", default=None)
    time: int = field(name="Timestamp", default=0)
    attempt: str | None = field(name="App Attempt ID", default=None)


class ApplicationEnd(Struct):
    time: int = field(name="Timestamp", default=0)


class SparkProperties(Struct):
    task_cpus: str = field(name="spark.task.cpus", default="1")


class Environment(Struct):
    properties: SparkProperties = field(name="Spark Properties", default_factory=SparkProperties)


class ExecutorInfo(Struct):
    cores: int = field(name="Total Cores", default=0)


class ExecutorAdded(Struct):
    executor: str = field(name="Executor ID")
    info: ExecutorInfo = field(name="Executor Info")


class ExecutorRemoved(Struct):
    executor: str = field(name="Executor ID")


class JobProperties(Struct):
    query: str | None = field(name="spark.sql.execution.id", default=None)


class JobStart(Struct):
    stages: list[int] = field(name="Stage IDs")
    properties: JobProperties | None = field(name="Properties", default=None)


class Accumulable(Struct):
    id: int = field(name="ID")


class StageInfo(Struct):
    id: int = field(name="Stage ID")
    attempt: int = field(name="Stage Attempt ID", default=0)
    name: str = field(name="Stage Name", default="")
    count: int = field(name="Number of Tasks", default=0)
    parents: list[int] = field(name="Parent IDs", default_factory=list)
    submitted: int | None = field(name="Submission Time", default=None)
    completed: int | None = field(name="Completion Time", default=None)
    accumulables: list[Accumulable] = field(name="Accumulables", default_factory=list)


class StageEvent(Struct):
    info: StageInfo = field(name="Stage Info")


class EndReason(Struct):
    reason: str = field(name="Reason", default="")


class TaskInfo(Struct):
    index: int = field(name="Index")
    launched: int = field(name="Launch Time", default=0)
    finished: int = field(name="Finish Time", default=0)
    host: str = field(name="Host", default="")


class TaskAccumulables(Struct):
    accumulables: list[Accumulable] = field(name="Accumulables", default_factory=list)


class ShuffleRead(Struct):
    remote: int = field(name="Remote Bytes Read", default=0)
    local: int = field(name="Local Bytes Read", default=0)
    records: int = field(name="Total Records Read", default=0)
    wait: int = field(name="Fetch Wait Time", default=0)


class ShuffleWrite(Struct):
    records: int = field(name="Shuffle Records Written", default=0)


class Input(Struct):
    bytes: int = field(name="Bytes Read", default=0)
    records: int = field(name="Records Read", default=0)


class Output(Struct):
    records: int = field(name="Records Written", default=0)


class TaskMetrics(Struct):
    run: int = field(name="Executor Run Time", default=0)
    gc: int = field(name="JVM GC Time", default=0)
    spilled: int = field(name="Memory Bytes Spilled", default=0)
    read: ShuffleRead = field(name="Shuffle Read Metrics", default_factory=ShuffleRead)
    write: ShuffleWrite = field(name="Shuffle Write Metrics", default_factory=ShuffleWrite)
    input: Input = field(name="Input Metrics", default_factory=Input)
    output: Output = field(name="Output Metrics", default_factory=Output)


class TaskEnd(Struct):
    stage: int = field(name="Stage ID")
    info: TaskInfo = field(name="Task Info")
    attempt: int = field(name="Stage Attempt ID", default=0)
    reason: EndReason = field(name="Task End Reason", default_factory=EndReason)
    metrics: TaskMetrics | None = field(name="Task Metrics", default=None)


class FirstTaskEnd(Struct):
    """The accumulators of a task, looked at for one task of a stage."""

    info: TaskAccumulables = field(name="Task Info")


class Metric(Struct):
    name: str
    id: int = field(name="accumulatorId")


class NodeInfo(Struct):
    name: str = field(name="nodeName")
    text: str = field(name="simpleString", default="")
    children: list[NodeInfo] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)


class QueryStart(Struct):
    number: int = field(name="executionId")
    description: str = ""


class PlanUpdate(Struct):
    number: int = field(name="executionId")


class QueryPlan(Struct):
    """The plan in the line of either, looked at where a stage of the query lost time."""

    plan: NodeInfo = field(name="sparkPlanInfo")


class QueryEnd(Struct):
    number: int = field(name="executionId")


_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQL"
DECODERS: Mapping[bytes, Decoder[Any]] = {
    name.encode(): Decoder(kind)
    for name, kind in {
        "SparkListenerLogStart": LogStart,
        "SparkListenerApplicationStart": ApplicationStart,
        "SparkListenerApplicationEnd": ApplicationEnd,
        "SparkListenerEnvironmentUpdate": Environment,
        "SparkListenerExecutorAdded": ExecutorAdded,
        "SparkListenerExecutorRemoved": ExecutorRemoved,
        "SparkListenerJobStart": JobStart,
        "SparkListenerStageSubmitted": StageEvent,
        "SparkListenerStageCompleted": StageEvent,
        "SparkListenerTaskEnd": TaskEnd,
        f"{_SQL}ExecutionStart": QueryStart,
        f"{_SQL}AdaptiveExecutionUpdate": PlanUpdate,
        f"{_SQL}ExecutionEnd": QueryEnd,
    }.items()
}
FIRST_TASK = Decoder(FirstTaskEnd)
QUERY_PLAN = Decoder(QueryPlan)

import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from unskew.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAN_OUTCOME_UNSPECIFIED: _ClassVar[PlanOutcome]
    PLAN_OUTCOME_NEW: _ClassVar[PlanOutcome]
    PLAN_OUTCOME_KEPT: _ClassVar[PlanOutcome]
    PLAN_OUTCOME_NOTHING_REPORTED: _ClassVar[PlanOutcome]
    PLAN_OUTCOME_REPEATED: _ClassVar[PlanOutcome]

class ScaleAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCALE_ACTION_UNSPECIFIED: _ClassVar[ScaleAction]
    SCALE_ACTION_HOLD: _ClassVar[ScaleAction]
    SCALE_ACTION_OUT: _ClassVar[ScaleAction]
    SCALE_ACTION_IN: _ClassVar[ScaleAction]
PLAN_OUTCOME_UNSPECIFIED: PlanOutcome
PLAN_OUTCOME_NEW: PlanOutcome
PLAN_OUTCOME_KEPT: PlanOutcome
PLAN_OUTCOME_NOTHING_REPORTED: PlanOutcome
PLAN_OUTCOME_REPEATED: PlanOutcome
SCALE_ACTION_UNSPECIFIED: ScaleAction
SCALE_ACTION_HOLD: ScaleAction
SCALE_ACTION_OUT: ScaleAction
SCALE_ACTION_IN: ScaleAction

class StreamSpec(_message.Message):
    __slots__ = ("partitions", "policy", "parameters", "weights", "seed", "key_types", "history", "decay", "dsync_seconds", "dsync_min_seconds", "dsync_max_seconds")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    DECAY_FIELD_NUMBER: _ClassVar[int]
    DSYNC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DSYNC_MIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DSYNC_MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    policy: str
    parameters: _struct_pb2.Struct
    weights: _containers.RepeatedScalarFieldContainer[float]
    seed: int
    key_types: _containers.RepeatedScalarFieldContainer[str]
    history: int
    decay: float
    dsync_seconds: float
    dsync_min_seconds: float
    dsync_max_seconds: float
    def __init__(self, partitions: _Optional[int] = ..., policy: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., weights: _Optional[_Iterable[float]] = ..., seed: _Optional[int] = ..., key_types: _Optional[_Iterable[str]] = ..., history: _Optional[int] = ..., decay: _Optional[float] = ..., dsync_seconds: _Optional[float] = ..., dsync_min_seconds: _Optional[float] = ..., dsync_max_seconds: _Optional[float] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "spec", "created", "version", "plan_digest", "epoch", "agents", "dsync_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    DSYNC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: StreamSpec
    created: _timestamp_pb2.Timestamp
    version: _plan_pb2.PlanVersion
    plan_digest: str
    epoch: int
    agents: int
    dsync_seconds: float
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[StreamSpec, _Mapping]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ..., plan_digest: _Optional[str] = ..., epoch: _Optional[int] = ..., agents: _Optional[int] = ..., dsync_seconds: _Optional[float] = ...) -> None: ...

class PutStreamRequest(_message.Message):
    __slots__ = ("stream", "spec")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    stream: str
    spec: StreamSpec
    def __init__(self, stream: _Optional[str] = ..., spec: _Optional[_Union[StreamSpec, _Mapping]] = ...) -> None: ...

class PutStreamResponse(_message.Message):
    __slots__ = ("stream", "created")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    created: bool
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., created: bool = ...) -> None: ...

class GetStreamRequest(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    def __init__(self, stream: _Optional[str] = ...) -> None: ...

class GetStreamResponse(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("limit", "after")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    limit: int
    after: str
    def __init__(self, limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "next")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    next: str
    def __init__(self, streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DeleteStreamRequest(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    def __init__(self, stream: _Optional[str] = ...) -> None: ...

class DeleteStreamResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Part(_message.Message):
    __slots__ = ("source", "batch", "run", "part", "parts")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch: int
    run: int
    part: int
    parts: int
    def __init__(self, source: _Optional[str] = ..., batch: _Optional[int] = ..., run: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class ReportHistogramRequest(_message.Message):
    __slots__ = ("stream", "part", "hashes", "counts", "spread", "tail_rows", "tail_keys")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    TAIL_ROWS_FIELD_NUMBER: _ClassVar[int]
    TAIL_KEYS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    part: Part
    hashes: bytes
    counts: bytes
    spread: bytes
    tail_rows: bytes
    tail_keys: bytes
    def __init__(self, stream: _Optional[str] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., hashes: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., spread: _Optional[bytes] = ..., tail_rows: _Optional[bytes] = ..., tail_keys: _Optional[bytes] = ...) -> None: ...

class ReportHistogramResponse(_message.Message):
    __slots__ = ("rows", "keys", "repeated_report")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_REPORT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    keys: int
    repeated_report: bool
    def __init__(self, rows: _Optional[int] = ..., keys: _Optional[int] = ..., repeated_report: bool = ...) -> None: ...

class BuildPlanRequest(_message.Message):
    __slots__ = ("stream", "batch", "fresh", "histogram")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    batch: int
    fresh: bool
    histogram: Histogram
    def __init__(self, stream: _Optional[str] = ..., batch: _Optional[int] = ..., fresh: bool = ..., histogram: _Optional[_Union[Histogram, _Mapping]] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("hashes", "counts", "spread", "tail_rows", "tail_keys")
    HASHES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    TAIL_ROWS_FIELD_NUMBER: _ClassVar[int]
    TAIL_KEYS_FIELD_NUMBER: _ClassVar[int]
    hashes: bytes
    counts: bytes
    spread: bytes
    tail_rows: bytes
    tail_keys: bytes
    def __init__(self, hashes: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., spread: _Optional[bytes] = ..., tail_rows: _Optional[bytes] = ..., tail_keys: _Optional[bytes] = ...) -> None: ...

class WayChoice(_message.Message):
    __slots__ = ("way", "runner_up", "reason")
    WAY_FIELD_NUMBER: _ClassVar[int]
    RUNNER_UP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    way: str
    runner_up: str
    reason: str
    def __init__(self, way: _Optional[str] = ..., runner_up: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class BuildPlanResponse(_message.Message):
    __slots__ = ("plan", "digest", "outcome", "reason", "advice", "stale")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    digest: str
    outcome: PlanOutcome
    reason: str
    advice: WayChoice
    stale: bool
    def __init__(self, plan: _Optional[bytes] = ..., digest: _Optional[str] = ..., outcome: _Optional[_Union[PlanOutcome, str]] = ..., reason: _Optional[str] = ..., advice: _Optional[_Union[WayChoice, _Mapping]] = ..., stale: bool = ...) -> None: ...

class GetPlanRequest(_message.Message):
    __slots__ = ("stream", "version", "if_none_match")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IF_NONE_MATCH_FIELD_NUMBER: _ClassVar[int]
    stream: str
    version: _plan_pb2.PlanVersion
    if_none_match: str
    def __init__(self, stream: _Optional[str] = ..., version: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ..., if_none_match: _Optional[str] = ...) -> None: ...

class GetPlanResponse(_message.Message):
    __slots__ = ("plan", "digest", "not_modified", "stale")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NOT_MODIFIED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    digest: str
    not_modified: bool
    stale: bool
    def __init__(self, plan: _Optional[bytes] = ..., digest: _Optional[str] = ..., not_modified: bool = ..., stale: bool = ...) -> None: ...

class WatchPlansRequest(_message.Message):
    __slots__ = ("stream", "if_none_match")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    IF_NONE_MATCH_FIELD_NUMBER: _ClassVar[int]
    stream: str
    if_none_match: str
    def __init__(self, stream: _Optional[str] = ..., if_none_match: _Optional[str] = ...) -> None: ...

class WatchPlansResponse(_message.Message):
    __slots__ = ("plan", "digest")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    digest: str
    def __init__(self, plan: _Optional[bytes] = ..., digest: _Optional[str] = ...) -> None: ...

class QTable(_message.Message):
    __slots__ = ("workers", "hashes", "values", "rows", "held")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    workers: int
    hashes: bytes
    values: bytes
    rows: bytes
    held: bytes
    def __init__(self, workers: _Optional[int] = ..., hashes: _Optional[bytes] = ..., values: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., held: _Optional[bytes] = ...) -> None: ...

class FrequentItems(_message.Message):
    __slots__ = ("capacity", "hashes", "counts", "error", "total", "rounding")
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    hashes: bytes
    counts: bytes
    error: int
    total: int
    rounding: int
    def __init__(self, capacity: _Optional[int] = ..., hashes: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., error: _Optional[int] = ..., total: _Optional[int] = ..., rounding: _Optional[int] = ...) -> None: ...

class SyncReport(_message.Message):
    __slots__ = ("agent", "session", "seq", "table", "records", "frequent", "loads", "dsync_seconds", "longer", "guest")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FREQUENT_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    DSYNC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LONGER_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    agent: str
    session: int
    seq: int
    table: QTable
    records: int
    frequent: FrequentItems
    loads: bytes
    dsync_seconds: float
    longer: bool
    guest: bool
    def __init__(self, agent: _Optional[str] = ..., session: _Optional[int] = ..., seq: _Optional[int] = ..., table: _Optional[_Union[QTable, _Mapping]] = ..., records: _Optional[int] = ..., frequent: _Optional[_Union[FrequentItems, _Mapping]] = ..., loads: _Optional[bytes] = ..., dsync_seconds: _Optional[float] = ..., longer: bool = ..., guest: bool = ...) -> None: ...

class SyncAnswer(_message.Message):
    __slots__ = ("incarnation", "epoch", "table", "records", "unsure", "split", "loads", "dsync_seconds", "merged", "age_seconds", "digest")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNSURE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    DSYNC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    epoch: int
    table: QTable
    records: int
    unsure: bytes
    split: bytes
    loads: bytes
    dsync_seconds: float
    merged: bool
    age_seconds: float
    digest: int
    def __init__(self, incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., table: _Optional[_Union[QTable, _Mapping]] = ..., records: _Optional[int] = ..., unsure: _Optional[bytes] = ..., split: _Optional[bytes] = ..., loads: _Optional[bytes] = ..., dsync_seconds: _Optional[float] = ..., merged: bool = ..., age_seconds: _Optional[float] = ..., digest: _Optional[int] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("stream", "report", "wait_seconds", "incarnation", "epoch", "digest")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    stream: str
    report: SyncReport
    wait_seconds: float
    incarnation: int
    epoch: int
    digest: int
    def __init__(self, stream: _Optional[str] = ..., report: _Optional[_Union[SyncReport, _Mapping]] = ..., wait_seconds: _Optional[float] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: SyncAnswer
    def __init__(self, answer: _Optional[_Union[SyncAnswer, _Mapping]] = ...) -> None: ...

class PartitionWork(_message.Message):
    __slots__ = ("partition", "rows", "keys", "fragments", "seconds", "queue", "capacity")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    partition: int
    rows: int
    keys: int
    fragments: int
    seconds: float
    queue: int
    capacity: float
    def __init__(self, partition: _Optional[int] = ..., rows: _Optional[int] = ..., keys: _Optional[int] = ..., fragments: _Optional[int] = ..., seconds: _Optional[float] = ..., queue: _Optional[int] = ..., capacity: _Optional[float] = ...) -> None: ...

class ReportBatchRequest(_message.Message):
    __slots__ = ("stream", "part", "partitions", "interval_seconds", "processing_seconds", "map_seconds", "reduce_seconds", "version")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REDUCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    stream: str
    part: Part
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionWork]
    interval_seconds: float
    processing_seconds: float
    map_seconds: float
    reduce_seconds: float
    version: _plan_pb2.PlanVersion
    def __init__(self, stream: _Optional[str] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionWork, _Mapping]]] = ..., interval_seconds: _Optional[float] = ..., processing_seconds: _Optional[float] = ..., map_seconds: _Optional[float] = ..., reduce_seconds: _Optional[float] = ..., version: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ...) -> None: ...

class ReportBatchResponse(_message.Message):
    __slots__ = ("repeated_report",)
    REPEATED_REPORT_FIELD_NUMBER: _ClassVar[int]
    repeated_report: bool
    def __init__(self, repeated_report: bool = ...) -> None: ...

class GetScaleRequest(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    def __init__(self, stream: _Optional[str] = ...) -> None: ...

class GetScaleResponse(_message.Message):
    __slots__ = ("map_tasks", "reduce_tasks", "action", "zone", "reason")
    MAP_TASKS_FIELD_NUMBER: _ClassVar[int]
    REDUCE_TASKS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    map_tasks: int
    reduce_tasks: int
    action: ScaleAction
    zone: int
    reason: str
    def __init__(self, map_tasks: _Optional[int] = ..., reduce_tasks: _Optional[int] = ..., action: _Optional[_Union[ScaleAction, str]] = ..., zone: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("stream", "hash", "version")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    stream: str
    hash: int
    version: _plan_pb2.PlanVersion
    def __init__(self, stream: _Optional[str] = ..., hash: _Optional[int] = ..., version: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ...) -> None: ...

class KeyFragment(_message.Message):
    __slots__ = ("partition", "share")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    share: float
    def __init__(self, partition: _Optional[int] = ..., share: _Optional[float] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("version", "hot", "rows", "share", "fragments", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: _plan_pb2.PlanVersion
    hot: bool
    rows: int
    share: float
    fragments: _containers.RepeatedCompositeFieldContainer[KeyFragment]
    reason: str
    def __init__(self, version: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ..., hot: bool = ..., rows: _Optional[int] = ..., share: _Optional[float] = ..., fragments: _Optional[_Iterable[_Union[KeyFragment, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

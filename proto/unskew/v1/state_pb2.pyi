from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StateIdentity(_message.Message):
    __slots__ = ("format", "query", "stream", "name", "key_names", "key_types", "state", "time")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_NAMES_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    format: int
    query: str
    stream: str
    name: str
    key_names: _containers.RepeatedScalarFieldContainer[str]
    key_types: _containers.RepeatedScalarFieldContainer[str]
    state: str
    time: str
    def __init__(self, format: _Optional[int] = ..., query: _Optional[str] = ..., stream: _Optional[str] = ..., name: _Optional[str] = ..., key_names: _Optional[_Iterable[str]] = ..., key_types: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., time: _Optional[str] = ...) -> None: ...

class StateFile(_message.Message):
    __slots__ = ("name", "size", "live")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: int
    live: int
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., live: _Optional[int] = ...) -> None: ...

class StatePart(_message.Message):
    __slots__ = ("files", "index_bytes", "index_digest", "least_expiry")
    FILES_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEAST_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[StateFile]
    index_bytes: int
    index_digest: int
    least_expiry: int
    def __init__(self, files: _Optional[_Iterable[_Union[StateFile, _Mapping]]] = ..., index_bytes: _Optional[int] = ..., index_digest: _Optional[int] = ..., least_expiry: _Optional[int] = ...) -> None: ...

class StateCounts(_message.Message):
    __slots__ = ("hash", "rows", "host", "host_rows", "host_keys")
    HASH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    HOST_ROWS_FIELD_NUMBER: _ClassVar[int]
    HOST_KEYS_FIELD_NUMBER: _ClassVar[int]
    hash: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    host: _containers.RepeatedScalarFieldContainer[int]
    host_rows: _containers.RepeatedScalarFieldContainer[int]
    host_keys: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, hash: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[int]] = ..., host: _Optional[_Iterable[int]] = ..., host_rows: _Optional[_Iterable[int]] = ..., host_keys: _Optional[_Iterable[int]] = ...) -> None: ...

class StateFigures(_message.Message):
    __slots__ = ("rows", "keys", "created", "forgotten", "expired", "moved", "bytes_read", "bytes_written", "bytes_output", "bytes_rows")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    keys: int
    created: int
    forgotten: int
    expired: int
    moved: int
    bytes_read: int
    bytes_written: int
    bytes_output: int
    bytes_rows: int
    def __init__(self, rows: _Optional[int] = ..., keys: _Optional[int] = ..., created: _Optional[int] = ..., forgotten: _Optional[int] = ..., expired: _Optional[int] = ..., moved: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_written: _Optional[int] = ..., bytes_output: _Optional[int] = ..., bytes_rows: _Optional[int] = ...) -> None: ...

class StateDone(_message.Message):
    __slots__ = ("partition", "part", "output", "figures", "rows", "host", "grown", "latest")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    partition: int
    part: StatePart
    output: str
    figures: StateFigures
    rows: StateCounts
    host: _containers.RepeatedScalarFieldContainer[int]
    grown: _containers.RepeatedScalarFieldContainer[int]
    latest: int
    def __init__(self, partition: _Optional[int] = ..., part: _Optional[_Union[StatePart, _Mapping]] = ..., output: _Optional[str] = ..., figures: _Optional[_Union[StateFigures, _Mapping]] = ..., rows: _Optional[_Union[StateCounts, _Mapping]] = ..., host: _Optional[_Iterable[int]] = ..., grown: _Optional[_Iterable[int]] = ..., latest: _Optional[int] = ...) -> None: ...

class StateManifest(_message.Message):
    __slots__ = ("batch", "plan", "next_plan", "reason", "parts", "outputs", "figures", "host_keys", "history", "latest")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    NEXT_PLAN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    HOST_KEYS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    batch: int
    plan: bytes
    next_plan: bytes
    reason: str
    parts: _containers.RepeatedCompositeFieldContainer[StatePart]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    figures: StateFigures
    host_keys: _containers.RepeatedScalarFieldContainer[int]
    history: _containers.RepeatedCompositeFieldContainer[StateCounts]
    latest: int
    def __init__(self, batch: _Optional[int] = ..., plan: _Optional[bytes] = ..., next_plan: _Optional[bytes] = ..., reason: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[StatePart, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., figures: _Optional[_Union[StateFigures, _Mapping]] = ..., host_keys: _Optional[_Iterable[int]] = ..., history: _Optional[_Iterable[_Union[StateCounts, _Mapping]]] = ..., latest: _Optional[int] = ...) -> None: ...

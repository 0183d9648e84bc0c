from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanFile(_message.Message):
    __slots__ = ("magic", "format", "checksum", "body")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    magic: int
    format: int
    checksum: int
    body: bytes
    def __init__(self, magic: _Optional[int] = ..., format: _Optional[int] = ..., checksum: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class PlanVersion(_message.Message):
    __slots__ = ("incarnation", "number")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    number: int
    def __init__(self, incarnation: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("partitions", "key_types", "tail", "hot_hash", "hot_home", "hot_rows", "hot_reason", "reasons", "split_bits", "split_first", "split_second", "split_cut", "lookup_shift", "lookup_bits", "lookup_displacement", "lookup_remix", "stream", "version", "policy", "reason", "batch", "previous", "moved_rows", "moved_keys", "rows", "keys", "loads")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    HOT_HASH_FIELD_NUMBER: _ClassVar[int]
    HOT_HOME_FIELD_NUMBER: _ClassVar[int]
    HOT_ROWS_FIELD_NUMBER: _ClassVar[int]
    HOT_REASON_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_BITS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIRST_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SECOND_FIELD_NUMBER: _ClassVar[int]
    SPLIT_CUT_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_SHIFT_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_BITS_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_DISPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_REMIX_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    MOVED_ROWS_FIELD_NUMBER: _ClassVar[int]
    MOVED_KEYS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    key_types: _containers.RepeatedScalarFieldContainer[str]
    tail: _containers.RepeatedScalarFieldContainer[int]
    hot_hash: _containers.RepeatedScalarFieldContainer[int]
    hot_home: _containers.RepeatedScalarFieldContainer[int]
    hot_rows: _containers.RepeatedScalarFieldContainer[int]
    hot_reason: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    split_bits: _containers.RepeatedScalarFieldContainer[int]
    split_first: _containers.RepeatedScalarFieldContainer[int]
    split_second: _containers.RepeatedScalarFieldContainer[int]
    split_cut: _containers.RepeatedScalarFieldContainer[int]
    lookup_shift: int
    lookup_bits: int
    lookup_displacement: _containers.RepeatedScalarFieldContainer[int]
    lookup_remix: bool
    stream: str
    version: PlanVersion
    policy: str
    reason: str
    batch: int
    previous: PlanVersion
    moved_rows: float
    moved_keys: float
    rows: int
    keys: int
    loads: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[int] = ..., key_types: _Optional[_Iterable[str]] = ..., tail: _Optional[_Iterable[int]] = ..., hot_hash: _Optional[_Iterable[int]] = ..., hot_home: _Optional[_Iterable[int]] = ..., hot_rows: _Optional[_Iterable[int]] = ..., hot_reason: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ..., split_bits: _Optional[_Iterable[int]] = ..., split_first: _Optional[_Iterable[int]] = ..., split_second: _Optional[_Iterable[int]] = ..., split_cut: _Optional[_Iterable[int]] = ..., lookup_shift: _Optional[int] = ..., lookup_bits: _Optional[int] = ..., lookup_displacement: _Optional[_Iterable[int]] = ..., lookup_remix: bool = ..., stream: _Optional[str] = ..., version: _Optional[_Union[PlanVersion, _Mapping]] = ..., policy: _Optional[str] = ..., reason: _Optional[str] = ..., batch: _Optional[int] = ..., previous: _Optional[_Union[PlanVersion, _Mapping]] = ..., moved_rows: _Optional[float] = ..., moved_keys: _Optional[float] = ..., rows: _Optional[int] = ..., keys: _Optional[int] = ..., loads: _Optional[_Iterable[int]] = ...) -> None: ...

from unskew.v1 import partitioner_pb2 as _partitioner_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pin(_message.Message):
    __slots__ = ("first_batch", "stream", "name", "partitions", "key", "spread", "plan", "table", "records", "incarnation", "epoch", "seed", "began", "reason", "told", "kinds", "cells")
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    first_batch: int
    stream: str
    name: str
    partitions: int
    key: _containers.RepeatedScalarFieldContainer[str]
    spread: _containers.RepeatedScalarFieldContainer[str]
    plan: bytes
    table: _partitioner_pb2.QTable
    records: int
    incarnation: int
    epoch: int
    seed: int
    began: int
    reason: str
    told: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    cells: CellTable
    def __init__(self, first_batch: _Optional[int] = ..., stream: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., spread: _Optional[_Iterable[str]] = ..., plan: _Optional[bytes] = ..., table: _Optional[_Union[_partitioner_pb2.QTable, _Mapping]] = ..., records: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., seed: _Optional[int] = ..., began: _Optional[int] = ..., reason: _Optional[str] = ..., told: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., cells: _Optional[_Union[CellTable, _Mapping]] = ...) -> None: ...

class CellTable(_message.Message):
    __slots__ = ("hosts", "pieces", "firsts", "key_types")
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPES_FIELD_NUMBER: _ClassVar[int]
    hosts: int
    pieces: int
    firsts: _containers.RepeatedScalarFieldContainer[int]
    key_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hosts: _Optional[int] = ..., pieces: _Optional[int] = ..., firsts: _Optional[_Iterable[int]] = ..., key_types: _Optional[_Iterable[str]] = ...) -> None: ...

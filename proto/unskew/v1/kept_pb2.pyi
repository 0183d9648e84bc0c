from unskew.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeptBatch(_message.Message):
    __slots__ = ("came",)
    CAME_FIELD_NUMBER: _ClassVar[int]
    came: int
    def __init__(self, came: _Optional[int] = ...) -> None: ...

class KeptWayCost(_message.Message):
    __slots__ = ("way", "sum")
    WAY_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    way: str
    sum: float
    def __init__(self, way: _Optional[str] = ..., sum: _Optional[float] = ...) -> None: ...

class KeptWays(_message.Message):
    __slots__ = ("costs", "batches", "weight", "numbers", "previous", "counted")
    COSTS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.RepeatedCompositeFieldContainer[KeptWayCost]
    batches: int
    weight: float
    numbers: _containers.RepeatedScalarFieldContainer[int]
    previous: _plan_pb2.PlanVersion
    counted: bytes
    def __init__(self, costs: _Optional[_Iterable[_Union[KeptWayCost, _Mapping]]] = ..., batches: _Optional[int] = ..., weight: _Optional[float] = ..., numbers: _Optional[_Iterable[int]] = ..., previous: _Optional[_Union[_plan_pb2.PlanVersion, _Mapping]] = ..., counted: _Optional[bytes] = ...) -> None: ...

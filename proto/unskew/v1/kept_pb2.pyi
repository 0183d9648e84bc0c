from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class KeptBatch(_message.Message):
    __slots__ = ("came",)
    CAME_FIELD_NUMBER: _ClassVar[int]
    came: int
    def __init__(self, came: _Optional[int] = ...) -> None: ...

"""Messages of every request, built by Hypothesis from the contract's own descriptors: any field may hold anything that
its type can say, and often what stands at the edge of that.

Names make the difference between knocking at the door and coming in: fields that are called ``stream``, ``policy`` or
``source`` hold mostly such as there are, so that what is behind the first check is reached too.
"""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from hypothesis import strategies as st

from tests.planning import defaults_of
from unskew.core.planners import PLANNERS
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["REQUESTS", "STREAMS", "TEXTS", "messages", "parameters"]

REQUESTS: dict[str, type[Message]] = {
    method.name: GetMessageClass(method.input_type)
    for method in pb.DESCRIPTOR.services_by_name["PartitionerService"].methods
}
STREAMS = tuple(f"fuzz-{number}" for number in range(6))

Kind = FieldDescriptor
_WHOLE = (0, 1, 2, 3, 4, 7, 8, 63, 64, 100, 8192, 8193, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**42, 2**48, 2**48 + 1,
          2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, 0.5, 0.01, 2.0, 20.0, -1.0, -2.0, -5e-324, 5e-324, 2.3e-308, 1e-9, 1e6, 1e17, 1.7e308,
           float("inf"), float("-inf"), float("nan"))  # fmt: skip
TEXTS = ("", " ", "\0", "a\nb", "ключ", "鍵", "🔑" * 3, "\ufeffx", "x" * 201, "y" * 3000, "%2F", "../..", "{}", "null",
         "é" * 200, "a" * 200, '"', "\u202e", "z" * 20_000)  # fmt: skip
_KEY_TYPES = ("int", "bigint", "string", "decimal(38,18)", "decimal(0,0)", "decimal(99999999999999999999,1)", "double",
              "array<int>", "varchar(3)", "timestamp", "void", "string collate unicode")  # fmt: skip
_NAMED: dict[str, tuple[str, ...]] = {
    "stream": (*STREAMS, *STREAMS, "no-such-stream"),
    "policy": (*PLANNERS, "", "nope"),
    "source": ("app/query", "app:2", "a"),
    "agent": ("a1", "a2", "a3"),
    "key_types": _KEY_TYPES,
}
_NAMES_OF_PARAMETERS = sorted({name for entry in PLANNERS.values() for name in defaults_of(entry.algorithm)})
_BITS = {Kind.TYPE_INT32: 31, Kind.TYPE_INT64: 63, Kind.TYPE_UINT32: 32, Kind.TYPE_UINT64: 64, Kind.TYPE_FIXED64: 64}
_SIGNED = (Kind.TYPE_INT32, Kind.TYPE_INT64)

_floats = st.one_of(st.sampled_from(_FLOATS), st.floats(0.0, 10.0), st.floats())
_packed = st.one_of(
    st.lists(st.sampled_from(_WHOLE), max_size=5).map(lambda them: struct.pack(f"<{len(them)}Q", *them)),
    st.integers(0, 6).map(lambda count: struct.pack(f"<{count}Q", *range(1, count + 1))),
    st.lists(st.sampled_from(_FLOATS), max_size=6).map(lambda them: struct.pack(f"<{len(them)}d", *them)),
    st.binary(max_size=40),
    st.sampled_from((b"\0" * 80_008, b"\xff" * 8, b"\1" * 7)),
)
_fresh = st.integers(0, 2**40).map("nobody-{:x}".format)  # a name like any other, that is in no list of anything
_text = st.one_of(st.sampled_from(TEXTS), st.text(max_size=20))


def _whole(kind: int) -> st.SearchStrategy[int]:
    bits = _BITS[kind]
    edges = [number for number in _WHOLE if number < 1 << bits]
    if kind in _SIGNED:
        edges += [-1, -2, -(1 << bits)]
    return st.one_of(st.sampled_from(edges), st.integers(0, 9))


def parameters() -> st.SearchStrategy[Struct]:
    """Parameters of planners, and what is none."""
    value = st.one_of(_floats, _text, st.none(), st.booleans(), st.sampled_from(([1.0, [2.0]], {"a": {"b": None}}, [])))
    name = st.one_of(st.sampled_from(_NAMES_OF_PARAMETERS), st.sampled_from((*TEXTS, "seed", "weights", "partitions")))
    return st.dictionaries(name, value, max_size=3).map(_struct)


def _struct(plain: dict[str, Any]) -> Struct:
    made = Struct()
    made.update(plain)
    return made


def _one(field: FieldDescriptor, deep: int) -> st.SearchStrategy[Any]:
    """A value of the field; of one of them, where it is repeated."""
    if field.type == Kind.TYPE_MESSAGE:
        return messages(GetMessageClass(field.message_type), deep + 1)
    if field.type == Kind.TYPE_ENUM:
        known = [value.number for value in field.enum_type.values]
        return st.sampled_from([*known, 99, -1, 2**31 - 1])
    if field.type in (Kind.TYPE_DOUBLE, Kind.TYPE_FLOAT):
        return _floats
    if field.type == Kind.TYPE_BOOL:
        return st.booleans()
    if field.type == Kind.TYPE_STRING:
        named = _NAMED.get(field.name)
        if named is None:
            return _text
        return st.one_of(st.sampled_from(named), st.sampled_from(named), _fresh, _text)
    if field.type == Kind.TYPE_BYTES:
        return _packed
    return _whole(field.type)


def _many(field: FieldDescriptor, deep: int) -> st.SearchStrategy[list[Any]]:
    """A few of them; now and then far too many."""
    few = st.lists(_one(field, deep), max_size=4)
    return st.one_of(few, few, few, few, st.tuples(_one(field, deep), st.sampled_from((101, 8193))).map(_times))


def _times(given: tuple[Any, int]) -> list[Any]:
    one, times = given
    return [one] * (times if not isinstance(one, str) or len(one) < 100 else 101)


_made: dict[tuple[str, int], st.SearchStrategy[Any]] = {}


def messages(kind: type[Message], deep: int = 0) -> st.SearchStrategy[Any]:
    """Any message of this kind: with a few of its fields, or half of them; those that the others stand on are there."""
    if kind is Struct:
        return parameters()
    descriptor: Descriptor = kind.DESCRIPTOR
    key = descriptor.full_name, deep
    if key not in _made:
        fields = {field.name: (_many if field.is_repeated else _one)(field, deep) for field in descriptor.fields}
        needed = {name: of for name, of in fields.items() if name in ("stream", "part", "report", "spec", "table")}
        rest = {name: of for name, of in fields.items() if name not in needed}
        few = st.lists(st.sampled_from(sorted(rest)), max_size=2, unique=True) if rest else st.just([])
        some = few.flatmap(lambda names: st.fixed_dictionaries(needed | {name: rest[name] for name in names}))
        _made[key] = st.one_of(some, st.fixed_dictionaries(needed, optional=rest)).map(lambda given: kind(**given))
    return _made[key]

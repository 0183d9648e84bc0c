"""The page of the gRPC contract, from the .proto files: their comments are the text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

from tools.protolint import compiled
from tools.reference.page import anchor, paragraphs, prose, table
from unskew.service.auth.roles import ROLE_OF

__all__ = ["page"]

ROOT = Path(__file__).resolve().parents[2]
FIELD = pb.FieldDescriptorProto
PACKAGE = ".unskew.v1."
FIRST = ("partitioner", "plan", "keda")  # then what jobs keep in files
HEAD = """# gRPC

Port 8081, plain or TLS. Stubs for Python are in `unskew.v1`; the `.proto` files are in `proto/unskew/v1`, and the
service tells them by reflection to whoever has a credential. A token goes into the metadata as `authorization: Bearer
<token>`; roles include each other: an admin reports, a reporter reads. `grpc.health.v1.Health` needs no credential.
What KEDA calls is [on its own page](../keda.md). The same over HTTP: [REST](rest.md).
"""


def page() -> str:
    files = {Path(file.name).stem: file for file in compiled(ROOT / "proto").file}
    order = [*FIRST, *sorted(files.keys() - set(FIRST))]
    return "\n\n".join([paragraphs(HEAD), *(block for name in order for block in _File(files[name]).blocks())])


class _File:
    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._at = {tuple(place.path): place for place in file.source_code_info.location}

    def blocks(self) -> Iterator[str]:
        yield f"## {self._file.name}"
        yield from filter(None, (self._detached((4, 0)), self._detached((12,)), self._detached((6, 0))))
        for index, service in enumerate(self._file.service):
            yield from self._service(service, (6, index))
        for index, message in enumerate(self._file.message_type):
            yield from self._message(message, (4, index))
        for index, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (5, index))

    def _said(self, path: tuple[int, ...]) -> str:
        """The comments of a thing: above it, or at the end of its line."""
        place = self._at.get(path)
        return f"{place.leading_comments}\n{place.trailing_comments}".strip("\n") if place else ""

    def _detached(self, path: tuple[int, ...]) -> str:
        """Comments with an empty line below; without the rules that part a long file."""
        place = self._at.get(path)
        found = [text for text in (place.leading_detached_comments if place else ()) if not text.startswith(" ----")]
        return paragraphs("\n\n".join(found))

    def _service(self, service: pb.ServiceDescriptorProto, at: tuple[int, ...]) -> Iterator[str]:
        yield f"### {service.name}"
        yield paragraphs(self._said(at))
        rows = []
        for index, rpc in enumerate(service.method):
            takes = ("stream of " if rpc.client_streaming else "") + _link(rpc.input_type)
            gives = ("stream of " if rpc.server_streaming else "") + _link(rpc.output_type)
            role = ROLE_OF[rpc.name].name.lower()
            rows.append((f"`{rpc.name}`", takes, gives, role, self._said((*at, 2, index))))
        yield table(("call", "takes", "gives", "role", "what it does"), rows)

    def _message(self, message: pb.DescriptorProto, at: tuple[int, ...]) -> Iterator[str]:
        yield f"### {message.name}"
        if said := self._said(at):
            yield paragraphs(said)
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        rows = [
            (str(field.number), f"`{field.name}`", _type(field, entries), self._said((*at, 2, index)))
            for index, field in enumerate(message.field)
        ]
        yield table(("number", "field", "type", "meaning"), rows) if rows else "No fields."
        for index, nested in enumerate(message.nested_type):
            if nested.name not in entries:
                yield from self._message(nested, (*at, 3, index))

    def _enum(self, enum: pb.EnumDescriptorProto, at: tuple[int, ...]) -> Iterator[str]:
        yield f"### {enum.name}"
        if said := self._said(at):
            yield paragraphs(said)
        rows = [(str(one.number), f"`{one.name}`", self._said((*at, 2, i))) for i, one in enumerate(enum.value)]
        yield table(("number", "value", "meaning"), rows)


def _type(field: pb.FieldDescriptorProto, entries: dict[str, pb.DescriptorProto]) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = (_type(one, {}) for one in entry.field)
        return f"map of {key} to {value}"
    told = _link(field.type_name) if field.type_name else f"`{FIELD.Type.Name(field.type)[5:].lower()}`"
    if field.label == FIELD.LABEL_REPEATED:
        return f"repeated {told}"
    return f"optional {told}" if field.proto3_optional else told


def _link(name: str) -> str:
    if not name.startswith(PACKAGE):
        return prose(f"`{name.lstrip('.')}`")
    short = name.rpartition(".")[2]
    return f"[{short}]({anchor(short)})"

"""What a release says over the wire, as descriptors, and what between two releases would break the older one.

Run as a program it writes the descriptors of the release that runs it to stdout.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

__all__ = ["breaks", "own"]


def own() -> FileDescriptorSet:
    """Every contract of the release that is imported here."""
    import unskew.v1

    found = FileDescriptorSet()
    for module in pkgutil.iter_modules(unskew.v1.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"unskew.v1.{module.name}").DESCRIPTOR.CopyToProto(found.file.add())
    return found


def breaks(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """Why who knows only the old contracts would misread the new ones; empty if nothing is in the way.

    Messages and names may be added. A field may go if its number and its name stay reserved: then nobody takes them
    for something else. A new name for a field is a break too, for REST knows fields by name.
    """
    found: list[str] = []
    messages, enums, services = _messages(new), _enums(new), _services(new)
    for name, message in _messages(old).items():
        found += _message(name, message, messages[name]) if name in messages else [f"{name} is gone"]
    for name, enum in _enums(old).items():
        found += _enum(name, enum, enums[name]) if name in enums else [f"{name} is gone"]
    for name, service in _services(old).items():
        found += _service(name, service, services[name]) if name in services else [f"{name} is gone"]
    return found


def _message(where: str, old: DescriptorProto, new: DescriptorProto) -> list[str]:
    fields = {field.number: field for field in new.field}
    told = []
    for field in old.field:
        now = fields.get(field.number)
        if now is None:
            kept = any(span.start <= field.number < span.end for span in new.reserved_range)
            if not (kept and field.name in new.reserved_name):
                told.append(f"{where}.{field.name} is gone; reserve its number {field.number} and its name")
        elif _shape(now, new) != _shape(field, old):
            told.append(f"{where}.{field.name} = {field.number} was {_shape(field, old)}, now {_shape(now, new)}")
    before = {field.number for field in old.field}
    for field in new.field:
        if field.number not in before and any(span.start <= field.number < span.end for span in old.reserved_range):
            told.append(f"{where}.{field.name} takes the number {field.number}, which was reserved")
    return told


def _shape(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[str, str, str, str, str]:
    kind = FieldDescriptorProto.Type.Name(field.type)
    label = FieldDescriptorProto.Label.Name(field.label)
    group = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    packed = str(field.options.packed) if field.options.HasField("packed") else ""
    return field.name, kind + field.type_name, label, group, packed


def _enum(where: str, old: EnumDescriptorProto, new: EnumDescriptorProto) -> list[str]:
    numbers = {value.number: value.name for value in new.value}
    return [
        f"{where}: {value.number} was {value.name}, now {numbers.get(value.number, 'nothing')}"
        for value in old.value
        if numbers.get(value.number) != value.name
    ]


def _service(where: str, old: ServiceDescriptorProto, new: ServiceDescriptorProto) -> list[str]:
    methods = {method.name: method for method in new.method}
    told = []
    for method in old.method:
        now = methods.get(method.name)
        if now is None:
            told.append(f"{where}.{method.name} is gone")
        elif (now.input_type, now.output_type, now.client_streaming, now.server_streaming) != (
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        ):
            told.append(f"{where}.{method.name} takes or gives something else")
    return told


def _messages(files: FileDescriptorSet) -> Mapping[str, DescriptorProto]:
    found: dict[str, DescriptorProto] = {}

    def add(prefix: str, message: DescriptorProto) -> None:
        found[f"{prefix}.{message.name}"] = message
        for nested in message.nested_type:
            add(f"{prefix}.{message.name}", nested)

    for file in files.file:
        for message in file.message_type:
            add(file.package, message)
    return found


def _enums(files: FileDescriptorSet) -> Mapping[str, EnumDescriptorProto]:
    found = {f"{file.package}.{enum.name}": enum for file in files.file for enum in file.enum_type}
    for name, message in _messages(files).items():
        found |= {f"{name}.{enum.name}": enum for enum in message.enum_type}
    return found


def _services(files: FileDescriptorSet) -> Mapping[str, ServiceDescriptorProto]:
    return {f"{file.package}.{service.name}": service for file in files.file for service in file.service}


if __name__ == "__main__":
    sys.stdout.buffer.write(own().SerializeToString())

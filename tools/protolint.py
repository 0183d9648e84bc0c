"""Check proto/**/*.proto: buf's STANDARD lint rules that matter here, and no break against the last release.

Lint: `lint` walks the descriptors that protoc makes; each finding names buf's rule. Breaks: `breaks` compares them with
those of the last tag `v*` that git knows here; what a deployed client or a kept JSON document relies on may not go or
change. A field or enum value may go if its number and name are reserved. Without a tag there is nothing to break.

Run `python tools/protolint.py [--against TAG]`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import resources
from io import BytesIO
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
FIELD = pb.FieldDescriptorProto

SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")
VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")

Place = tuple[int, ...]
Finding = tuple[Place, str]


def compiled(root: Path) -> pb.FileDescriptorSet:
    """The descriptors of every .proto under a folder, their comments and lines included."""
    protos = sorted(proto.relative_to(root).as_posix() for proto in root.rglob("*.proto"))
    if not protos:
        return pb.FileDescriptorSet()
    wellknown = resources.files("grpc_tools") / "_proto"
    run: Callable[[list[str]], int] = protoc.main
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        flags = [f"-I{root}", f"-I{wellknown}", f"--descriptor_set_out={out}", "--include_source_info"]
        if run(["protoc", *flags, *protos]) != 0:
            raise SystemExit(f"protoc failed on {', '.join(protos)}")
        return pb.FileDescriptorSet.FromString(out.read_bytes())


# -- lint ---------------------------------------------------------------------------------------------------


def lint(files: pb.FileDescriptorSet) -> list[str]:
    """One line a finding: file, line, rule, what to do."""
    lines = []
    for file in files.file:
        at = {tuple(place.path): place.span[0] + 1 for place in file.source_code_info.location}
        found = [*_of_file(file), *_of_names(file)]
        lines += [f"{file.name}:{_line(at, path)}: {finding}" for path, finding in found]
    return lines + _of_requests(files)


def _line(at: dict[Place, int], path: Place) -> int:
    """Of the nearest thing around it that has one."""
    while path and path not in at:
        path = path[:-1]
    return at.get(path, 1)


def _of_file(file: pb.FileDescriptorProto) -> Iterator[Finding]:
    folder, _, name = file.name.rpartition("/")
    if not SNAKE.fullmatch(name.removesuffix(".proto")):
        yield (), f"FILE_LOWER_SNAKE_CASE {name}: use lower_snake_case.proto"
    if not file.package:
        yield (), "PACKAGE_DEFINED there is no package; give it the one of its folder"
        return
    if file.package.replace(".", "/") != folder:
        yield (2,), f"PACKAGE_DIRECTORY_MATCH package {file.package} is not in its folder; put it in that, or rename it"
    if not all(SNAKE.fullmatch(part) for part in file.package.split(".")):
        yield (2,), f"PACKAGE_LOWER_SNAKE_CASE {file.package}: use lower_snake.case"
    if not VERSION.fullmatch(file.package.split(".")[-1]):
        yield (2,), f"PACKAGE_VERSION_SUFFIX {file.package} has no version; end it in one such as .v1"
    for index in (*file.public_dependency, *file.weak_dependency):
        name = file.dependency[index]
        yield (3, index), f"IMPORT_NO_PUBLIC {name} is imported as public or weak; import it where it is used"


def _of_names(file: pb.FileDescriptorProto) -> Iterator[Finding]:
    for index, message in enumerate(file.message_type):
        yield from _of_message(message, (4, index))
    for index, enum in enumerate(file.enum_type):
        yield from _of_enum(enum, (5, index))
    for index, service in enumerate(file.service):
        yield from _of_service(service, (6, index), file.package)


def _of_message(message: pb.DescriptorProto, at: Place) -> Iterator[Finding]:
    if message.options.map_entry:
        return
    if not PASCAL.fullmatch(message.name):
        yield at, f"MESSAGE_PASCAL_CASE {message.name}: use PascalCase"
    for index, field in enumerate(message.field):
        if not SNAKE.fullmatch(field.name):
            yield (*at, 2, index), f"FIELD_LOWER_SNAKE_CASE {message.name}.{field.name}: use lower_snake_case"
        if field.label == FIELD.LABEL_REQUIRED:
            yield (*at, 2, index), f"FIELD_NOT_REQUIRED {message.name}.{field.name} is required; it could never go"
    for index, oneof in enumerate(message.oneof_decl):
        # An `optional` field has a oneof of its own, whose name protoc makes.
        if not oneof.name.startswith("_") and not SNAKE.fullmatch(oneof.name):
            yield (*at, 8, index), f"ONEOF_LOWER_SNAKE_CASE {message.name}.{oneof.name}: use lower_snake_case"
    for index, inner in enumerate(message.nested_type):
        yield from _of_message(inner, (*at, 3, index))
    for index, enum in enumerate(message.enum_type):
        yield from _of_enum(enum, (*at, 4, index))


def _of_enum(enum: pb.EnumDescriptorProto, at: Place) -> Iterator[Finding]:
    if not PASCAL.fullmatch(enum.name):
        yield at, f"ENUM_PASCAL_CASE {enum.name}: use PascalCase"
    if enum.options.allow_alias:
        yield (*at, 3, 2), f"ENUM_NO_ALLOW_ALIAS {enum.name}: give each value a number of its own"
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", enum.name).upper() + "_"
    for index, value in enumerate(enum.value):
        where = (*at, 2, index)
        if not UPPER.fullmatch(value.name):
            yield where, f"ENUM_VALUE_UPPER_SNAKE_CASE {value.name}: use UPPER_SNAKE_CASE"
        if not value.name.startswith(prefix):
            yield where, f"ENUM_VALUE_PREFIX {value.name}: begin it with {prefix}"
        if value.number == 0 and not value.name.endswith("_UNSPECIFIED"):
            yield where, f"ENUM_ZERO_VALUE_SUFFIX {value.name} is 0; call that {prefix}UNSPECIFIED"
    if enum.value and enum.value[0].number != 0:
        yield (*at, 2, 0), f"ENUM_FIRST_VALUE_ZERO {enum.value[0].name}: begin with {prefix}UNSPECIFIED = 0"


def _of_service(service: pb.ServiceDescriptorProto, at: Place, package: str) -> Iterator[Finding]:
    if not PASCAL.fullmatch(service.name):
        yield at, f"SERVICE_PASCAL_CASE {service.name}: use PascalCase"
    if not service.name.endswith("Service"):
        yield at, f"SERVICE_SUFFIX {service.name}: call it {service.name}Service"
    for index, rpc in enumerate(service.method):
        where = (*at, 2, index)
        if not PASCAL.fullmatch(rpc.name):
            yield where, f"RPC_PASCAL_CASE {rpc.name}: use PascalCase"
        for what, name in (("Request", rpc.input_type), ("Response", rpc.output_type)):
            allowed = [f".{package}.{start}{rpc.name}{what}" for start in ("", service.name)]
            if name not in allowed:
                rule = f"RPC_{what.upper()}_STANDARD_NAME"
                yield where, f"{rule} {rpc.name} has {name.lstrip('.')}; give it a {rpc.name}{what} of its own"


def _of_requests(files: pb.FileDescriptorSet) -> list[str]:
    """A message that two calls share ties their futures together."""
    calls = [rpc for file in files.file for service in file.service for rpc in service.method]
    used = Counter(name for rpc in calls for name in (rpc.input_type, rpc.output_type))
    return [
        f"RPC_REQUEST_RESPONSE_UNIQUE {name.lstrip('.')} is of {times} calls; give each its own"
        for name, times in sorted(used.items())
        if times > 1
    ]


# -- breaks -------------------------------------------------------------------------------------------------


def breaks(old: pb.FileDescriptorSet, new: pb.FileDescriptorSet) -> list[str]:
    """What readers, writers and callers of the old contract can no longer rely on."""
    return [*_lost_messages(old, new), *_lost_enums(old, new), *_lost_calls(old, new)]


def _messages(files: pb.FileDescriptorSet) -> dict[str, pb.DescriptorProto]:
    found: dict[str, pb.DescriptorProto] = {}

    def walk(prefix: str, message: pb.DescriptorProto) -> None:
        found[f"{prefix}{message.name}"] = message
        for inner in message.nested_type:
            walk(f"{prefix}{message.name}.", inner)

    for file in files.file:
        for message in file.message_type:
            walk(f"{file.package}.", message)
    return found


def _enums(files: pb.FileDescriptorSet) -> dict[str, pb.EnumDescriptorProto]:
    top = {f"{file.package}.{enum.name}": enum for file in files.file for enum in file.enum_type}
    nested = {f"{name}.{enum.name}": enum for name, one in _messages(files).items() for enum in one.enum_type}
    return top | nested


def _lost_messages(old: pb.FileDescriptorSet, new: pb.FileDescriptorSet) -> Iterator[str]:
    now = _messages(new)
    for name, before in _messages(old).items():
        if name not in now:
            yield f"message {name} is gone"
            continue
        after = now[name]
        fields = {field.number: field for field in after.field}
        for field in before.field:
            if field.number in fields:
                yield from _changed(name, field, fields[field.number], before, after)
            elif not _reserved(after, field.number, field.name):
                yield f'{name}.{field.name} is gone; add `reserved {field.number}; reserved "{field.name}";`'
        for taken in before.reserved_range:
            if not all(_reserved(after, number) for number in (taken.start, taken.end - 1)):
                yield f"{name}: numbers {taken.start} to {taken.end - 1} are no longer reserved"


def _changed(
    name: str,
    old: pb.FieldDescriptorProto,
    new: pb.FieldDescriptorProto,
    before: pb.DescriptorProto,
    after: pb.DescriptorProto,
) -> Iterator[str]:
    field = f"{name}.{old.name} ({old.number})"
    for what in ("name", "json_name", "type", "type_name", "label", "proto3_optional"):
        was, now = getattr(old, what), getattr(new, what)
        if was != now:
            shown = [
                FIELD.Type.Name(v) if what == "type" else FIELD.Label.Name(v) if what == "label" else repr(v)
                for v in (was, now)
            ]
            yield f"{field}: its {what} was {shown[0]} and is {shown[1]}"
    was_in, is_in = (_oneof(*pair) for pair in ((old, before), (new, after)))
    if was_in != is_in:
        yield f"{field}: was in oneof {was_in or 'none'} and is in {is_in or 'none'}"


def _oneof(field: pb.FieldDescriptorProto, message: pb.DescriptorProto) -> str:
    real = field.HasField("oneof_index") and not field.proto3_optional
    return message.oneof_decl[field.oneof_index].name if real else ""


def _reserved(message: pb.DescriptorProto | pb.EnumDescriptorProto, number: int, name: str | None = None) -> bool:
    """The end of a message's range is beyond it, that of an enum's in it."""
    beyond = 0 if isinstance(message, pb.EnumDescriptorProto) else 1
    numbered = any(taken.start <= number <= taken.end - beyond for taken in message.reserved_range)
    return numbered and (name is None or name in message.reserved_name)


def _lost_enums(old: pb.FileDescriptorSet, new: pb.FileDescriptorSet) -> Iterator[str]:
    now = _enums(new)
    for name, before in _enums(old).items():
        if name not in now:
            yield f"enum {name} is gone"
            continue
        values = {value.number: value.name for value in now[name].value}
        for value in before.value:
            if value.number not in values:
                if not _reserved(now[name], value.number, value.name):
                    yield f"{name}.{value.name} is gone; reserve {value.number} and its name"
            elif values[value.number] != value.name:
                yield f"{name}.{value.name} ({value.number}): its name is {values[value.number]}"


def _lost_calls(old: pb.FileDescriptorSet, new: pb.FileDescriptorSet) -> Iterator[str]:
    now = {f"{file.package}.{service.name}": service for file in new.file for service in file.service}
    for file in old.file:
        for service in file.service:
            name = f"{file.package}.{service.name}"
            if name not in now:
                yield f"service {name} is gone"
                continue
            calls = {rpc.name: rpc for rpc in now[name].method}
            for rpc in service.method:
                yield from _lost_call(f"{name}.{rpc.name}", rpc, calls.get(rpc.name))


def _lost_call(name: str, old: pb.MethodDescriptorProto, new: pb.MethodDescriptorProto | None) -> Iterator[str]:
    if new is None:
        yield f"call {name} is gone"
        return
    for what in ("input_type", "output_type", "client_streaming", "server_streaming"):
        was, now = getattr(old, what), getattr(new, what)
        if was != now:
            yield f"call {name}: its {what} was {was!r} and is {now!r}"


# -- the last release ---------------------------------------------------------------------------------------


def last_release(repository: Path) -> str | None:
    """The newest tag `v*` before this commit; None where git has none, or there is no git."""
    told = _git(repository, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    return None if told is None else told.decode().strip()


def released(repository: Path, tag: str) -> pb.FileDescriptorSet:
    """The descriptors of the .proto files as they were."""
    packed = _git(repository, "archive", "--format=tar", tag, "proto")
    if packed is None:
        raise SystemExit(f"git knows no tag {tag} with a folder proto here; fetch it, or name another")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(packed)) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith(".proto"):
                data = archive.extractfile(member)
                target = Path(folder) / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data.read() if data is not None else b"")
        return compiled(Path(folder) / "proto")


def _untagged(repository: Path) -> str:
    if _git(repository, "rev-parse", "--is-shallow-repository") == b"true\n":
        return "no release tag v* in this shallow clone: nothing is compared; git fetch --tags --unshallow brings them"
    return "no release tag v* here: there is no contract yet that could break"


def _git(repository: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def main(arguments: list[str], repository: Path = ROOT) -> int:
    if arguments and (len(arguments) != 2 or arguments[0] != "--against"):
        print("usage: python tools/protolint.py [--against TAG]", file=sys.stderr)
        return 2
    files = compiled(repository / "proto")
    found = lint(files)
    print("\n".join(found) or f"{len(files.file)} .proto files keep to the rules")
    tag = arguments[1] if arguments else last_release(repository)
    if tag is None:
        print(_untagged(repository))
        return 1 if found else 0
    broken = breaks(released(repository, tag), files)
    print("\n".join(f"breaks {tag}: {one}" for one in broken) or f"nothing breaks the contract of {tag}")
    return 1 if found or broken else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

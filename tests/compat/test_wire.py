"""The contracts of this release against those of the one before: what was there is still there and means the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from tests.cli.command import environment
from tests.compat.descriptors import breaks, own
from tests.compat.previous import Release, unpacked
from tests.service.processes import process

pytestmark = pytest.mark.xdist_group("compat")

OPTIONAL, UINT64, STRING = 1, 4, 9


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpacked(tmp_path_factory.mktemp("previous"))


def test_no_contract_changed_its_meaning(before: Release, tmp_path: Path) -> None:
    """No field's number has another name, type or oneof; no message, enum value or RPC is gone."""
    program = str(Path(__file__).parent / "descriptors.py")
    path = environment() | {"PYTHONPATH": before.path}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=path, capture_output=True, check=True)
    old = FileDescriptorSet.FromString(done.stdout)
    assert {"PutStream", "Sync"} <= {method.name for file in old.file for s in file.service for method in s.method}
    assert breaks(old, own()) == []


def message_of(file: FileDescriptorProto) -> DescriptorProto:
    return file.message_type[0]


def renamed(file: FileDescriptorProto) -> None:
    message_of(file).field[0].name = "other"


def retyped(file: FileDescriptorProto) -> None:
    message_of(file).field[0].type = STRING


def grown(file: FileDescriptorProto) -> None:
    message_of(file).field[0].label = 3


def dropped(file: FileDescriptorProto) -> None:
    del message_of(file).field[0]


def reused(file: FileDescriptorProto) -> None:
    message_of(file).field.add(name="late", number=9, type=UINT64, label=OPTIONAL)


def less_an_rpc(file: FileDescriptorProto) -> None:
    del file.service[0].method[0]


def streaming(file: FileDescriptorProto) -> None:
    file.service[0].method[0].server_streaming = True


def less_a_value(file: FileDescriptorProto) -> None:
    del file.enum_type[0].value[1]


def less_a_message(file: FileDescriptorProto) -> None:
    del file.message_type[0]


def some_contract() -> FileDescriptorSet:
    contract = FileDescriptorSet()
    file = contract.file.add(name="a.proto", package="a")
    message = file.message_type.add(name="M")
    message.field.add(name="rows", number=1, type=UINT64, label=OPTIONAL)
    message.reserved_range.add(start=9, end=10)
    kind = file.enum_type.add(name="E")
    kind.value.add(name="E_UNSPECIFIED", number=0)
    kind.value.add(name="E_ONE", number=1)
    file.service.add(name="S").method.add(name="Do", input_type=".a.M", output_type=".a.M")
    return contract


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (renamed, "a.M.rows = 1 was ('rows'"),
        (retyped, "a.M.rows = 1 was"),
        (grown, "a.M.rows = 1 was"),
        (dropped, "a.M.rows is gone; reserve its number 1"),
        (reused, "a.M.late takes the number 9"),
        (less_an_rpc, "a.S.Do is gone"),
        (streaming, "a.S.Do takes or gives something else"),
        (less_a_value, "a.E: 1 was E_ONE, now nothing"),
        (less_a_message, "a.M is gone"),
    ],
)
def test_what_would_break_is_told(change: Callable[[FileDescriptorProto], None], told: str) -> None:
    """Each kind of break, made on purpose in a small contract."""
    new = some_contract()
    change(new.file[0])
    (found,) = breaks(some_contract(), new)
    assert found.startswith(told)


def test_what_does_not_break_passes() -> None:
    """New fields, values, RPCs and messages; a field that went and left its number and name reserved."""
    new = some_contract()
    file = new.file[0]
    file.message_type.add(name="N")
    file.enum_type[0].value.add(name="E_TWO", number=2)
    file.service[0].method.add(name="Undo", input_type=".a.M", output_type=".a.N")
    message_of(file).field.add(name="keys", number=2, type=UINT64, label=OPTIONAL)
    dropped(file)
    message_of(file).reserved_range.add(start=1, end=2)
    message_of(file).reserved_name.append("rows")
    assert breaks(some_contract(), new) == []


# -- REST ----------------------------------------------------------------------------------------------------------


def rest_breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Calls that are gone; properties that a request must have now, or an answer has no more."""
    told = []
    for path, calls in old["paths"].items():
        gone = set(calls) - set(new["paths"].get(path, {}))
        told += [f"{call} {path} is gone" for call in sorted(gone)]
    for name, schema in old["components"]["schemas"].items():
        now = new["components"]["schemas"].get(name)
        if now is None:
            told.append(f"{name} is gone")
            continue
        lost = set(schema.get("properties", {})) - set(now.get("properties", {}))
        more = set(now.get("required", [])) - set(schema.get("required", []))
        told += [f"{name}.{one} is gone" for one in sorted(lost)]
        if name in _sent(new):
            told += [f"{name}.{one} is required now" for one in sorted(more)]
    return told


def _sent(document: dict[str, Any]) -> set[str]:
    """The schemas that requests are made of, by name."""
    bodies = [call.get("requestBody") for calls in document["paths"].values() for call in calls.values()]
    found: set[str] = set()
    waiting = [json.dumps(bodies)]
    while waiting:
        for part in waiting.pop().split("#/components/schemas/")[1:]:
            name = part.partition('"')[0]
            if name not in found:
                found.add(name)
                waiting.append(json.dumps(document["components"]["schemas"][name]))
    return found


def openapi(folder: Path, **more: str) -> dict[str, Any]:
    folder.mkdir()
    with process(folder, **more) as service:
        document: dict[str, Any] = httpx.get(service.url("/openapi.json"), trust_env=False, timeout=60).json()
    return document


def test_no_rest_call_changed_its_meaning(before: Release, tmp_path: Path) -> None:
    """By the OpenAPI documents that both releases serve; and each kind of break is told."""
    old, new = openapi(tmp_path / "old", PYTHONPATH=before.path), openapi(tmp_path / "new")
    assert len(old["paths"]) > 5
    assert rest_breaks(old, new) == []
    less = json.loads(json.dumps(new))
    del less["paths"]["/v1/streams"]["get"]
    name = next(name for name in sorted(_sent(new)) if new["components"]["schemas"][name].get("properties"))
    gone = next(iter(less["components"]["schemas"][name]["properties"]))
    del less["components"]["schemas"][name]["properties"][gone]
    less["components"]["schemas"][name]["required"] = ["new"]
    assert rest_breaks(new, less) == [
        "get /v1/streams is gone",
        f"{name}.{gone} is gone",
        f"{name}.new is required now",
    ]

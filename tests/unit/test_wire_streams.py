"""Settings of streams, parts, finished batches and versions on the wire."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct, Value

from unskew.core.errors import WireError
from unskew.core.plan.plan import Version
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire.streams import (
    part_from_message,
    part_to_message,
    reported_at,
    spec_from_bytes,
    spec_from_message,
    spec_to_bytes,
    spec_to_message,
    version_from_message,
    version_to_message,
    work_from_bytes,
    work_from_message,
    work_to_bytes,
    work_to_message,
)

SPEC = StreamSpec(
    partitions=4,
    policy="kip",
    parameters={"slack": 0.125},
    weights=(1.0, 2.0, 1.0, 0.5),
    seed=0,
    key_types=("string", "decimal(10,2)"),
    history=3,
    decay=0.0,
    dsync=2.0,
    dsync_min=0.5,
    dsync_max=60.0,
)
WORK = BatchWork(
    (Work(3, 100, 10, 12, 1.5, 7, 66.0), Work(0)),
    interval=10.0,
    processing=4.0,
    map_time=1.0,
    version=Version(7, 2**64 - 1),
)


def test_a_spec_comes_back_as_it_was() -> None:
    """Also where a setting is 0 and that is no default: a seed, a decay."""
    assert spec_from_bytes(spec_to_bytes(SPEC)) == SPEC
    assert spec_from_message(spec_to_message(StreamSpec(8))) == StreamSpec(8)


def test_what_is_not_given_is_as_the_contract_says() -> None:
    """0 and unset stand for the defaults; a seed of 0 is a seed."""
    spec = spec_from_message(pb.StreamSpec(partitions=16))
    assert spec == StreamSpec(16, seed=0)
    assert (spec.policy, spec.history, spec.decay, spec.dsync, spec.dsync_min, spec.dsync_max) == (
        "auto", 8, 0.5, 20.0, 1.0, 3600.0,
    )  # fmt: skip


def test_parameters_are_plain_values() -> None:
    """A Struct knows doubles only: whole ones are ints, as planners want them; in the order of their names."""
    given = {"keep_untried": True, "look": 12.0, "gamma": 0.25, "split_cap": "share", "share": 2}
    message = json_format.ParseDict({"partitions": 8, "policy": "dalton", "parameters": given}, pb.StreamSpec())
    got = spec_from_message(message).parameters
    assert list(got) == sorted(given)
    assert got == given
    assert {type(got["look"]), type(got["share"]), type(got["keep_untried"])} == {int, bool}
    nothing = json_format.ParseDict(
        {"partitions": 8, "policy": "prompt", "parameters": {"listed": None}}, pb.StreamSpec()
    )
    assert spec_from_message(nothing).parameters == {"listed": None}


def test_equal_specs_are_equal_bytes() -> None:
    """Whatever the order of its parameters; -0.0 is 0.0."""
    one = StreamSpec(4, "kip", parameters={"slack": 0.5}, decay=0.0)
    other = StreamSpec(4, "kip", parameters={"slack": 0.5}, decay=-0.0)
    assert one == other
    assert spec_to_bytes(one) == spec_to_bytes(other)


def spec(**fields: object) -> pb.StreamSpec:
    return pb.StreamSpec(**{"partitions": 4, **fields})  # type: ignore[arg-type]


def parameter(**kind: object) -> Struct:
    return Struct(fields={"slack": Value(**kind)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("spec.partitions", spec(partitions=0)),
        ("spec.partitions", spec(partitions=8193)),
        ("spec.partitions", spec(partitions=2**32 - 1)),
        ("spec.policy", spec(policy="no-such")),
        ("spec.policy", spec(policy="x" * 100_000)),
        ("spec.weights", spec(weights=[1.0])),
        ("spec.weights", spec(weights=[1.0, 1.0, 1.0, math.nan])),
        ("spec.weights", spec(weights=[1.0, 1.0, 1.0, 0.0])),
        ("spec.weights", spec(weights=[1.0] * 9000)),
        ("spec.key_types", spec(key_types=["map"])),
        ("spec.key_types", spec(key_types=["x" * 1000])),
        ("spec.key_types", spec(key_types=["int"] * 101)),
        ("spec.history", spec(history=1001)),
        ("spec.decay", spec(decay=1.5)),
        ("spec.decay", spec(decay=math.nan)),
        ("spec.dsync_seconds", spec(dsync_seconds=0.5)),
        ("spec.dsync_seconds", spec(dsync_max_seconds=math.inf)),
        ("spec.dsync_seconds", spec(dsync_min_seconds=-1.0)),
        ("spec.dsync_seconds", spec(dsync_seconds=math.nan)),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(number_value=math.nan))),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(number_value=math.inf))),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter())),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(struct_value=Struct()))),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(string_value="x" * 5000))),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(string_value="much"))),
        ("spec.parameters.slack", spec(policy="kip", parameters=parameter(number_value=-5.0))),
        ("spec.parameters", spec(policy="hash", parameters=parameter(number_value=0.5))),
        ("spec.parameters.seed", spec(parameters=Struct(fields={"seed": Value(number_value=1)}))),
        ("spec.parameters", spec(parameters=Struct(fields={f"p{i}": Value(bool_value=True) for i in range(101)}))),
        ("spec.parameters", spec(parameters=Struct(fields={"x" * 500: Value(bool_value=True)}))),
    ],
)
def test_a_wrong_setting_is_named(field: str, message: pb.StreamSpec) -> None:
    with pytest.raises(WireError) as caught:
        spec_from_message(message)
    assert caught.value.field == field
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("value", [2**53 + 1, -(2**60), math.inf, math.nan, [1], {"a": 1}, object()])
def test_a_parameter_that_would_come_back_as_another_is_not_written(value: object) -> None:
    made = StreamSpec(4, "kip")
    object.__setattr__(made, "parameters", {"slack": value})
    with pytest.raises(WireError) as caught:
        spec_to_message(made)
    assert caught.value.field == "spec.parameters.slack"


def test_parts_and_versions_come_back_as_they_were() -> None:
    for part in (Part("app/q:1", -1), Part("a", 2**62, 2**62, 999_999, 1_000_000)):
        assert part_from_message(part_to_message(part)) == part
    for version in (Version(), Version(2**64 - 1, 2**64 - 1)):
        assert version_from_message(version_to_message(version)) == version


def test_a_finished_batch_comes_back_as_it_was() -> None:
    assert work_from_bytes(work_to_bytes(WORK)) == WORK
    assert work_from_bytes(work_to_bytes(BatchWork(()))) == BatchWork(())


def test_a_kept_batch_says_when_it_came_and_is_read_without_that_too() -> None:
    """As by a replica of the release before: it sees the report and nothing more."""
    kept = work_to_bytes(WORK, 1_700_000_000.25)
    assert (reported_at(kept), work_from_bytes(kept)) == (1_700_000_000.25, WORK)
    assert reported_at(work_to_bytes(WORK)) == 0.0
    assert not {field.number for field in pb.ReportBatchRequest.DESCRIPTOR.fields} & {1000}


def test_the_whole_request_says_whose_batch_it_is() -> None:
    request = work_to_message(WORK, "clicks", Part("app", 7), Version(1, 2))
    assert (request.stream, part_from_message(request.part)) == ("clicks", Part("app", 7))
    assert version_from_message(request.version) == Version(1, 2)
    assert work_from_message(request) == replace(WORK, version=Version(1, 2))
    assert work_from_message(work_to_message(WORK, "clicks", Part("app", 7))) == WORK


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval_seconds", -1.0),
        ("processing_seconds", math.nan),
        ("map_seconds", math.inf),
        ("reduce_seconds", -math.inf),
    ],
)
def test_times_are_finite_and_not_negative(field: str, value: float) -> None:
    with pytest.raises(WireError) as caught:
        work_from_message(pb.ReportBatchRequest(**{field: value}))  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "partitions"),
    [
        ("partitions", [pb.PartitionWork(partition=i) for i in range(8193)]),
        ("partitions", [pb.PartitionWork(partition=i, rows=2**62) for i in range(2)]),
        ("partitions", [pb.PartitionWork(queue=2**64 - 1)]),
        ("partitions[1].partition", [pb.PartitionWork(), pb.PartitionWork()]),
        ("partitions[0].partition", [pb.PartitionWork(partition=8192)]),
        ("partitions[0].seconds", [pb.PartitionWork(seconds=math.nan)]),
        ("partitions[0].capacity", [pb.PartitionWork(capacity=-1.0)]),
    ],
)
def test_a_wrong_partition_is_named(field: str, partitions: list[pb.PartitionWork]) -> None:
    with pytest.raises(WireError) as caught:
        work_from_message(pb.ReportBatchRequest(partitions=partitions))
    assert caught.value.field == field

"""A plan's bytes: stable, checked, readable by others, and refused when they are not right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.planning import some_histogram
from unskew.core.errors import PlanError, PlanFormatError
from unskew.core.plan.build import Placement, build_plan
from unskew.core.plan.plan import PlanInfo, Version
from unskew.core.planners import Origin, make_planner
from unskew.v1 import plan_pb2 as pb
from unskew.wire import plan_from_bytes, plan_to_bytes

GOLDEN = Path(__file__).parent.parent / "conformance" / "plan_v1.json"


def encoded() -> bytes:
    return plan_to_bytes(make_planner("balanced", 16).plan(some_histogram(exponent=1.5)))


def rewritten(field: str, value: object) -> bytes:
    """A plan file as somebody else's writer might make it: one field changed, the checksum right."""
    file, body = pb.PlanFile(), pb.Plan()
    file.ParseFromString(encoded())
    body.ParseFromString(file.body)
    if isinstance(value, list):
        del getattr(body, field)[:]
        getattr(body, field).extend(value)
    else:
        setattr(body, field, value)
    file.body = body.SerializeToString()
    file.checksum = xxhash.xxh64_intdigest(file.body)
    return file.SerializeToString()


def test_everything_survives_the_trip() -> None:
    """Tables, key types and all metadata come back as they were."""
    origin = Origin(
        stream="clicks", batch=12, key_types=("string", "bigint"), version=Version(1_700_000_000_000_000, 9)
    )
    planner = make_planner("prompt", 16)
    first = planner.plan(some_histogram(seed=1))
    plan = planner.plan(some_histogram(seed=2), previous=first, origin=origin)
    back = plan_from_bytes(plan_to_bytes(plan))
    assert back == plan
    assert back != first
    assert back.info.previous == first.version
    assert back.info.moved_rows > 0
    assert back.key_types == ("string", "bigint")
    assert back.digest == plan.digest
    assert back.hot.reasons == plan.hot.reasons


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 40, b"\xff" * 40, b'{"partitions": 3}'])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PlanFormatError, match="not a plan of unskew"):
        plan_from_bytes(data)


def test_any_flipped_bit_is_noticed() -> None:
    """Damage anywhere, in the envelope or in the body, never gives a plan."""
    data = encoded()
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(data), 300).tolist():
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(0, 8))
        with pytest.raises(PlanFormatError):
            plan_from_bytes(bytes(damaged))


def test_any_missing_tail_is_noticed() -> None:
    data = encoded()
    for length in np.random.default_rng(2).integers(1, len(data), 100).tolist():
        with pytest.raises(PlanFormatError):
            plan_from_bytes(data[:length])


def test_a_newer_format_says_what_to_do() -> None:
    file = pb.PlanFile()
    file.ParseFromString(encoded())
    file.format = 99
    with pytest.raises(PlanFormatError, match=r"format 99 is not known here.*upgrade"):
        plan_from_bytes(file.SerializeToString())


@pytest.mark.parametrize(
    ("field", "value"),
    [("partitions", 0), ("partitions", 4), ("tail", [99] * 4096), ("split_bits", [99]), ("hot_rows", [2**63])],
)
def test_a_well_formed_file_with_impossible_tables_is_refused(field: str, value: object) -> None:
    """Somebody else's writer may be wrong: the tables themselves are checked, not only the checksum."""
    with pytest.raises(PlanFormatError, match="no usable plan"):
        plan_from_bytes(rewritten(field, value))


def test_a_plan_beyond_a_megabyte_is_not_written() -> None:
    """1 MB is the bound for what every task of every batch carries."""
    plan = build_plan(Placement.tail_only(np.zeros(4096, np.int32)), 201, PlanInfo(reason="x" * (1 << 20)))
    with pytest.raises(PlanError, match="at most 1,048,576"):
        plan_to_bytes(plan)


def test_the_format_does_not_drift() -> None:
    """A plan written by format 1 is kept as a file: it still reads, routes as recorded, and encodes to the same
    bytes. Other languages' readers use the same file."""
    golden = json.loads(GOLDEN.read_text())
    data = bytes.fromhex(golden["bytes"])
    plan = plan_from_bytes(data)
    assert plan_to_bytes(plan) == data
    assert plan.digest == golden["digest"]
    for key, spread, partition in golden["routes"]:
        assert plan.route_one(int(key), int(spread)) == partition


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lookup_bits", 24),
        ("lookup_displacement", [0] * 4096),
        ("split_bits", [256]),
        ("hot_reason", [256] * 16),
        ("loads", [1, 2, 3]),
        ("moved_rows", float("nan")),
        ("key_types", ["no such\x00type"]),
        ("tail", [0] * (1 << 19)),
        ("hot_home", [2**31 - 1] * 16),
    ],
)
def test_hostile_tables_are_refused_before_they_cost_anything(field: str, value: object) -> None:
    """Small files that would be huge tables, numbers that would wrap around, metadata that cannot be true."""
    with pytest.raises(PlanFormatError, match=r"no usable plan|are no plan"):
        plan_from_bytes(rewritten(field, value))


def test_bytes_beyond_the_bound_are_not_even_read() -> None:
    with pytest.raises(PlanFormatError, match="at most 1,048,576"):
        plan_from_bytes(encoded() + b"\x00" * (1 << 20))


@pytest.mark.parametrize("info", [PlanInfo(batch=2**63), PlanInfo(stream="\udcff"), PlanInfo(rows=-1)])
def test_metadata_that_cannot_be_written_is_one_clear_error(info: PlanInfo) -> None:
    plan = build_plan(Placement.tail_only(np.zeros(4096, np.int32)), 2, info)
    with pytest.raises(PlanError, match="metadata cannot be written"):
        plan_to_bytes(plan)


def test_a_version_fits_64_bits() -> None:
    with pytest.raises(PlanError, match="must fit 64 bits"):
        Version(0, 2**64 - 1).next()


def test_only_plans_are_encoded() -> None:
    with pytest.raises(PlanError, match="a Planner is not a plan"):
        plan_to_bytes(make_planner("kip", 4))  # type: ignore[arg-type]

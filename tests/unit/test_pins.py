"""A pin's bytes: everything in them survives, equal pins have equal bytes, and what is not whole is refused."""

from __future__ import annotations

import pytest
import xxhash

from tests.planning import key_hashes, some_histogram
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import PlanError, PlanFormatError
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.in_flight.layout import ContentLayout
from unskew.core.plan.plan import Plan
from unskew.core.planners import Origin, make_planner
from unskew.core.rounds.partition_agent import RoutingChoice, decide
from unskew.v1 import pins_pb2 as pb
from unskew.wire import StoredPin, pinned_from_bytes, pinned_to_bytes


def some_plan(partitions: int = 4) -> Plan:
    origin = Origin(stream="clicks", batch=6, key_types=("string",))
    return make_planner("balanced", partitions).plan(some_histogram(exponent=1.5), origin=origin)


def pinned(bound: RoutingChoice) -> StoredPin:
    return StoredPin(bound, "clicks", "q", ("user", "day"), ("auto",), began=1_700_000_000_000, reason="because")


def body_of(data: bytes) -> pb.Pin:
    return pb.Pin.FromString(data[8:])


def summed(message: pb.Pin) -> bytes:
    """As somebody else's writer might make it: the checksum is right."""
    body = message.SerializeToString()
    return xxhash.xxh64_digest(body) + body


def test_a_plan_and_all_about_it_survives() -> None:
    plan = some_plan()
    before = pinned(RoutingChoice(4, plan, batch=7, seed=-3))
    back = pinned_from_bytes(pinned_to_bytes(before))
    assert (back.stream, back.name, back.key, back.spread) == ("clicks", "q", ("user", "day"), ("auto",))
    assert (back.began, back.reason) == (1_700_000_000_000, "because")
    assert (back.bound.partitions, back.bound.batch, back.bound.seed) == (4, 7, -3)
    assert back.bound.plan == plan
    assert back.bound.table is None


def test_a_table_decides_the_same_after_the_trip() -> None:
    """All that a task goes by is in it: the round, the seed, the batch."""
    table = QTable.empty(4)
    before = RoutingChoice(4, table=table, records=10_000, version=(1_700_000_000_000_000, 12), batch=3, seed=9)
    after = pinned_from_bytes(pinned_to_bytes(pinned(before))).bound
    assert (after.records, after.version, after.plan) == (10_000, (1_700_000_000_000_000, 12), None)
    assert (after.batch, after.seed) == (3, 9)
    hashes = key_hashes(50).repeat(20)
    spread = key_hashes(1_000, seed=5)
    assert (decide(before, hashes, spread).partitions == decide(after, hashes, spread).partitions).all()


def test_cells_decide_the_same_after_the_trip() -> None:
    cells = CellTable(ContentLayout(16, 8), (32, 0, 36), ("string",))
    before = RoutingChoice(3, batch=3, cells=cells)
    data = pinned_to_bytes(pinned(before))
    after = pinned_from_bytes(data).bound
    assert after.cells is not None
    assert (after.cells.layout, after.cells.firsts, after.cells.key_types) == (cells.layout, cells.firsts, ("string",))
    assert (after.partitions, after.batch, after.plan, after.table) == (3, 3, None, None)
    hashes, spread = key_hashes(1_000), key_hashes(1_000, seed=5)
    decided = decide(after, hashes, spread).partitions
    assert (
        decided.tolist() == decide(before, hashes, spread).partitions.tolist() == cells.route(hashes, spread).tolist()
    )
    assert len(set(decided.tolist())) == 3


def test_cells_of_another_number_of_tasks_and_such_as_leave_rows_out_are_refused() -> None:
    cells = CellTable(ContentLayout(16, 8), (32, 0, 36))
    with pytest.raises(PlanError, match="3 tasks, the batch has 4"):
        RoutingChoice(4, cells=cells)
    message = body_of(pinned_to_bytes(pinned(RoutingChoice(3, cells=cells))))
    message.cells.firsts[1] = 1
    with pytest.raises(PlanFormatError, match="no usable pin"):
        pinned_from_bytes(summed(message))


def test_equal_pins_have_equal_bytes() -> None:
    one, other = (pinned_to_bytes(pinned(RoutingChoice(4, some_plan(), batch=7))) for _ in range(2))
    assert one == other


def test_no_part_of_a_pin_is_taken_for_one() -> None:
    """Half a file, a flipped bit, something else: one clear error."""
    data = pinned_to_bytes(pinned(RoutingChoice(4, some_plan(), batch=7)))
    for cut in (0, 4, 8, 9, len(data) // 2, len(data) - 1):
        with pytest.raises(PlanFormatError, match="no pin of unskew, or not whole"):
            pinned_from_bytes(data[:cut])
    for at in (0, 7, 8, len(data) // 2, len(data) - 1):
        with pytest.raises(PlanFormatError):
            pinned_from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(PlanFormatError):
        pinned_from_bytes(data + b"\0")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"partitions": 5}, "for 4 partitions, the batch for 5"),
        ({"plan": b"no plan"}, "no usable pin"),
    ],
)
def test_a_whole_file_with_nonsense_in_it_is_refused(change: dict[str, object], named: str) -> None:
    message = body_of(pinned_to_bytes(pinned(RoutingChoice(4, some_plan(), batch=7))))
    for field, value in change.items():
        setattr(message, field, value)
    with pytest.raises(PlanFormatError, match=named):
        pinned_from_bytes(summed(message))

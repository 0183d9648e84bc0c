"""Reports and answers on the wire: whole, equal to the byte, and refused by the field that is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from tests.messages import a_report, a_table, an_answer, same_answer, same_report
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import WireError
from unskew.core.rounds.messages import Report
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire.round_messages import (
    MAX_REPORTED,
    answer_from_bytes,
    answer_from_message,
    answer_to_bytes,
    answer_to_message,
    answer_to_response,
    report_as_sent,
    report_from_bytes,
    report_from_message,
    report_to_bytes,
    report_to_message,
    table_from_message,
    table_to_message,
)


def numbers(*values: int) -> bytes:
    return np.array(values, np.uint64).tobytes()


def floats(count: int, value: float) -> bytes:
    return np.full(count, value).tobytes()


@pytest.mark.parametrize("workers", [1, 7, 8, 9, 64])
@pytest.mark.parametrize("keys", [0, 1, 64])
def test_a_report_comes_back_as_it_was(workers: int, keys: int) -> None:
    """Whatever the number of workers leaves of the last byte of a row of bits."""
    report = a_report(workers, keys)
    assert same_report(report_from_bytes(report_to_bytes(report)), report)
    assert same_report(report_from_message(report_to_message(report)), report)


def test_an_answer_comes_back_as_it_was() -> None:
    """Kept as bytes it needs the names beside; sent to an agent it says whether that one's report is in it."""
    answer = an_answer()
    assert same_answer(answer_from_bytes(answer_to_bytes(answer), answer.merged), answer)
    got = answer_from_message(answer_to_message(answer, 9, merged=True, age=1.5), answer.merged[0])
    assert (got.incarnation, got.merged, got.age) == (9, True, 1.5)
    assert got.answer.merged == answer.merged
    assert got.answer.version == (9, answer.epoch)


def test_an_answer_without_the_callers_report_names_none() -> None:
    got = answer_from_message(answer_to_message(an_answer(), 9, merged=False), ("agent", 1, 1))
    assert (got.merged, got.answer.merged) == (False, ())


def test_what_one_agent_is_told_does_not_reach_the_next() -> None:
    """The table is packed once for all agents of a round; what is said to each is not."""
    answer = an_answer()
    first = answer_to_message(answer, 5, merged=True, age=2.0)
    second = answer_to_message(answer)
    first.table.Clear()
    assert (second.incarnation, second.merged, second.age_seconds) == (answer.incarnation, False, 0.0)
    assert same_answer(answer_from_message(second, None).answer, answer_from_bytes(answer_to_bytes(answer)))


def test_equal_tables_are_equal_bytes() -> None:
    """-0.0 equals 0.0, and is written as it."""
    table = a_table()
    plus, minus = np.zeros(table.values.shape), np.full(table.values.shape, -0.0)
    one, other = (QTable(table.hashes, values, table.rows, table.held) for values in (plus, minus))
    assert one == other
    assert table_to_message(one).SerializeToString() == table_to_message(other).SerializeToString()


def test_arrays_are_views_of_the_message_and_cannot_be_written_to() -> None:
    table = table_from_message(table_to_message(a_table()))
    assert not table.values.flags.owndata
    assert not table.hashes.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        table.values[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        table.held[0, 0] = True


def changed(change: Callable[[pb.SyncReport], object]) -> pb.SyncReport:
    message = report_to_message(a_report())
    change(message)
    return message


def put(path: str, value: object) -> Callable[[pb.SyncReport], object]:
    """Set a field by its path."""

    def change(message: object) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return change


WRONG = [
    ("report.agent", ""),
    ("report.agent", "an agent"),
    ("report.agent", "a" * 201),
    ("report.table.workers", 0),
    ("report.table.workers", 8193),
    ("report.table.workers", 2**32 - 1),
    ("report.table.hashes", numbers(1, 2, 3, 5, 4)),
    ("report.table.hashes", numbers(1, 2, 3, 4, 4)),
    ("report.table.hashes", b"1234567"),
    ("report.table.values", b""),
    ("report.table.values", floats(56, 0.0)),
    ("report.table.values", floats(55, float("nan"))),
    ("report.table.values", floats(55, float("inf"))),
    ("report.table.values", floats(55, -2.5)),
    ("report.table.rows", numbers(1, 2, 3, 4)),
    ("report.table.rows", numbers(1, 2, 3, 4, 2**63)),
    ("report.table.rows", numbers(1, 2, 3, 4, MAX_REPORTED + 1)),
    ("report.table.held", b"\x00" * 9),
    ("report.table.held", b"\x00\x08" * 5),
    ("report.records", 2**63),
    ("report.records", MAX_REPORTED + 1),
    ("report.records", 3),
    ("report.loads", numbers(*range(10))),
    ("report.loads", numbers(*range(10), 2**64 - 1)),
    ("report.loads", numbers(*range(10), MAX_REPORTED + 1)),
    ("report.dsync_seconds", 0.0),
    ("report.dsync_seconds", float("nan")),
    ("report.dsync_seconds", float("inf")),
    ("report.dsync_seconds", -1.0),
    ("report.seq", 0),
    ("report.frequent.counts", numbers(1)),
    ("report.frequent.hashes", b"123"),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_wrong_field_of_a_report_is_named(field: str, value: object) -> None:
    """Each by its path in the request, in the error and in its text."""
    message = changed(put(field.removeprefix("report."), value))
    with pytest.raises(WireError) as caught:
        report_from_message(message)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("field", "value"),
    [("capacity", 0), ("capacity", 1), ("total", 2**63), ("error", 10**9), ("rounding", 10**9)],
)
def test_an_impossible_summary_is_refused(field: str, value: int) -> None:
    """One that claims more than its counts allow would make cold keys hot for everybody."""
    with pytest.raises(WireError, match=r"report\.frequent"):
        report_from_message(changed(put(f"frequent.{field}", value)))


def test_a_summary_that_is_not_sorted_is_refused() -> None:
    message = report_to_message(a_report())
    hashes = np.frombuffer(message.frequent.hashes, np.uint64)
    message.frequent.hashes = hashes[::-1].tobytes()
    with pytest.raises(WireError, match=r"report\.frequent: hashes: not in rising order"):
        report_from_message(message)


@pytest.mark.parametrize("name", ["unsure", "split"])
@pytest.mark.parametrize("value", [numbers(2, 1), numbers(1, 1), b"123"])
def test_sets_of_an_answer_are_ascending(name: str, value: bytes) -> None:
    message = answer_to_message(an_answer())
    setattr(message, name, value)
    with pytest.raises(WireError) as caught:
        answer_from_message(message)
    assert caught.value.field == f"answer.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dsync_seconds", 0.0),
        ("dsync_seconds", float("nan")),
        ("age_seconds", -1.0),
        ("age_seconds", float("inf")),
        ("records", 2**63),
        ("loads", numbers(1)),
    ],
)
def test_a_wrong_field_of_an_answer_is_named(name: str, value: object) -> None:
    message = answer_to_message(an_answer())
    setattr(message, name, value)
    with pytest.raises(WireError) as caught:
        answer_from_message(message)
    assert caught.value.field == f"answer.{name}"


@pytest.mark.parametrize("data", [b"\xff" * 30, b"\x0a\xff\xff\xff\xff\x03abc", b"\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """Noise, a claim of a gigabyte, and a name that is not UTF-8."""
    with pytest.raises(WireError, match="no SyncReport"):
        report_from_bytes(data)


def test_a_report_that_cannot_be_written_says_so() -> None:
    report = a_report()
    broken = Report(**{**vars(report), "session": 2**64})
    with pytest.raises(WireError, match="report: cannot be written"):
        report_to_message(broken)


def test_an_error_keeps_its_field_through_a_process_border() -> None:
    error = pickle.loads(pickle.dumps(WireError("hashes", "too many", too_much=True)))
    assert (error.field, error.why, error.too_much, str(error)) == ("hashes", "too many", True, "hashes: too many")


@pytest.mark.parametrize(("merged", "age"), [(True, 0.0), (True, 1.5), (False, 0.0), (False, 3.0)])
@pytest.mark.parametrize("incarnation", [0, 1, 1_700_000_000_000_000])
def test_an_answer_joined_from_pieces_is_the_message_to_the_byte(merged: bool, age: float, incarnation: int) -> None:
    """What all agents of a round have in common is written once, whoever is asked for, in any order."""
    answer = an_answer()
    for life in (incarnation, 5, incarnation):
        whole = pb.SyncResponse(answer=answer_to_message(answer, life, merged, age))
        assert answer_to_response(answer, life, merged, age) == whole.SerializeToString()


def test_a_report_is_kept_as_it_was_sent_but_for_what_is_not_known_here() -> None:
    """A field of a later release, at the top and within, does not go into the store."""
    report = a_report(64, 64)
    sent = report_to_message(report)
    unknown = b"\xfa\x3f\x05extra"  # field 1023
    later = pb.SyncReport.FromString(sent.SerializeToString() + unknown)
    later.table.MergeFromString(unknown)
    assert b"extra" in later.SerializeToString()
    taken, data = report_as_sent(later)
    assert same_report(taken, report)
    assert data == report_to_bytes(report)


def test_a_wrong_report_is_not_kept() -> None:
    sent = report_to_message(a_report())
    sent.loads = b""
    with pytest.raises(WireError, match=r"report\.loads"):
        report_as_sent(sent)

"""The quick way to read a report takes nothing that core's checks would refuse, and reads nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import a_report, same_report
from unskew.core.errors import UnskewError
from unskew.core.rounds.messages import Report
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire.fast_reports import fast_report
from unskew.wire.round_messages import checked_report, report_to_message

EDGES = [0, 1, 2**31, 2**40, 2**40 + 1, 2**48 + 1, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS = ("session", "seq", "records")
ARRAYS = ("table.hashes", "table.values", "table.rows", "table.held", "frequent.hashes", "frequent.counts", "loads")
FLOATS = [-0.0, 2.0, 2.0000001, -2.0, -2.0000001, float("nan"), float("inf"), -float("inf")]


def held_by(message: pb.SyncReport, path: str) -> tuple[pb.SyncReport | pb.QTable | pb.FrequentItems, str]:
    outer, _, name = path.rpartition(".")
    return (getattr(message, outer) if outer else message), name


@st.composite
def spoiled(draw: st.DrawFn) -> pb.SyncReport:
    """A report of one or two agents' tables, with something in it that may be wrong."""
    message = report_to_message(a_report(draw(st.sampled_from([7, 8, 16])), draw(st.integers(0, 5))))
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["number", "summary", "array", "float", "text", "workers"]))
        if kind == "number":
            setattr(message, draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(EDGES)))
        elif kind == "summary":
            name = draw(st.sampled_from(["error", "total", "rounding"]))
            setattr(message.frequent, name, draw(st.sampled_from([*EDGES, 4000])))
        elif kind == "workers":
            message.table.workers = draw(st.sampled_from([0, 1, 8, 9, 2**20]))
        elif kind == "text":
            message.agent = draw(st.sampled_from(["", "a b", "a" * 201, "ok"]))
        elif kind == "float":
            message.dsync_seconds = draw(st.sampled_from([*FLOATS, 5.0]))
        else:
            part, name = held_by(message, draw(st.sampled_from(ARRAYS)))
            setattr(part, name, draw(changed(getattr(part, name))))
    return message


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """One number of it another, or some of it gone."""
    if len(data) < 8 or draw(st.booleans()):
        return data[: draw(st.integers(0, len(data)))]
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).copy()
    at = draw(st.integers(0, len(words) - 1))
    other = [np.float64(number).view(np.uint64) for number in FLOATS]
    words[at] = draw(st.sampled_from([*(np.uint64(edge) for edge in EDGES), *other, words[0]]))
    return words.tobytes()


def careful(message: pb.SyncReport) -> Report | None:
    try:
        return checked_report(message)
    except UnskewError:
        return None


def try_both(message: pb.SyncReport) -> None:
    quick = fast_report(message)
    if quick is not None:
        slow = careful(message)
        assert slow is not None
        assert same_report(quick, slow)
        assert quick.__dict__.keys() == slow.__dict__.keys()
        assert quick.table.__dict__.keys() == slow.table.__dict__.keys()
        assert quick.frequent.__dict__.keys() == slow.frequent.__dict__.keys()


@settings(max_examples=300)
@given(message=spoiled())
def test_what_is_taken_quickly_is_what_the_checks_of_core_make_of_it(message: pb.SyncReport) -> None:
    """Bounds and one beyond them, in every field: taken the same, or left to those checks."""
    try_both(message)


@pytest.mark.long
@settings(max_examples=10_000)
@given(message=spoiled())
def test_what_is_taken_quickly_is_so_in_the_full_dose(message: pb.SyncReport) -> None:
    """The same, many times."""
    try_both(message)


def test_the_usual_report_is_taken_quickly_and_cannot_be_written_to() -> None:
    """Else the quick way would be there for nothing."""
    found = fast_report(report_to_message(a_report(64, 64)))
    assert found is not None
    table, frequent = found.table, found.frequent
    arrays = (table.hashes, table.values, table.rows, table.held, frequent.hashes, frequent.counts, found.loads)
    assert not any(array.flags.writeable for array in arrays)
    assert table.held.base is None or not table.held.base.flags.writeable


def numbers(data: bytes, at: int, to: float) -> bytes:
    """These numbers with another one in one place."""
    words = np.frombuffer(data, np.float64 if isinstance(to, float) else np.uint64).copy()
    words[at] = to
    return words.tobytes()


def first_two(data: bytes, *, same: bool) -> bytes:
    """Their order turned round, or the same twice."""
    return (data[8:16] * 2 if same else data[8:16] + data[:8]) + data[16:]


def unlisted(message: pb.SyncReport) -> int:
    return message.frequent.total - int(np.frombuffer(message.frequent.counts, np.uint64).sum())


SPOILED: dict[str, Callable[[pb.SyncReport], object]] = {
    "a value above 2": lambda m: setattr(m.table, "values", numbers(m.table.values, -1, 2.0000001)),
    "a value below -2": lambda m: setattr(m.table, "values", numbers(m.table.values, 0, -2.0000001)),
    "a value that is no number": lambda m: setattr(m.table, "values", numbers(m.table.values, 3, float("nan"))),
    "values cut off": lambda m: setattr(m.table, "values", m.table.values[:-8]),
    "bits cut off": lambda m: setattr(m.table, "held", m.table.held[:-1]),
    "no workers": lambda m: setattr(m.table, "workers", 0),
    "other workers": lambda m: setattr(m.table, "workers", 16),
    "keys out of order": lambda m: setattr(m.table, "hashes", first_two(m.table.hashes, same=False)),
    "a key twice": lambda m: setattr(m.table, "hashes", first_two(m.table.hashes, same=True)),
    "keys cut off": lambda m: setattr(m.table, "hashes", m.table.hashes[:-1]),
    "rows below 0": lambda m: setattr(m.table, "rows", numbers(m.table.rows, 1, 2**63)),
    "loads below 0": lambda m: setattr(m, "loads", numbers(m.loads, 1, 2**64 - 1)),
    "loads of others": lambda m: setattr(m, "loads", m.loads + m.loads),
    "counters out of order": lambda m: setattr(m.frequent, "hashes", first_two(m.frequent.hashes, same=False)),
    "a counter twice": lambda m: setattr(m.frequent, "hashes", first_two(m.frequent.hashes, same=True)),
    "a counter of 0": lambda m: setattr(m.frequent, "counts", numbers(m.frequent.counts, 2, 0)),
    "counters cut off": lambda m: setattr(m.frequent, "counts", m.frequent.counts[:-8]),
    "more counters than there may be": lambda m: setattr(m.frequent, "capacity", len(m.frequent.hashes) // 8 - 1),
    "more counted than there is": lambda m: setattr(m.frequent, "counts", numbers(m.frequent.counts, 0, m.records)),
    "more error than there can be": lambda m: setattr(
        m.frequent, "error", unlisted(m) // (m.frequent.capacity + 1) + 1
    ),
    "another total": lambda m: setattr(m, "records", m.records + 1),
    "no session": lambda m: setattr(m, "session", 0),
    "no seq": lambda m: setattr(m, "seq", 0),
    "no interval": lambda m: setattr(m, "dsync_seconds", 0.0),
    "an endless interval": lambda m: setattr(m, "dsync_seconds", float("inf")),
    "no agent": lambda m: setattr(m, "agent", ""),
    "a name with a blank": lambda m: setattr(m, "agent", "a b"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_core_refuses_is_not_taken_quickly(what: str) -> None:
    """Each rule by itself, on a report that is taken without it."""
    message = report_to_message(a_report(8, 5))
    assert fast_report(message) is not None
    SPOILED[what](message)
    assert careful(message) is None
    assert fast_report(message) is None

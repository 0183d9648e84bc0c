"""Laws of the wire: what goes comes back, equal values are equal bytes, and nothing that comes in breaks anything.

The small dose runs with the suite; the full one is marked long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from tests.messages import a_report, an_answer, same_answer, same_report, with_everything
from tests.planning import defaults_of
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import UnskewError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Version
from unskew.core.planners import PLANNERS
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histograms, round_messages, streams
from unskew.wire.histograms import Assembler

HASHES = st.integers(0, 2**64 - 1)
NAMES = st.text("abcXYZ019._:/-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
SECONDS = st.floats(0, 1e9)


@st.composite
def sorted_hashes(draw: st.DrawFn, most: int = 8) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(sorted(draw(st.sets(HASHES, max_size=most))), np.uint64)


@st.composite
def counts_of(
    draw: st.DrawFn, size: int, least: int = 0, most: int = 2**40
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(draw(st.lists(st.integers(least, most), min_size=size, max_size=size)), np.int64)


@st.composite
def tables(draw: st.DrawFn, workers: int) -> QTable:
    hashes = draw(sorted_hashes())
    cells = (len(hashes), workers)
    values = draw(some.arrays(np.float64, cells, elements=st.floats(-2.0, 2.0)))
    held = draw(some.arrays(np.bool_, cells))
    return QTable(hashes, values, draw(counts_of(len(hashes))), held)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    workers = draw(st.integers(1, 20))
    rows = draw(st.lists(st.integers(0, 12), max_size=40))
    frequent = FrequentItems(draw(st.integers(1, 6))).update(np.array(rows, np.uint64))
    return Report(
        draw(NAMES),
        draw(st.integers(1, 2**64 - 1)),
        draw(st.integers(1, 2**64 - 1)),
        draw(tables(workers)),
        frequent.total,
        frequent,
        draw(counts_of(workers)),
        draw(st.floats(1e-3, 1e9)),
        draw(st.booleans()),
    )


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    workers = draw(st.integers(1, 20))
    name = st.tuples(NAMES, st.integers(1, 99), st.integers(1, 99))
    return Answer(
        draw(st.integers(0, 2**64 - 1)),
        tuple(sorted(draw(st.sets(name, max_size=3)))),
        draw(tables(workers)),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.frozensets(HASHES, max_size=5)),
        draw(counts_of(workers)),
        draw(st.floats(1e-3, 1e9)),
        draw(sorted_hashes()),
        draw(st.integers(0, 2**64 - 1)),
    )


@st.composite
def counted(draw: st.DrawFn) -> Histogram:
    hashes = draw(sorted_hashes(20))
    counts = draw(counts_of(len(hashes), least=1))
    spread = draw(st.none() | counts_of(len(hashes))) if len(hashes) else None
    tail = None
    if draw(st.booleans()):
        keys = draw(counts_of(1 << draw(st.integers(0, 5))))
        tail = Tail(keys * 2, keys)
    return Histogram(hashes, counts, tail, spread)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    of = draw(st.integers(1, 1_000_000))
    return Part(
        draw(NAMES), draw(st.integers(-1, 2**62)), draw(st.integers(0, 2**62)), draw(st.integers(0, of - 1)), of
    )


@st.composite
def specs(draw: st.DrawFn) -> StreamSpec:
    partitions = draw(st.integers(1, 40))
    policy = draw(st.sampled_from(sorted(PLANNERS)))
    defaults = defaults_of(PLANNERS[policy].algorithm)
    some_of = draw(st.sets(st.sampled_from(sorted(defaults)))) if defaults else set()
    low, middle, high = sorted(draw(st.lists(st.floats(1e-3, 1e6), min_size=3, max_size=3)))
    weight = st.floats(0.1, 10.0)
    return StreamSpec(
        partitions,
        policy,
        {name: defaults[name] for name in some_of},
        tuple(draw(st.lists(weight, min_size=partitions, max_size=partitions) | st.just([]))),
        draw(st.integers(0, 2**63 - 1)),
        tuple(draw(st.lists(st.sampled_from(["int", "string", "decimal(9,2)"]), max_size=3))),
        draw(st.integers(1, 1000)),
        draw(st.floats(0, 1)),
        middle,
        low,
        high,
    )


@st.composite
def batches(draw: st.DrawFn) -> BatchWork:
    count = st.integers(0, 2**50)
    places = sorted(draw(st.sets(st.integers(0, 8191), max_size=6)))
    work = tuple(Work(at, *(draw(x) for x in (count, count, count, SECONDS, count, SECONDS))) for at in places)
    number = st.integers(0, 2**64 - 1)
    version = draw(st.none() | st.builds(Version, number, number))
    return BatchWork(work, *(draw(SECONDS) for _ in range(4)), version)


small = settings(max_examples=60, deadline=None)
full = settings(max_examples=5000, deadline=None)


@small
@given(reports())
def test_any_report_comes_back(report: Report) -> None:
    data = round_messages.report_to_bytes(report)
    back = round_messages.report_from_bytes(data)
    assert same_report(back, report)
    assert round_messages.report_to_bytes(back) == data


@small
@given(answers())
def test_any_answer_comes_back(answer: Answer) -> None:
    data = round_messages.answer_to_bytes(answer)
    back = round_messages.answer_from_bytes(data, answer.merged)
    assert same_answer(back, answer)
    assert round_messages.answer_to_bytes(back) == data


@small
@given(counted(), parts(), NAMES, st.integers(1, 30), st.randoms())
def test_any_histogram_comes_back_from_any_chunks_in_any_order(
    histogram: Histogram, part: Part, stream: str, keys: int, random: object
) -> None:
    """But for the first, which has the header."""
    data = histograms.histogram_to_bytes(histogram)
    assert histograms.histogram_from_bytes(data) == histogram
    assembler = Assembler()
    first, *rest = histograms.chunks(histogram, stream, part, keys)
    random.shuffle(rest)  # type: ignore[attr-defined]
    for chunk in (first, *rest):
        assembler.add(chunk)
    assert assembler.finish() == (stream, part, histogram)


@small
@given(specs())
def test_any_spec_comes_back(spec: StreamSpec) -> None:
    data = streams.spec_to_bytes(spec)
    back = streams.spec_from_bytes(data)
    assert back == spec
    assert streams.spec_to_bytes(back) == data


@small
@given(parts(), batches())
def test_any_part_and_batch_come_back(part: Part, batch: BatchWork) -> None:
    assert streams.part_from_message(streams.part_to_message(part)) == part
    data = streams.work_to_bytes(batch)
    back = streams.work_from_bytes(data)
    assert back == batch
    assert streams.work_to_bytes(back) == data


# -- what comes in ------------------------------------------------------------------------------------------


def assembled(data: bytes) -> None:
    try:
        chunk = pb.ReportHistogramRequest.FromString(data)
    except Exception:  # noqa: BLE001  # gRPC refuses these before they reach us
        return
    assembler = Assembler(max_keys=1000, max_bytes=1 << 20)
    assembler.add(chunk)
    assembler.finish()


READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "report": (round_messages.report_from_bytes, round_messages.report_to_bytes(a_report())),
    "answer": (round_messages.answer_from_bytes, round_messages.answer_to_bytes(an_answer())),
    "histogram": (histograms.histogram_from_bytes, histograms.histogram_to_bytes(with_everything(20))),
    "chunk": (assembled, next(histograms.chunks(with_everything(20), "s", Part("a", 1))).SerializeToString()),
    "spec": (
        streams.spec_from_bytes,
        streams.spec_to_bytes(StreamSpec(3, "kip", {"slack": 0.5, "gate": False}, (1.0, 2.0, 3.0), 3, ("int",))),
    ),
    "batch": (
        streams.work_from_bytes,
        streams.work_to_bytes(BatchWork((Work(1, 5, 3, 2, 0.5, 1, 9.0), Work(2, 7)), 10.0, 4.0, 1.0, 2.0)),
    ),
}


def taken_or_refused(name: str, data: bytes) -> None:
    """Anything but an ``UnskewError`` fails the test, and so does an error of more than a page."""
    try:
        READERS[name][0](data)
    except UnskewError as error:
        assert len(str(error)) < 2000  # noqa: PT017


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The message with bytes flipped, cut out, put in or repeated: most of it is still one."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(out) - 1, 0)))
        change = draw(st.integers(0, 3))
        if change == 0 and out:
            out[at] = draw(st.integers(0, 255))
        elif change == 1:
            del out[at : at + draw(st.integers(1, 9))]
        elif change == 2:
            out[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            out += out[at:]
    return bytes(out)


NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 8, 2**31 - 1, 2**32 - 1]) | st.integers(0, 2**32 - 1)
WIDE = NUMBERS | st.sampled_from([2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
ARRAYS = (
    st.lists(WIDE, max_size=4).map(lambda values: np.array(values, np.uint64).tobytes())
    | st.lists(st.floats(), max_size=6).map(lambda values: np.array(values, np.float64).tobytes())
    | st.binary(max_size=20)
)
ANY: dict[str, st.SearchStrategy[object]] = {
    "bytes": ARRAYS,
    "string": st.sampled_from(["", "auto", "kip", "dalton", "int"]) | st.text(max_size=300),
    "bool": st.booleans(),
    "double": st.floats(),
    "uint32": NUMBERS,
    "uint64": WIDE,
    "int64": st.integers(-(2**63), 2**63 - 1),
}
TYPES = {1: "double", 3: "int64", 4: "uint64", 6: "uint64", 8: "bool", 9: "string", 12: "bytes", 13: "uint32"}


@st.composite
def filled(draw: st.DrawFn, message: type[Message]) -> Message:
    """A message with some of its fields set to anything that their types can hold."""
    out = message()
    for field in message.DESCRIPTOR.fields:
        if not draw(st.integers(0, 4)):
            continue
        if field.message_type is not None and field.message_type.full_name == "google.protobuf.Struct":
            getattr(out, field.name).update(draw(structs()))
        elif field.message_type is not None:
            inner = filled(field.message_type._concrete_class)
            if field.is_repeated:
                getattr(out, field.name).extend(draw(st.lists(inner, max_size=3)))
            else:
                getattr(out, field.name).CopyFrom(draw(inner))
        else:
            one = ANY[TYPES[field.type]]
            if field.is_repeated:
                getattr(out, field.name).extend(draw(st.lists(one, max_size=3)))
            else:
                setattr(out, field.name, draw(one))
    return out


def structs() -> st.SearchStrategy[dict[str, object]]:
    """With names that planners know, so that their values are judged too."""
    known = sorted({name for entry in PLANNERS.values() for name in defaults_of(entry.algorithm)})
    names = st.sampled_from([*known, "name", "seed", "partitions", "weights"]) | st.text(max_size=5)
    plain = st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(-(2**53), 2**53)
    return st.dictionaries(names, plain | st.lists(plain, max_size=2), max_size=3)


MESSAGES: dict[str, type[Message]] = {
    "report": pb.SyncReport,
    "answer": pb.SyncAnswer,
    "histogram": pb.Histogram,
    "chunk": pb.ReportHistogramRequest,
    "spec": pb.StreamSpec,
    "batch": pb.ReportBatchRequest,
}


def anything(name: str) -> st.SearchStrategy[bytes]:
    whole = filled(MESSAGES[name]).map(partial(MESSAGES[name].SerializeToString, deterministic=True))
    return st.binary(max_size=60) | mutated(READERS[name][1]) | whole


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_comes_in_is_taken_or_refused(name: str, data: st.DataObject) -> None:
    """Noise, damaged messages, and whole ones with any values at all."""
    taken_or_refused(name, data.draw(anything(name)))


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
@full
@given(data=st.data())
def test_whatever_comes_in_is_taken_or_refused_at_length(name: str, data: st.DataObject) -> None:
    taken_or_refused(name, data.draw(anything(name)))


TRIPS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., bytes], Callable[[bytes], Any], Callable[..., bool]]] = {
    "report": (reports(), round_messages.report_to_bytes, round_messages.report_from_bytes, same_report),
    "histogram": (counted(), histograms.histogram_to_bytes, histograms.histogram_from_bytes, Histogram.__eq__),
    "spec": (specs(), streams.spec_to_bytes, streams.spec_from_bytes, StreamSpec.__eq__),
    "batch": (batches(), streams.work_to_bytes, streams.work_from_bytes, BatchWork.__eq__),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TRIPS)
@full
@given(data=st.data())
def test_any_value_comes_back_at_length(name: str, data: st.DataObject) -> None:
    strategy, out, back, same = TRIPS[name]
    value = data.draw(strategy)
    assert same(back(out(value)), value)

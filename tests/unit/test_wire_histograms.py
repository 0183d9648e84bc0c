"""Histograms on the wire, whole and in chunks: the same whatever the cut, and within bounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.messages import with_everything
from unskew.core.errors import WireError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire.histograms import (
    MAX_HOSTS,
    Assembler,
    chunks,
    histogram_from_bytes,
    histogram_from_message,
    histogram_to_bytes,
    histogram_to_message,
)

PART = Part("app/query-1", batch=3, run=2, part=1, parts=4)


def numbers(*values: int) -> bytes:
    return np.array(values, np.uint64).tobytes()


def assembled(sent: Iterator[pb.ReportHistogramRequest] | list[pb.ReportHistogramRequest]) -> Histogram:
    assembler = Assembler()
    for chunk in sent:
        assembler.add(chunk)
    stream, part, histogram = assembler.finish()
    assert (stream, part) == ("clicks", PART)
    return histogram


def test_a_histogram_comes_back_as_it_was() -> None:
    whole = with_everything()
    assert histogram_from_bytes(histogram_to_bytes(whole)) == whole
    assert histogram_from_message(histogram_to_message(Histogram.empty())) == Histogram.empty()


def test_keys_may_come_in_any_order() -> None:
    """Other languages' senders need not sort."""
    whole = with_everything()
    message = histogram_to_message(whole)
    order = np.random.default_rng(1).permutation(len(whole.hashes))
    assert whole.spread is not None
    message.hashes, message.counts = whole.hashes[order].tobytes(), whole.counts[order].tobytes()
    message.spread = whole.spread[order].tobytes()
    assert histogram_from_message(message) == whole


@pytest.mark.parametrize("keys", [1, 7, 999, 1000, 1001])
def test_any_cut_into_chunks_gives_the_same(keys: int) -> None:
    whole = with_everything()
    sent = list(chunks(whole, "clicks", PART, keys))
    assert len(sent) == -(-len(whole.hashes) // keys)
    assert assembled(sent) == whole
    assert all(not chunk.stream and not chunk.HasField("part") for chunk in sent[1:])


def test_an_empty_histogram_is_one_chunk() -> None:
    """A part without a row is reported too: else its batch would never be complete."""
    sent = list(chunks(Histogram.empty(), "clicks", PART))
    assert len(sent) == 1
    assert assembled(sent) == Histogram.empty()


def test_later_chunks_may_repeat_the_header() -> None:
    whole = with_everything()
    sent = list(chunks(whole, "clicks", PART, 300))
    for chunk in sent:
        chunk.stream = "clicks"
        chunk.part.CopyFrom(sent[0].part)
    assert assembled(sent) == whole


def test_a_tail_too_fine_for_a_chunk_is_folded() -> None:
    """4 MB is the bound of a chunk; nothing is lost but the fineness."""
    tail = Tail(np.full(4 * MAX_HOSTS, 3), np.ones(4 * MAX_HOSTS, np.int64))
    whole = Histogram(np.array([5], np.uint64), np.array([9]), tail)
    sent = list(chunks(whole, "clicks", PART))
    assert sent[0].ByteSize() < 4_000_000
    got = assembled(sent)
    assert got.tail is not None
    assert (got.total, len(got.tail.rows)) == (whole.total, MAX_HOSTS)


def test_default_chunks_are_within_the_bound() -> None:
    keys = 200_000
    whole = Histogram(np.arange(keys, dtype=np.uint64), np.ones(keys, np.int64), None, np.ones(keys, np.int64))
    assert max(chunk.ByteSize() for chunk in chunks(whole, "clicks", PART)) < 2_000_000


def refused(chunk: pb.ReportHistogramRequest, *before: pb.ReportHistogramRequest, **bounds: int) -> WireError:
    assembler = Assembler(**bounds)
    for one in before:
        assembler.add(one)
    try:
        assembler.add(chunk)
        assembler.finish()
    except WireError as error:
        return error
    pytest.fail("taken")


def first(**fields: bytes) -> pb.ReportHistogramRequest:
    sent = next(chunks(Histogram.empty(), "clicks", PART))
    return pb.ReportHistogramRequest(stream=sent.stream, part=sent.part, **fields)


WRONG = [
    ("hashes", {"hashes": b"1234567", "counts": numbers(1)}),
    ("hashes", {"hashes": numbers(5, 5), "counts": numbers(1, 1)}),
    ("counts", {"hashes": numbers(5), "counts": b""}),
    ("counts", {"hashes": numbers(5), "counts": numbers(0)}),
    ("counts", {"hashes": numbers(5), "counts": numbers(2**63)}),
    ("counts", {"hashes": numbers(5, 6), "counts": numbers(2**62, 2**62)}),
    ("spread", {"hashes": numbers(5), "counts": numbers(1), "spread": numbers(1, 2)}),
    ("spread", {"hashes": numbers(5), "counts": numbers(1), "spread": numbers(2**63)}),
    ("tail_rows", {"tail_rows": numbers(1, 1, 1), "tail_keys": numbers(1, 1, 1)}),
    ("tail_rows", {"tail_rows": b"123", "tail_keys": b""}),
    ("tail_rows", {"tail_rows": numbers(1, 1), "tail_keys": numbers(1, 2)}),
    ("tail_rows", {"tail_rows": numbers(2**62, 2**62), "tail_keys": numbers(1, 1)}),
    ("tail_keys", {"tail_rows": numbers(1, 1), "tail_keys": numbers(1)}),
    ("tail_keys", {"tail_rows": b"", "tail_keys": numbers(1)}),
    ("tail_rows", {"tail_rows": bytes(16 * MAX_HOSTS), "tail_keys": bytes(16 * MAX_HOSTS)}),
]


@pytest.mark.parametrize(("field", "fields"), WRONG)
def test_a_wrong_field_is_named(field: str, fields: dict[str, bytes]) -> None:
    """In a chunk by its name, in a message by its path."""
    assert refused(first(**fields)).field == field
    with pytest.raises(WireError) as caught:
        histogram_from_message(pb.Histogram(**fields))
    assert caught.value.field == f"histogram.{field}"


def test_a_key_in_two_chunks_is_refused() -> None:
    one = first(hashes=numbers(5, 9), counts=numbers(1, 1))
    error = refused(pb.ReportHistogramRequest(hashes=numbers(9), counts=numbers(4)), one)
    assert error.field == "hashes"
    assert "key 9 is there twice" in error.why


@pytest.mark.parametrize(
    ("field", "header"),
    [
        ("stream", {"stream": "", "part": pb.Part(source="a", parts=1)}),
        ("stream", {"stream": "no stream", "part": pb.Part(source="a", parts=1)}),
        ("part.source", {"stream": "s"}),
        ("part.source", {"stream": "s", "part": pb.Part(source="x" * 300, parts=1)}),
        ("part.parts", {"stream": "s", "part": pb.Part(source="a")}),
        ("part.part", {"stream": "s", "part": pb.Part(source="a", part=3, parts=3)}),
        ("part.batch", {"stream": "s", "part": pb.Part(source="a", batch=-2, parts=3)}),
        ("part.run", {"stream": "s", "part": pb.Part(source="a", run=2**63, parts=3)}),
    ],
)
def test_the_first_chunk_says_whose_it_is(field: str, header: dict[str, object]) -> None:
    assert refused(pb.ReportHistogramRequest(**header)).field == field  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["stream", "part"])
def test_a_later_chunk_of_somebody_else_is_refused(field: str) -> None:
    other = first()
    if field == "stream":
        other.stream = "orders"
    else:
        other.part.part = 2
    assert refused(other, first()).field == field


def test_a_second_tail_is_refused() -> None:
    tail = {"tail_rows": numbers(1), "tail_keys": numbers(1)}
    assert refused(pb.ReportHistogramRequest(**tail), first(**tail)).field == "tail_rows"


def test_spread_in_some_chunks_only_is_refused() -> None:
    one = first(hashes=numbers(5), counts=numbers(1), spread=numbers(1))
    assert refused(pb.ReportHistogramRequest(hashes=numbers(6), counts=numbers(1)), one).field == "spread"


def test_rows_that_overflow_over_chunks_are_refused() -> None:
    one = first(hashes=numbers(5), counts=numbers(2**63 - 1))
    assert refused(pb.ReportHistogramRequest(hashes=numbers(6), counts=numbers(1)), one).field == "counts"


def test_keys_and_bytes_are_bounded() -> None:
    """Over all chunks; many small ones count as the memory that they take."""
    one = first(hashes=numbers(1, 2, 3), counts=numbers(1, 1, 1))
    more = pb.ReportHistogramRequest(hashes=numbers(4, 5), counts=numbers(1, 1))
    for bounds in ({"max_keys": 4}, {"max_bytes": 2000}):
        error = refused(more, one, **bounds)
        assert (error.field, error.too_much) == ("hashes", True)
    with pytest.raises(WireError, match="where 1 are left"):
        histogram_from_message(pb.Histogram(hashes=more.hashes, counts=more.counts), max_keys=1)


def test_empty_chunks_without_end_are_bounded() -> None:
    assembler = Assembler(max_bytes=10_000)
    assembler.add(first())
    for _ in range(8):
        assembler.add(pb.ReportHistogramRequest())
    with pytest.raises(WireError, match="more than 10,000 bytes"):
        assembler.add(pb.ReportHistogramRequest())


def test_a_refused_chunk_changes_nothing() -> None:
    whole = with_everything()
    sent = list(chunks(whole, "clicks", PART, 400))
    assembler = Assembler()
    bad = pb.ReportHistogramRequest(hashes=numbers(1), counts=numbers(0), tail_rows=numbers(1), tail_keys=numbers(1))
    for chunk in sent:
        with pytest.raises(WireError):
            assembler.add(bad)
        assembler.add(chunk)
    assert assembler.finish() == ("clicks", PART, whole)


def test_no_chunk_at_all_is_refused() -> None:
    with pytest.raises(WireError, match="stream: no chunk came"):
        Assembler().finish()

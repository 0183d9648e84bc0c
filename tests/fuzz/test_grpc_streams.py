"""gRPC beyond single messages: chunks that come in any order, end early or never come; methods that are not there;
metadata of any kind; many callers at once who put, use and delete the same streams.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random

import grpc
import pytest
from hypothesis import strategies as st

from tests.fuzz.doses import DOSES
from tests.fuzz.judge import Judge, fault_of
from tests.fuzz.messages import REQUESTS, STREAMS
from tests.fuzz.runs import each, halves
from tests.fuzz.target import DEADLINE, SERVICE, Target
from tests.fuzz.test_sequences import over_grpc
from tests.fuzz.valid import a_request, a_spec, broken_bytes, broken_message, requests_of
from unskew.v1 import partitioner_pb2 as pb

pytestmark = pytest.mark.xdist_group("fuzz-grpc")

_CALLERS = 8
Code = grpc.StatusCode
_LEFT = frozenset({Code.CANCELLED})
_LIBRARY = frozenset({Code.RESOURCE_EXHAUSTED})  # said by gRPC itself, without details
_RACES = ("began anew meanwhile", "other plans came between", "its answer is gone")


# -- chunks ---------------------------------------------------------------------------------------------------


def _chunks(random: Random) -> list[bytes]:
    """A report in pieces, with something wrong with them, or not."""
    _, whole = a_request(random, "ReportHistogram")
    pieces = [whole]
    for _ in range(random.randrange(5)):
        _, more = a_request(random, "ReportHistogram", whole.stream)
        more.part.CopyFrom(whole.part)
        if random.random() < 0.6:
            more.ClearField("stream")
            more.ClearField("part")
        if random.random() < 0.7:
            more.ClearField("tail_rows")
            more.ClearField("tail_keys")
        pieces.append(more)
    if random.random() < 0.3:
        broken_message(random, random.choice(pieces))
    if random.random() < 0.3:
        random.shuffle(pieces)
    found = [piece.SerializeToString() for piece in pieces]
    if random.random() < 0.2:
        at = random.randrange(len(found))
        found[at] = broken_bytes(random, found[at])
    return [] if random.random() < 0.05 else found * random.choice((1, 1, 1, 2, 40))


def _sent(chunks: list[bytes], end: threading.Event | None) -> Iterator[bytes]:
    """The chunks; then, with ``end``, silence until that."""
    yield from chunks
    if end is not None:
        end.wait(DEADLINE)


def _report(target: Target, judge: Judge, drawn: int) -> None:
    """Three quarters come to their end; the others are broken off by the caller."""
    random = Random(drawn)
    method = target.channel.stream_unary(f"/{SERVICE}/ReportHistogram", None, None)
    calls = []
    for number in range(12):
        chunks, end = _chunks(random), threading.Event() if number % 4 == 0 else None
        calls.append((chunks, end, method.future(_sent(chunks, end), timeout=DEADLINE)))
    for chunks, end, call in calls:
        if end is not None:
            call.cancel()
            end.set()
        judge.ended("ReportHistogram", call, chunks, _LEFT if end is not None else frozenset())


def test_chunks_in_any_order_and_streams_that_break_off_are_answered_or_refused(target: Target) -> None:
    """Chunks shuffled, repeated, damaged, of another stream, none at all; callers that leave in the middle."""
    judge = Judge()
    for number in halves(target, judge):
        each(st.integers(0, 2**64), DOSES["chunked"] // 24, number, lambda drawn: _report(target, judge, drawn))
    assert judge.answered >= DOSES["chunked"]
    assert judge.codes["ReportHistogram OK"] > 20
    assert judge.codes["ReportHistogram CANCELLED"] > 20


# -- methods and metadata -------------------------------------------------------------------------------------


def test_methods_that_are_not_there_are_unimplemented(target: Target) -> None:
    """Whatever is in the path, and whatever is sent."""
    judge = Judge()
    name = st.one_of(
        st.sampled_from(("/", "//", "/x", f"/{SERVICE}", f"/{SERVICE}/", f"/{SERVICE}/putStream", f"/{SERVICE}/*")),
        st.text(st.characters(codec="ascii", categories=("L", "N", "P")), max_size=30).map("/{}".format),
        st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1).map(f"/{SERVICE}/x{{}}".format),
    )

    def call(case: tuple[str, bytes]) -> None:
        method, data = case
        made = target.channel.unary_unary(method, None, None).future(data, timeout=DEADLINE)
        made.exception(DEADLINE)
        fault = "" if made.code() is Code.UNIMPLEMENTED else f"{made.code().name}: {made.details()}"
        judge.took(method, made.code().name, fault, data)

    for number in halves(target, judge):
        each(st.tuples(name, st.binary(max_size=50)), 120, number, call)
    assert judge.answered >= DOSES["unknown"]


def _metadata() -> st.SearchStrategy[list[tuple[str, str | bytes]]]:
    """What the caller's gRPC lets through."""
    key = st.sampled_from(("authorization", "x-a", "traceparent", "tracestate", "baggage", "user", "accept"))
    text = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)
    value = st.one_of(text, st.sampled_from(("Bearer ", "Bearer x y", "00-0-0-0", "v" * 1000)))
    binary = st.tuples(st.sampled_from(("x-bin", "grpc-trace-bin", "grpc-tags-bin")), st.binary(max_size=100))
    return st.lists(st.one_of(st.tuples(key, value), binary), max_size=6)


def test_metadata_of_any_kind_changes_nothing(target: Target) -> None:
    """A call is answered as without it; or refused by gRPC itself, if it is far too much."""
    judge = Judge()

    def call(case: tuple[list[tuple[str, str | bytes]], str]) -> None:
        metadata, verb = case
        _, message = a_request(Random(verb), verb)
        data = message.SerializeToString()
        made = target.unary(verb, data, metadata=metadata)
        size = sum(len(key) + len(value) for key, value in metadata)
        judge.ended(verb, made, metadata, _LIBRARY if size > 6000 else frozenset())

    verbs = sorted(set(REQUESTS) - {"ReportHistogram", "WatchPlans", "DeleteStream"})
    for number in halves(target, judge):
        each(st.tuples(_metadata(), st.sampled_from(verbs)), DOSES["metadata"] // 2, number, call)
        call(([("x-a", "w" * 20_000)], "GetStream"))  # gRPC takes its time to say so: once is enough
    assert judge.answered >= DOSES["metadata"]


# -- a crowd --------------------------------------------------------------------------------------------------


class _Lenient(Judge):
    """Of streams that are deleted and put anew all the time it may be said that they are: UNAVAILABLE, and so why."""

    def ended(self, verb: str, call: grpc.Future, sent: object, also: frozenset[Code] = frozenset()) -> None:
        call.exception(DEADLINE + 5.0)
        raced = call.code() is Code.UNAVAILABLE and any(text in (call.details() or "") for text in _RACES)
        self.took(verb, call.code().name, "" if raced else fault_of(verb, call, also), sent)


def _caller(target: Target, steps: int, drawn: int) -> Judge:
    """One of many, on a channel of its own."""
    judge, random = _Lenient(), Random(drawn)
    own = Target(target.process, target.http, target.grpc)
    try:
        send = over_grpc(own, judge)
        for _ in range(steps):
            stream = random.choice(STREAMS[:2])
            kind = random.random()
            if kind < 0.08:
                send("DeleteStream", pb.DeleteStreamRequest(stream=stream))
            elif kind < 0.25:
                send("PutStream", pb.PutStreamRequest(stream=stream, spec=a_spec(random, random.choice((2, 3)))))
            else:
                send(*next(requests_of(random, stream, random.choice((2, 3)))))
    finally:
        own.channel.close()
    return judge


def test_many_at_once_on_the_same_streams_are_answered(target: Target) -> None:
    """Each puts, reports to, plans for, learns on and deletes what the others are using."""
    judge = Judge()
    for number in halves(target, judge):
        seeds = [number * 100 + at for at in range(_CALLERS)]
        steps = DOSES["crowd"] // 2 // _CALLERS
        with ThreadPoolExecutor(_CALLERS) as pool:
            for one in pool.map(partial(_caller, target, steps), seeds):
                judge.answered += one.answered
                judge.codes += one.codes
                judge.faults += one.faults
    assert judge.answered >= DOSES["crowd"]

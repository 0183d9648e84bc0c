"""gRPC takes anything: every request type filled with anything, valid requests broken on the way, and mere bytes.

No answer is INTERNAL or UNKNOWN, none takes longer than the deadline, each refusal has details that name a field of the
request where one is to blame, nothing stays behind, and the service serves on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import strategies as st

from tests.fuzz.doses import DOSES, LONG_DOSES
from tests.fuzz.judge import Judge, fault_of
from tests.fuzz.messages import REQUESTS, messages
from tests.fuzz.runs import each, halves, of_long
from tests.fuzz.target import DEADLINE, SERVICE, Target
from tests.fuzz.valid import WAIT, a_request, broken_bytes, broken_message

pytestmark = pytest.mark.xdist_group("fuzz-grpc")

AT_ONCE = 12
_GONE = frozenset({grpc.StatusCode.CANCELLED})


def fire(target: Target, judge: Judge, cases: Sequence[tuple[str, bytes]]) -> None:
    """All of them at once; every one is answered and judged."""
    calls = []
    for verb, data in cases:
        if verb == "ReportHistogram":
            method = target.channel.stream_unary(f"/{SERVICE}/{verb}", None, None)
            calls.append(method.future(iter([data]), timeout=DEADLINE))
        elif verb == "WatchPlans":
            watch = target.channel.unary_stream(f"/{SERVICE}/{verb}", None, None)(data, timeout=DEADLINE)
            calls.append(watch)
        else:
            calls.append(target.unary(verb, data))
    for (verb, data), call in zip(cases, calls, strict=True):
        if verb == "WatchPlans":
            _end_watch(judge, verb, call, data)
        else:
            judge.ended(verb, call, data)


def _end_watch(judge: Judge, verb: str, call: grpc.Call, data: bytes) -> None:
    """A watch of a stream without a plan waits: it is left after a moment."""
    try:
        call.result(WAIT)
    except grpc.FutureTimeoutError:
        call.cancel()
    except grpc.RpcError:
        pass  # how it ended is judged below
    code = call.code()
    judge.took(verb, code.name, fault_of(verb, call, _GONE), data)


def _data(message: Message) -> bytes:
    """Waits are cut to what a run can afford."""
    if message.DESCRIPTOR.name == "SyncRequest" and WAIT < message.wait_seconds <= 60.0:
        message.wait_seconds = WAIT
    return message.SerializeToString()


def test_any_message_is_answered_or_refused_with_reason(target: Target) -> None:
    """Every request type, its fields filled with anything that they can hold."""
    judge = Judge()
    for number in halves(target, judge):
        run_built(target, judge, DOSES["built"] // 2, number)
    assert judge.answered >= DOSES["built"]
    assert judge.served >= DOSES["built"]


def run_built(target: Target, judge: Judge, cases: int, number: int) -> None:
    for verb, kind in REQUESTS.items():
        some = st.lists(messages(kind), min_size=AT_ONCE, max_size=AT_ONCE)
        each(some, cases // len(REQUESTS) // AT_ONCE, number, lambda sent, verb=verb: fire(
            target, judge, [(verb, _data(message)) for message in sent]
        ))  # fmt: skip


def test_a_valid_message_with_one_thing_wrong_is_answered_or_refused_with_reason(target: Target) -> None:
    """Requests as jobs send them, each with up to two fields or a few bytes changed; all kinds mixed, many at once."""
    judge = Judge()
    for number in halves(target, judge):
        run_broken(target, judge, DOSES["broken"] // 2, number)
    assert judge.answered >= DOSES["broken"]
    assert judge.served >= DOSES["broken"]
    reached(judge)


def run_broken(target: Target, judge: Judge, cases: int, number: int) -> None:
    each(st.integers(0, 2**64), cases // AT_ONCE, number, lambda drawn: fire(
        target, judge, [_broken(Random(drawn + at)) for at in range(AT_ONCE)]
    ))  # fmt: skip


def _broken(random: Random) -> tuple[str, bytes]:
    verb = random.choice((*REQUESTS, "PutStream", "BuildPlan", "Sync", "Sync", "ReportBatch", "ReportHistogram"))
    _, message = a_request(random, verb)
    for _ in range(random.choice((0, 1, 1, 2))):
        broken_message(random, message)
    data = _data(message)
    return verb, broken_bytes(random, data) if random.random() < 0.2 else data


def test_bytes_that_are_no_message_are_refused(target: Target) -> None:
    """Mere bytes, and tags of protobuf with anything after them."""
    judge = Judge()
    for number in halves(target, judge):
        run_bytes(target, judge, DOSES["bytes"] // 2, number)
    assert judge.answered >= DOSES["bytes"]
    assert judge.served >= DOSES["bytes"]
    assert sum(count for code, count in judge.codes.items() if code.endswith("INVALID_ARGUMENT")) > DOSES["bytes"] // 3


def run_bytes(target: Target, judge: Judge, cases: int, number: int) -> None:
    tagged = st.builds(
        lambda field, kind, rest: bytes([field << 3 | kind]) + rest, st.integers(1, 15), st.integers(0, 7), st.binary()
    )
    case = st.tuples(st.sampled_from(sorted(REQUESTS)), st.one_of(st.binary(max_size=200), tagged))
    some = st.lists(case, min_size=AT_ONCE, max_size=AT_ONCE)
    each(some, cases // AT_ONCE, number, lambda cases: fire(target, judge, cases))


def reached(judge: Judge) -> None:
    """A fuzz that is turned away at the door shows nothing: every verb was also answered well, some times."""
    for verb in REQUESTS:
        good = judge.codes[f"{verb} OK"] + judge.codes[f"{verb} CANCELLED"]
        assert good > 3, f"{verb}: {[(code, count) for code, count in judge.codes.items() if code.startswith(verb)]}"


@pytest.mark.long
def test_five_times_as_many_fresh_cases(target: Target) -> None:
    """Other cases in each run; ``UNSKEW_FUZZ_SEED=<the seed that is shown>`` repeats one."""
    judge, start = Judge(), of_long()
    print(f"UNSKEW_FUZZ_SEED={start}")  # noqa: T201 - pytest shows it where the test fails
    for number in halves(target, judge, start):
        run_built(target, judge, LONG_DOSES["built"] // 2, number)
        run_broken(target, judge, LONG_DOSES["broken"] // 2, number)
        run_bytes(target, judge, LONG_DOSES["bytes"] // 2, number)
    assert judge.answered > 0.99 * (LONG_DOSES["built"] + LONG_DOSES["broken"] + LONG_DOSES["bytes"])

"""What jobs do one after the other, with fuzz in it: a stream is put, reported to, planned for, learned on, explained.

Each sequence has a stream of its own, so that reports meet reports, plans plans and rounds rounds: what one request
leaves is what the next is answered from. Over gRPC, over REST with the same messages as bodies, and on a Redis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from google.protobuf.message import Message
from hypothesis import strategies as st

from tests.fuzz.doses import DOSES, LONG_DOSES
from tests.fuzz.judge import Judge
from tests.fuzz.messages import REQUESTS
from tests.fuzz.rest import Rest
from tests.fuzz.runs import each, halves, of_long
from tests.fuzz.target import DEADLINE, SERVICE, Target
from tests.fuzz.valid import WAIT, a_spec, broken_message, requests_of
from unskew.v1 import partitioner_pb2 as pb

STEPS = 28
_SPARE = 1.1  # a step that would be another stream's is left out
Send = Callable[[str, Message], None]


def over_grpc(target: Target, judge: Judge) -> Send:
    def send(verb: str, message: Message) -> None:
        data = message.SerializeToString()
        if verb == "ReportHistogram":
            method = target.channel.stream_unary(f"/{SERVICE}/{verb}", None, None)
            judge.ended(verb, method.future(iter([data]), timeout=DEADLINE), data)
        else:
            judge.ended(verb, target.unary(verb, data), data)

    return send


def sequence(random: Random, send: Send) -> None:
    """On a stream of its own, that is changed now and then, and deleted at the end."""
    stream, workers = f"sequence-{random.randrange(1000)}", random.choice((1, 2, 3, 4, 9, 300))
    send("PutStream", pb.PutStreamRequest(stream=stream, spec=a_spec(random, workers)))
    doing = requests_of(random, stream, workers)
    for _ in range(STEPS - 2):
        verb, message = next(doing)
        if random.random() < 0.25:
            broken_message(random, message)
            if verb == "Sync" and not 0.0 <= message.wait_seconds <= WAIT:
                message.wait_seconds = WAIT
            if verb == "PutStream" and message.stream != stream:
                continue  # it would be another's
        send(verb, message)
    send("DeleteStream", pb.DeleteStreamRequest(stream=stream))


def sequences(dose: int) -> int:
    """As many as half of that dose takes."""
    return math.ceil(_SPARE * dose / STEPS / 2)


def run(send: Send, count: int, number: int) -> None:
    each(st.integers(0, 2**64), count, number, lambda drawn: sequence(Random(drawn), send))


def deep(judge: Judge) -> None:
    """What is behind the checks was reached: most requests were taken, and every verb was."""
    good = sum(count for code, count in judge.codes.items() if code.endswith((" OK", " 200", " 201", " 204")))
    assert good > judge.answered // 3, judge.codes
    for verb in REQUESTS:
        some = sum(count for code, count in judge.codes.items() if code in (f"{verb} OK", f"{verb} 200", f"{verb} 204"))
        assert some or verb == "WatchPlans", f"{verb} never went well: {judge.codes}"


@pytest.mark.xdist_group("fuzz-grpc")
def test_sequences_over_grpc_are_answered(target: Target) -> None:
    """Jobs' sequences, a quarter of the requests with a fault in them."""
    judge = Judge()
    for number in halves(target, judge):
        run(over_grpc(target, judge), sequences(DOSES["grpc sequences"]), number)
    assert judge.answered >= DOSES["grpc sequences"]
    assert judge.served >= DOSES["grpc sequences"]
    deep(judge)


@pytest.mark.xdist_group("fuzz-rest")
def test_sequences_over_rest_are_answered(target: Target) -> None:
    """The same messages as bodies, or as paths and queries where REST has no body."""
    judge = Judge()
    rest = Rest(target, judge)
    for number in halves(target, judge):
        run(rest.send, sequences(DOSES["rest sequences"]), number)
    assert judge.answered >= DOSES["rest sequences"]
    assert judge.served >= DOSES["rest sequences"]
    deep(judge)


@pytest.mark.xdist_group("fuzz-grpc")
def test_sequences_on_a_redis_are_answered(redis_target: Target) -> None:
    """Numbers pass through the store's scripts there: what memory takes, Redis takes."""
    judge = Judge()
    for number in halves(redis_target, judge):
        run(over_grpc(redis_target, judge), sequences(DOSES["redis sequences"]), number)
    assert judge.answered >= DOSES["redis sequences"]
    assert judge.served >= DOSES["redis sequences"]
    deep(judge)


@pytest.mark.long
@pytest.mark.xdist_group("fuzz-grpc")
@pytest.mark.parametrize("store", ["target", "redis_target"])
def test_many_fresh_sequences(store: str, request: pytest.FixtureRequest) -> None:
    """Other sequences in each run; ``UNSKEW_FUZZ_SEED=<the seed that is shown>`` repeats one."""
    target: Target = request.getfixturevalue(store)
    judge, start = Judge(), of_long()
    print(f"UNSKEW_FUZZ_SEED={start}")  # noqa: T201 - pytest shows it where the test fails
    for number in halves(target, judge, start):
        run(over_grpc(target, judge), sequences(LONG_DOSES["grpc sequences"]), number)
        run(Rest(target, judge).send, sequences(LONG_DOSES["rest sequences"]), number)
    deep(judge)

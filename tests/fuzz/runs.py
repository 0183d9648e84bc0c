"""How a fuzz run goes: the same cases each time in the small dose, fresh ones in the long one, in two halves.

A wrong answer does not stop a run: all are told at its end, with what was sent. So one example is never tried twice,
and what depends on what came before is no "flaky" test. The halves are alike, so what the service holds after the
second must not be more than after the first.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.judge import Judge
from tests.fuzz.messages import STREAMS
from tests.fuzz.target import DEADLINE, Look, Target
from tests.fuzz.valid import a_request, a_spec
from unskew.core.planners import PLANNERS
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["clean", "each", "grown", "halves", "of_long", "warm"]

T = TypeVar("T")
_SEED = 20_000
_ENOUGH = 5  # looks that say the same, one after the other, are no chance
_FEW = 3
_MOST = {"memory": 8 << 20, "objects": 120, "tasks": _FEW, "threads": _FEW, "files": _FEW, "series": _FEW}
_BOUNDED = ("._read",)  # by a number, in the code


def of_long() -> int:
    """A seed of its own for every long run; ``UNSKEW_FUZZ_SEED`` repeats one."""
    return int(os.environ.get("UNSKEW_FUZZ_SEED", "0")) or secrets.randbits(32)


def each(strategy: st.SearchStrategy[T], examples: int, number: int, do: Callable[[T], None]) -> None:
    """Do it with so many examples; ``number`` says with which."""

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: T) -> None:
        do(example)

    run()


def halves(target: Target, judge: Judge, number: int = _SEED) -> Iterator[int]:
    """The seeds of the halves; after them, what the service holds is judged, and whether it still serves. Where it
    holds more after the second there is another, and another: what leaks grows every time, a cache that fills does not.
    """
    began = target.look()  # what it said before is not of this run
    looks: list[Look] = []
    while len(looks) < 2 or (len(looks) < _ENOUGH and grown(looks)):
        for stream in STREAMS:
            put = a_request(Random(stream), "PutStream", stream)[1].SerializeToString()
            target.unary("PutStream", put).result(DEADLINE)
        yield number + len(looks)
        clean(target)
        looks.append(target.look())
    judge.served = looks[-1].calls - began.calls
    for text in (text for look in looks for text in look.said):
        judge.faults.append(f"the log: {text}\n    seed {number}")
    judge.faults += grown(looks)
    if not target.healthy():
        judge.faults.append("the service is not healthy any more")
    judge.check()


def warm(target: Target) -> None:
    """Have every planner plan, and a round be merged: compiled code is loaded, and is no growth."""
    random = Random(1)
    for policy in PLANNERS:
        spec = a_spec(random, 4)
        spec.policy = policy
        target.unary("PutStream", pb.PutStreamRequest(stream="warm", spec=spec).SerializeToString()).result(60)
        for verb in ("BuildPlan", "ReportBatch", "Sync", "GetScale", "BuildPlan"):
            _, message = a_request(random, verb, "warm", 4)
            if verb == "BuildPlan":
                message.histogram.hashes = struct.pack("<50Q", *range(50))
                message.histogram.counts = struct.pack("<50Q", *(1000 // (1 + key) for key in range(50)))
            target.unary(verb, message.SerializeToString()).exception(60)
    for kind in ("int", "string", "date", "timestamp", "decimal(3,1)", "void"):
        asked = {"key": ["1"], "types": [kind]}
        requests.post(f"{target.base}/v1/streams/warm/explain", json=asked, timeout=60)
    clean(target)


def clean(target: Target) -> None:
    """Delete every stream that there is."""
    for _ in range(_ENOUGH):
        answer = target.unary("ListStreams", pb.ListStreamsRequest(limit=1000).SerializeToString()).result(DEADLINE)
        names = [one.name for one in pb.ListStreamsResponse.FromString(answer).streams]
        if not names:
            return
        for name in names:
            target.unary("DeleteStream", pb.DeleteStreamRequest(stream=name).SerializeToString()).exception(DEADLINE)
    raise AssertionError("there are still streams after all were deleted")


def grown(looks: Sequence[Look]) -> list[str]:
    """What there is more of after each half than after the one before it."""
    found = []
    for what, most in _MOST.items():
        counts = [getattr(look, what) for look in looks]
        if all(now > was + most for was, now in pairwise(counts)):
            found.append(f"{what} grew: {counts}")
    for path in looks[-1].kept:
        counts = [look.kept.get(path, 0) for look in looks]
        bounded = path.rstrip("[]").endswith(_BOUNDED)
        if not bounded and all(now > was + _FEW for was, now in pairwise(counts)):
            found.append(f"entries of {path} grew: {counts}")
    return found

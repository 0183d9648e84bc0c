"""The way that is advised for a batch, and what a service keeps of the batches so far to advise by."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.freshness.way_scores import WayChoice, WayScores
from unskew.core.plan.plan import Version
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.kept_pb2 import KeptWayCost, KeptWays
from unskew.wire.refusals import parsed, serialized
from unskew.wire.streams import version_from_message, version_to_message

__all__ = [
    "StoredWays", "choice_from_bytes", "choice_from_message", "choice_to_bytes", "choice_to_message", "ways_from_bytes",
    "ways_to_bytes",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredWays:
    """What each way would have cost the batches so far. ``numbers``: of the last of them; ``previous``: the version of
    that way's plan for the next batch; ``counted``: the plan of ``last``, in bytes."""

    scores: WayScores
    numbers: tuple[int, ...]
    previous: Version
    counted: bytes


def choice_to_message(choice: WayChoice) -> pb.WayChoice:
    return pb.WayChoice(way=choice.way, runner_up=choice.runner_up, reason=choice.reason)


def choice_from_message(message: pb.WayChoice) -> WayChoice:
    return WayChoice(message.way, message.runner_up, message.reason)


def choice_to_bytes(choice: WayChoice | None) -> bytes:
    return b"" if choice is None else serialized(choice_to_message(choice))


def choice_from_bytes(data: bytes) -> WayChoice | None:
    return choice_from_message(parsed(pb.WayChoice, data, "advice")) if data else None


def ways_to_bytes(ways: StoredWays) -> bytes:
    scores = ways.scores
    return serialized(
        KeptWays(
            costs=[KeptWayCost(way=way, sum=total) for way, total in scores.sums.items()],
            batches=scores.batches,
            weight=scores.weight,
            numbers=ways.numbers,
            previous=version_to_message(ways.previous),
            counted=ways.counted,
        )
    )


def ways_from_bytes(data: bytes) -> StoredWays:
    message = parsed(KeptWays, data, "ways")
    sums = {cost.way: cost.sum for cost in message.costs}
    scores = WayScores(batches=message.batches, sums=sums, weight=message.weight)
    return StoredWays(scores, tuple(message.numbers), version_from_message(message.previous), message.counted)

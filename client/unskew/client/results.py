"""The values that the methods of ``Client`` return."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.freshness.way_scores import WayChoice
from unskew.core.plan.plan import Plan, Version
from unskew.core.rounds.messages import Answer
from unskew.core.stream_spec import StreamSpec
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import ACTIONS, OUTCOMES, spec_from_message, version_from_message
from unskew.wire.ways import choice_from_message

__all__ = ["Built", "Explained", "Fetched", "Reported", "Scale", "StreamInfo", "Synced"]

_OUTCOMES: dict[int, str] = {number: name for name, number in OUTCOMES.items()}
_ACTIONS: dict[int, str] = {number: name for name, number in ACTIONS.items()}


@dataclass(frozen=True)
class StreamInfo:
    """A stream and its state.

    Parameters
    ----------
    name, spec : the stream and its settings
    created : seconds since 1970
    version, digest : of the latest plan; None and empty if there is none
    epoch, agents, dsync : the last learning round, the agents in it, and the seconds to the next one

    Examples
    --------
    >>> StreamInfo("clicks", StreamSpec(partitions=4), 1.7e9, None, "", 0, 0, 20.0).spec.partitions
    4
    """

    name: str
    spec: StreamSpec
    created: float
    version: Version | None
    digest: str
    epoch: int
    agents: int
    dsync: float

    @classmethod
    def of(cls, message: pb.Stream) -> StreamInfo:
        """From the ``message`` of the service."""
        return cls(
            name=message.name,
            spec=spec_from_message(message.spec),
            created=message.created.seconds + message.created.nanos / 1e9,
            version=version_from_message(message.version) if message.HasField("version") else None,
            digest=message.plan_digest,
            epoch=message.epoch,
            agents=message.agents,
            dsync=message.dsync_seconds,
        )


@dataclass(frozen=True)
class Reported:
    """What the service took of a histogram.

    Parameters
    ----------
    rows, keys : rows and different keys of the histogram
    repeated : whether the same report was there before; then nothing changed

    Examples
    --------
    >>> Reported(rows=100, keys=41, repeated=False).keys
    41
    """

    rows: int
    keys: int
    repeated: bool


@dataclass(frozen=True)
class Built:
    """A plan that was asked for.

    Parameters
    ----------
    plan : the plan
    outcome : "new", "kept" (the present plan stays), "nothing reported" or "repeated" (it was made before)
    reason : why this plan
    advice : the way that would have been cheapest so far: "previous" (this plan), "last" (a plan of the last batch
        alone), "same" (count the batch, then plan with ``fresh=True``) or "hash"; with the runner-up and the reason.
        None where the service has not advised any
    stale : whether the service could not ask its store: the plan is the last one it knows, not made for this request

    Examples
    --------
    >>> from unskew.core import Histogram, make_planner
    >>> Built(make_planner("hash", 4).plan(Histogram.empty()), "new", "first plan").plan.partitions
    4
    """

    plan: Plan
    outcome: str
    reason: str
    advice: WayChoice | None = None
    stale: bool = False

    @classmethod
    def of(cls, plan: Plan, message: pb.BuildPlanResponse) -> Built:
        """From the ``message`` of the service, which has this ``plan``."""
        advice = choice_from_message(message.advice) if message.HasField("advice") else None
        return cls(plan, _OUTCOMES.get(message.outcome, "unknown"), message.reason, advice, message.stale)


@dataclass(frozen=True)
class Fetched:
    """A plan that was fetched.

    Parameters
    ----------
    plan : the plan
    cached : whether it was in the client's cache
    stale : whether the service could not ask its store, so that there may be a newer plan

    Examples
    --------
    >>> from unskew.core import Histogram, make_planner
    >>> Fetched(make_planner("hash", 4).plan(Histogram.empty())).stale
    False
    """

    plan: Plan
    cached: bool = False
    stale: bool = False


@dataclass(frozen=True, eq=False)
class Synced:
    """The answer to an agent's report.

    Parameters
    ----------
    answer : the newest answer; None if the agent has it already or its round is still open
    merged : whether the report is in it
    age : seconds since its round closed

    Examples
    --------
    >>> Synced(None).merged
    False
    """

    answer: Answer | None
    merged: bool = False
    age: float = 0.0


@dataclass(frozen=True)
class Scale:
    """How many tasks the next batch should have, by Prompt's rule.

    Parameters
    ----------
    map_tasks, reduce_tasks : how many; 0 if no histogram was reported
    action : "hold", "out" (more tasks) or "in" (fewer)
    zone : 1 for too many tasks, 2 for enough, 3 for too few; 0 if not known yet
    reason : why

    Examples
    --------
    >>> Scale(map_tasks=4, reduce_tasks=16, action="hold", zone=2, reason="").reduce_tasks
    16
    """

    map_tasks: int
    reduce_tasks: int
    action: str
    zone: int
    reason: str

    @classmethod
    def of(cls, message: pb.GetScaleResponse) -> Scale:
        """From the ``message`` of the service."""
        action = _ACTIONS.get(message.action, "hold")
        return cls(message.map_tasks, message.reduce_tasks, action, message.zone, message.reason)


@dataclass(frozen=True)
class Explained:
    """Where the rows of a key go, and why.

    Parameters
    ----------
    hash : the key's hash, unsigned
    version : of the plan
    hot : whether the plan lists the key; ``rows`` and ``share`` are then its rows and their share of all
    partitions, shares : where the key's rows go, and which share of them each partition gets
    reason : why

    Examples
    --------
    >>> Explained(7, None, True, 60, 0.6, (0, 2), (0.5, 0.5), "split over 2").partitions
    (0, 2)
    """

    hash: int
    version: Version | None
    hot: bool
    rows: int
    share: float
    partitions: tuple[int, ...]
    shares: tuple[float, ...]
    reason: str

    @classmethod
    def of(cls, key: int, message: pb.ExplainResponse) -> Explained:
        """From the ``message`` of the service about the ``key``."""
        return cls(
            hash=key,
            version=version_from_message(message.version) if message.HasField("version") else None,
            hot=message.hot,
            rows=message.rows,
            share=message.share,
            partitions=tuple(fragment.partition for fragment in message.fragments),
            shares=tuple(fragment.share for fragment in message.fragments),
            reason=message.reason,
        )

"""What the verbs of ``Client`` give back, as values."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.plan.plan import Plan, Version
from unskew.core.rounds.messages import Answer
from unskew.core.stream_spec import StreamSpec
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import ACTIONS, OUTCOMES, spec_from_message, version_from_message

__all__ = ["Built", "Explained", "Fetched", "Reported", "Scale", "StreamInfo", "Synced"]

_OUTCOMES: dict[int, str] = {number: name for name, number in OUTCOMES.items()}
_ACTIONS: dict[int, str] = {number: name for name, number in ACTIONS.items()}


@dataclass(frozen=True)
class StreamInfo:
    """A stream as it stands. ``created`` in seconds since 1970; ``version`` and ``digest`` of its latest plan."""

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
    """What was taken of a histogram; ``repeated``: it was there already, and nothing changed."""

    rows: int
    keys: int
    repeated: bool


@dataclass(frozen=True)
class Built:
    """A plan, what happened ("new", "kept", "nothing reported", "repeated"), and why."""

    plan: Plan
    outcome: str
    reason: str

    @staticmethod
    def outcome_of(number: int) -> str:
        return _OUTCOMES.get(number, "unknown")


@dataclass(frozen=True)
class Fetched:
    """A plan. ``cached``: it was here already. ``stale``: the service could not ask its store."""

    plan: Plan
    cached: bool = False
    stale: bool = False


@dataclass(frozen=True, eq=False)
class Synced:
    """The newest answer if it is news; ``merged``: the report is in it; ``age``: seconds since its round closed."""

    answer: Answer | None
    merged: bool = False
    age: float = 0.0


@dataclass(frozen=True)
class Scale:
    """Prompt's advice for the next batch: action "hold", "out" or "in"; zone 0: not known yet."""

    map_tasks: int
    reduce_tasks: int
    action: str
    zone: int
    reason: str

    @classmethod
    def of(cls, message: pb.GetScaleResponse) -> Scale:
        action = _ACTIONS.get(message.action, "hold")
        return cls(message.map_tasks, message.reduce_tasks, action, message.zone, message.reason)


@dataclass(frozen=True)
class Explained:
    """Where a key goes under the plan of this version, and why. ``partitions`` and ``shares`` belong together."""

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

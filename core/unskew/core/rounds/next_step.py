"""What a replica does next about the rounds of a stream: the machine that the service and the simulator run.

``next_step(view, state, now)`` is a pure function of what the store showed (``RoundView``), of what this replica
remembers (``ReplicaState``) and of its clock. The driver does the step, hands the outcome to the state, and asks again
until it is told to wait; then it looks anew.

A round opens with its first report. It is sealed when every agent with a lease is in it, or at its deadline; reports
that come later count in the next round. Whoever sealed it merges it; another replica does so if that takes too long.

Deviations from the paper (Dalton, section 4):

- "All n messages" is said of agents that have a lease, not of messages; the deadline is ours. Both are in units of
  DSYNC, because agents report once in it. With a deadline under one DSYNC, agents that started at different moments
  would report to different rounds for ever.
- A request for a longer DSYNC counts where it names the present value, where the report before it was sent under that
  value too, and where the agent waited for the reducer, not for other agents (``rules.pressed``). Else one agent that
  dies, or starts out of step, would drive DSYNC to its bound. The last agent to report in a round has waited for
  nobody, so a slow reducer is noticed.
- A guest has no lease. Tasks of a batch are guests of their driver, which reports after them: nobody knows how many
  there will be in the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unskew.core.rounds.replica import Progress, ReplicaState
from unskew.core.rounds.round_log import RoundView
from unskew.core.rounds.rules import seal_at

__all__ = ["BeginAnew", "Fetch", "Merge", "Seal", "Step", "TakeOver", "Wait", "next_step"]


@dataclass(frozen=True)
class BeginAnew:
    """Begin a new incarnation of the stream: the store has lost a round of this one that was answered."""

    lost: int


@dataclass(frozen=True)
class Fetch:
    """Read the answer of the last merged round."""


@dataclass(frozen=True)
class Seal:
    """Close the open round for reports."""

    epoch: int


@dataclass(frozen=True)
class Merge:
    """Merge the round that this replica sealed. ``complete``: when, by the store's clock; ``outcome``: "complete", or
    "deadline" where an agent was missing."""

    epoch: int
    complete: float
    outcome: str


@dataclass(frozen=True)
class TakeOver:
    """Merge a round that another replica sealed, and did not merge in time."""

    epoch: int


@dataclass(frozen=True)
class Wait:
    """Nothing to do for so many seconds, if nothing happens; 0: look again at once."""

    seconds: float


Step: TypeAlias = "BeginAnew | Fetch | Seal | Merge | TakeOver | Wait"


def next_step(view: RoundView, state: ReplicaState, now: float) -> Step:
    """What to do about this view of the rounds."""
    if (pause := _pause(state)) is not None:
        return pause
    if state.lost:
        return BeginAnew(state.lost)
    version, stored = state.version, (view.incarnation, view.merged)
    if view.merged and state.progress is Progress.LOOKED and (version is None or version < stored):
        return Fetch()
    if version is not None and version > stored:
        return Wait(0.0)  # another replica has merged a round since this view
    if state.progress is Progress.SEALED:
        return Merge(view.open, view.now, "deadline" if _missing_leases(view) else "complete")
    if view.open > view.merged + 1:
        return _take_over(view, state, now)
    return _seal(view, state)


def _pause(state: ReplicaState) -> Wait | None:
    """After a step that ends a turn."""
    match state.progress:
        case Progress.NOT_SEALED:
            return Wait(state.timing.retry)
        case Progress.MERGED:
            return Wait(state.timing.poll)
        case Progress.OVERTAKEN:
            return Wait(0.0)
    return None


def _take_over(view: RoundView, state: ReplicaState, now: float) -> TakeOver | Wait:
    """A round is sealed and not merged. Whoever sealed it has the time that four merges like the last one take."""
    _, since = state.unmerged
    left = since + state.timing.takeover + 4.0 * state.carryover.pace.work - now
    return Wait(min(left, state.timing.poll)) if left > 0 else TakeOver(view.merged + 1)


def _seal(view: RoundView, state: ReplicaState) -> Seal | Wait:
    """The open round, once it has a report."""
    if view.opened is None or not view.reported:
        return Wait(state.timing.poll)
    if view.opened > view.now:
        return Seal(view.open)  # the store's clock went back: nobody knows how long this round has waited
    deadline = view.opened + state.rules.patience * state.dsync
    at = seal_at(view.now, deadline, _missing_leases(view))
    return Wait(min(at - view.now, state.timing.poll)) if at > view.now else Seal(view.open)


def _missing_leases(view: RoundView) -> list[float]:
    """The leases of the live agents that have not reported in the open round."""
    return [m.lease for m in view.members if m.lease > view.now and m.agent not in view.reported]

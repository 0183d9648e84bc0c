"""Key-forwarding (Dalton, section 4.2): which keys are final at their worker, so that their aggregates can go on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core.rounds.agent import Action, Agent, Answered, Event
from unskew.core.routers.learner import Learner

__all__ = ["ForwardingAgent", "keys_not_final"]


def keys_not_final(learner: Learner) -> NDArray[np.uint64]:
    """The keys that may have tuples in the window on other workers than their hash worker, ascending.

    All other keys are final where they are. Without a window no key ever is, and these are the hot keys.
    """
    rows = learner.rows
    return np.sort(rows.row_keys[rows.table[rows.table > 0] - 1])


@dataclass(eq=False)
class ForwardingAgent:
    """An agent whose keys may be forwarded: of its newest answer, the keys that some agent splits, and the slide in
    which that came."""

    agent: Agent
    _split: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), init=False)
    _answered_in: int = field(default=-1, init=False)

    def handle(self, event: Event, now: float) -> tuple[Action, ...]:
        """As the agent does."""
        before = self.agent.version
        actions = self.agent.handle(event, now)
        if isinstance(event, Answered) and self.agent.version != before:
            self._split, self._answered_in = event.answer.split, self._slide()
        return actions

    def final_but(self) -> NDArray[np.uint64] | None:
        """Every key is final but these; None: none is. Several partitioners may forward only if they sync at least once
        a slide and the global table has come in this one."""
        agent, settings = self.agent, self.agent.settings
        slide = settings.slide if settings.slide is not None else settings.window
        if slide is None or agent.dsync > slide or self._answered_in != self._slide():
            return None
        return np.union1d(keys_not_final(agent.learner), self._split)

    def _slide(self) -> int:
        return int(self.agent.learner.loads.clock[1])

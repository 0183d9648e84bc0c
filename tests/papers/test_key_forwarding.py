"""Key-forwarding (Dalton, section 4.2): which keys are final where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from papers.key_forwarding import ForwardingAgent
from tests.unit.test_agent import DSYNC, GREEDY, agent, answer, report_of, report_of_first, routed, stream, u64
from unskew.core.rounds.agent import AgentTick, Answered, Tuples
from unskew.core.rounds.messages import Report


def forwarding(**more: Any) -> ForwardingAgent:
    return ForwardingAgent(agent(**more))


class TestForwarding:
    def partner(self, dsync: float = DSYNC, slide: float = 20.0) -> tuple[ForwardingAgent, Report]:
        ann = forwarding(parameters=GREEDY, dsync=dsync, window=100.0, slide=slide)
        times = np.linspace(0, dsync, 300)
        ann.handle(Tuples(stream(np.random.default_rng(1), 300, 0.6), times), 0.0)
        return ann, report_of(ann, dsync)

    @pytest.mark.parametrize("others", [0, 1])
    def test_all_keys_but_the_hot_ones_after_a_sync_in_this_slide(self, others):
        ann, sent = self.partner()
        assert ann.final_but() is None
        more = [report_of_first(agent("bob", window=100.0, slide=20.0), np.full(300, 9, np.uint64))][:others]
        ann.handle(Answered(answer(1, sent, *more)), DSYNC + 1)
        but = ann.final_but()
        assert but is not None
        assert but.tolist() == [7, 9][: 1 + others]

    def test_a_key_that_another_agent_splits_is_not_final_though_it_is_cold_for_all(self):
        """Its fragments are in the window until they run out."""
        ann, sent = self.partner()
        bob = agent("bob", window=100.0, slide=20.0)
        theirs = report_of_first(bob, stream(np.random.default_rng(3), 200, 0.4, key=9))
        got = answer(1, sent, theirs)
        assert got.table.hashes.tolist() == [7]
        ann.handle(Answered(got), DSYNC + 1)
        but = ann.final_but()
        assert but is not None
        assert but.tolist() == [7, 9]

    def test_a_key_that_turned_hot_since_the_answer_is_not_final(self):
        ann, sent = self.partner()
        ann.handle(Answered(answer(1, sent)), DSYNC)
        routed(ann, np.full(200, 9, np.uint64), DSYNC + 1, np.linspace(11, 12, 200))
        but = ann.final_but()
        assert but is not None
        assert but.tolist() == [7, 9]

    def test_none_if_agents_sync_less_than_once_a_slide(self):
        ann, sent = self.partner(dsync=20.1)
        ann.handle(Answered(answer(1, sent, dsync=20.1)), 21.0)
        assert ann.final_but() is None
        ann, sent = self.partner(dsync=20.0, slide=20.0)
        ann.handle(Answered(answer(1, sent, dsync=20.0)), 21.0)
        assert ann.final_but() is not None

    def test_none_once_the_answer_makes_the_interval_longer_than_a_slide(self):
        ann, sent = self.partner()
        ann.handle(Answered(answer(1, sent, dsync=40.0)), DSYNC)
        assert ann.final_but() is None

    def test_none_in_a_slide_into_which_no_table_came(self):
        ann, sent = self.partner()
        ann.handle(Answered(answer(1, sent)), DSYNC + 1)
        routed(ann, u64(1), 19.0, np.array([19.0]))
        assert ann.final_but() is not None
        routed(ann, u64(1), 20.0, np.array([20.0]))
        assert ann.final_but() is None
        following = report_of(ann, 21.0)
        ann.handle(Answered(answer(2, following)), 22.0)
        assert ann.final_but() is not None

    def test_none_without_a_window(self):
        ann = forwarding()
        ann.handle(Answered(answer(1, report_of_first(ann))), DSYNC)
        assert ann.final_but() is None

    def test_every_split_key_is_among_those_that_are_not_final(self):
        ann, rng = forwarding(window=4000, slide=2000, workers=8, dsync=500.0), np.random.default_rng(6)
        ann.handle(AgentTick(), 0.0)
        at: dict[int, set[int]] = {}
        for beat in range(8):
            keys = rng.zipf(1.3, 500).astype(np.uint64)
            for key, worker in zip(keys.tolist(), routed(ann, keys, 500.0 * beat), strict=True):
                at.setdefault(key, set()).add(worker)
            if ann.agent.waiting is not None:
                ann.handle(Answered(answer(beat + 1, ann.agent.waiting)), 500.0 * beat)
        but = ann.final_but()
        assert but is not None
        split = {key for key, workers in at.items() if len(workers) > 1}
        assert split
        assert split <= set(but.tolist())

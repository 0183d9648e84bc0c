"""A store that lost its last rounds in a failover: replicas that had answered them go on from what is left."""

from __future__ import annotations

import copy
import time

from tests.service.engines import a_report, engines, run
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import StreamSpec
from unskew.service.api.verbs import Synced
from unskew.service.stores.memory import MemoryStore

NEVER = NOTHING_SEEN


def epoch(found: Synced) -> int:
    assert found.answer is not None
    return found.answer.epoch


def test_a_round_that_was_answered_and_lost_holds_nobody_up() -> None:
    """The only replica has answered round 2; the store knows of round 1 only. The stream begins anew above all that
    was: were its answer taken for a round that another replica was faster with, every later report would wait for
    ever."""

    async def main() -> None:
        store = MemoryStore(time.time)
        async with engines(store) as (engine,):
            await engine.put_stream("clicks", StreamSpec(4, "dalton", dsync=0.2, dsync_min=0.2, dsync_max=0.2))
            first = await engine.sync("clicks", a_report("ann", 1), 5.0, NEVER)
            kept = copy.deepcopy(store._streams)
            lost = await engine.sync("clicks", a_report("ann", 2), 5.0, NEVER)
            assert (epoch(first), epoch(lost)) == (1, 2)

            store._streams = kept
            again = await engine.sync("clicks", a_report("ann", 3, rows=300), 5.0, NEVER)
            assert again.merged
            assert again.answer is not None
            assert again.answer.records == 300
            assert again.incarnation > lost.incarnation
            last = await engine.sync("clicks", a_report("ann", 4), 5.0, again.answer.seen)
            assert (last.merged, last.incarnation, epoch(last)) == (True, again.incarnation, epoch(again) + 1)

    run(main())

"""Several partitioners of one stream against one: the marks of issue 3 for cooperation (Dalton, section 4).

A small dose in `make test` (one and eight agents, n = 64), all of it in `make test-long`. The figures themselves:
`python -m benchmarks.cooperation`.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cooperation import AGENTS, DSYNC, KEYS, KINDS, SLIDE, WINDOW, Kind, growth, synced_and_not
from unskew.core.keys.hashing import mix
from unskew.core.quality.windows import window_imbalance
from unskew.simulate.fleet import Fleet
from unskew.simulate.key_streams import drifting

SOME, ALL = 250_000, 400_000
full = pytest.mark.long


@pytest.mark.parametrize(
    ("kind", "workers", "agents", "seeds", "rows"),
    [
        *(pytest.param(kind, 64, (1, 8), (1,), SOME, id=f"{kind}-64-some") for kind in KINDS),
        *(
            pytest.param(kind, n, AGENTS, (1, 2, 3), ALL, id=f"{kind}-{n}-all", marks=full)
            for kind in KINDS
            for n in (16, 64)
        ),
    ],
)
def test_agents_that_sync_are_as_good_as_one_and_no_worse_the_more_they_are(
    kind: Kind, workers: int, agents: tuple[int, ...], seeds: tuple[int, ...], rows: int
) -> None:
    """Imbalance within 1.1 and replication within 1.05 of one agent's; with each doubling of the agents neither grows
    by more than what one seed differs from another."""
    found = synced_and_not(kind, workers, DSYNC, seeds, agents, rows=rows)
    one = found[1]
    for got in found.values():
        assert got.rounds >= rows // DSYNC - 1
        assert got.imbalance <= 1.1 * one.imbalance
        assert got.replication <= 1.05 * one.replication
    assert growth({many: got.imbalance for many, got in found.items()}) <= 0.02
    assert growth({many: got.replication for many, got in found.items()}) <= 0.01


@pytest.mark.parametrize(
    ("seeds", "rows"), [((1,), SOME), pytest.param((1, 2, 3), ALL, marks=full)], ids=["some", "all"]
)
def test_agents_that_never_sync_split_far_more(seeds: tuple[int, ...], rows: int) -> None:
    """Each splits its own hot keys, of which most are cold for all: what the mark above would see go wrong."""
    found = synced_and_not("disjoint", 64, None, seeds, (1, 8), rows=rows)
    assert found[8].rounds == 0
    assert found[8].replication >= 1.1 * found[1].replication
    synced = synced_and_not("disjoint", 64, DSYNC, seeds, (8,), rows=rows)
    assert found[8].replication >= 1.1 * synced[8].replication


@full
def test_loads_of_the_others_are_worth_sending() -> None:
    """As published, agents are told of each other's values and not of their loads, and all fill the same workers."""
    told, untold = (synced_and_not("disjoint", 64, DSYNC, (1, 2, 3), (8,), lonely=lonely) for lonely in (False, True))
    assert untold[8].imbalance >= 1.1 * told[8].imbalance


def test_agents_whose_reducer_is_gone_follow_the_stream_as_well_as_before() -> None:
    """The hot set is replaced every 100,000 rows, and in one of two runs the network is cut after the first."""
    span, spans, agents, n = 100_000, 4, 4, 16
    keys = mix(drifting(np.random.default_rng(3), spans * span, KEYS, 1.5, span, 64).astype(np.uint64), 3)
    found = []
    for cut in (False, True):
        fleet = Fleet(agents, n, DSYNC, window=WINDOW, slide=SLIDE)
        before = fleet.route(keys[:span])
        if cut:
            fleet.dsync = None
        out = np.concatenate([before, fleet.route(keys[span:])])
        assert fleet.rounds.merged == (1 if cut else spans) * span // DSYNC
        settled = out.reshape(spans, span)[1:, span - WINDOW - DSYNC :]
        found.append(np.mean([window_imbalance(part, n, WINDOW, SLIDE).mean() for part in settled]))
    synced, alone = found
    assert alone <= 1.1 * synced

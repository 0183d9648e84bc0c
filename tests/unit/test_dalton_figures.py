"""The model behind Dalton's figures by hand, and what the paper claims, in small: so that the figures cannot rot.

No claim here rests on a measured time: where partitioners set the pace, a fixed cost takes the measured one's place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import dalton_figures
from benchmarks.dataflow import (
    ALGORITHMS,
    READ,
    SECOND,
    UPDATE,
    Keys,
    Plan,
    Run,
    alone,
    fleet,
    pinned,
    spans,
    together,
    workers_of,
)
from papers.replay import Stages
from unskew.core.kernels import base as kernels
from unskew.simulate.key_streams import zipf_probabilities

SHORT, LONG = Plan(), Plan(slide=20 * SECOND)
TWO = replace(LONG, partitioners=2)
NS = 50e-9

routes = pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed: plain Python takes minutes")


def sustained(run: Run) -> Stages:
    """What a run bears after the warm-up, if every router cost the same."""
    return spans(replace(run, seconds=np.full_like(run.seconds, NS)))[0]


def test_a_run_by_hand() -> None:
    """Two slides of four rows, a window of two slides, two partitioners that take 1 and 3 us a row more in the second
    phase. A row is two updates at its combiner; without forwarding the reducer gets all pairs of the last two slides:
    2, then 4. With forwarding only key 7, which is on both workers in the second."""
    keys = np.array([7, 8, 7, 8, 7, 9, 7, 9], np.uint64)
    workers = np.array([0, 1, 0, 1, 1, 1, 1, 1], np.int32)
    plan = Plan(window=8, slide=4, slots=2, partitioners=2)
    run = Run(plan, keys, (4, 8), workers, 2, np.array([[0.0, 0.0], [1e-6, 3e-6]]), forward=False)
    first, second = spans(run, skip=0)
    assert first.partition.tolist() == [[2 * READ, 2 * READ]]
    assert second.partition[0] == pytest.approx([2 * (READ + 1e-6), 2 * (READ + 3e-6)])
    assert first.combine[0] == pytest.approx([4 * UPDATE, 4 * UPDATE])
    assert second.combine[0] == pytest.approx([0.0, 8 * UPDATE])
    assert (first.reduce[0, 0], second.reduce[0, 0]) == (pytest.approx(2 * UPDATE), pytest.approx(4 * UPDATE))
    first, second = spans(replace(run, forward=True), skip=0)
    assert (first.reduce[0, 0], second.reduce[0, 0]) == (0.0, pytest.approx(2 * UPDATE))


def test_slots_are_shared_as_the_paper_does() -> None:
    """Section 5.1: 1, 2, 4, 8 reducers of 8, 16, 32, 64 slots; hash combines on all."""
    plans = [Plan(slots=slots) for slots in (8, 16, 32, 64)]
    assert [plan.reducers for plan in plans] == [1, 2, 4, 8]
    assert [workers_of("dalton", plan) for plan in plans] == [7, 14, 28, 56]
    assert [workers_of("hash", plan) for plan in plans] == [8, 16, 32, 64]


@routes
def test_dalton_is_ahead_of_all_others_on_skewed_keys() -> None:
    """Figures 1 and 9a, Zipf 1.5; of those that may send a key to one worker only, by 5 and more."""
    stream = Keys(1).draw(120_000, 1.5)
    found = {name: sustained(alone(name, [stream], SHORT)).sustained for name in ALGORITHMS}
    assert max(found, key=found.__getitem__) == "dalton"
    assert found["dalton"] > 5 * max(found["hash"], found["cam"])


@routes
def test_dalton_is_hash_on_uniform_keys() -> None:
    """Section 5.1's takeaway, on as many combiners; and those that split all keys are far behind."""
    stream = Keys(1).draw(120_000, 0.0)
    dalton = sustained(alone("dalton", [stream], SHORT)).sustained
    assert dalton >= 0.98 * sustained(alone("hash", [stream], replace(SHORT, slots=56))).sustained
    assert dalton > 3 * sustained(alone("pk2", [stream], SHORT)).sustained


@routes
def test_syncing_pays_where_one_source_is_skewed() -> None:
    """Figures 13 and 14a: the paper has 1.4 to 3.4. A DSYNC longer than a slide forbids key-forwarding."""
    of = Keys(1)
    stream = [together(of.draw(60_000, 0.0), of.draw(60_000, 1.5))]
    beside = alone("dalton", stream, TWO)
    never, rare, often = (sustained(fleet(stream, TWO, dsync, beside)[0]) for dsync in (None, 40_000, 10_000))
    assert often.sustained > 1.4 * never.sustained
    assert often.sustained > 1.4 * rare.sustained
    assert (never.bottleneck, rare.bottleneck) == ("reduce", "reduce")


@routes
def test_syncing_saves_aggregation_where_hot_keys_differ() -> None:
    """Figure 13, two Zipf sources: agents that never sync leave the reducers at least three times the work."""
    of = Keys(1)
    stream = [together(of.draw(60_000, 1.5, 1), of.draw(60_000, 1.5, 2))]
    beside = alone("dalton", stream, TWO)
    never, often = (sustained(fleet(stream, TWO, dsync, beside)[0]) for dsync in (None, 10_000))
    assert never.totals["reduce"] > 3 * often.totals["reduce"]


@routes
def test_only_the_keys_that_are_given_are_hot() -> None:
    """Figure 10c's way to say which keys are hot: all others stay where hash sends them. As many as Definition 3.3 has
    (4 of Zipf 1.0 on 56 workers) bear more than one or two."""
    of, p = Keys(1), zipf_probabilities(100_000, 1.0)
    stream = [of.draw(120_000, 1.0)]
    paces = []
    for many in (1, 2, 4):
        run = pinned(stream, SHORT, of.hashes[:many], p[:many], forward=True)
        hashed = alone("hash", stream, replace(SHORT, slots=56))
        elsewhere = np.unique(run.keys[run.workers != hashed.workers])
        assert set(elsewhere.tolist()) == set(of.hashes[:many].tolist())
        paces.append(sustained(run).sustained)
    assert paces == sorted(paces)
    assert paces[2] > 1.5 * paces[0]


def test_a_figure_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has those that are."""
    monkeypatch.setattr("sys.argv", ["dalton_figures", "9b"])
    with pytest.raises(SystemExit, match=r"no such figure: 9b; there are: 1, 9a, 9d, 10a"):
        dalton_figures.main()

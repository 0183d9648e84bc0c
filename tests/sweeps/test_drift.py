"""Dalton after a drift: balanced again inside one STATS_WIN plus one slide, and nothing left of the old hot keys."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift import BATCH, old_fragments, settled
from benchmarks.grid import SLIDE
from unskew.core.kernels import base as kernels

pytestmark = pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed: plain Python takes minutes")

CELLS = [(1.0, 16), (1.5, 8), (1.5, 64)]
FULL = [(z, n) for z in (1.0, 1.5) for n in (8, 16, 64)]


def stats_slides(n: int) -> int:
    """Slides in a STATS_WIN: whole ones until they have 16 n tuples."""
    return -(-16 * n // SLIDE)


def check_slides(exponent: float, n: int, seeds: int) -> None:
    """The three slides after STATS_WIN and one slide more: one alone scatters by some per cent."""
    after = settled(exponent, n, seeds, SLIDE)
    assert after[stats_slides(n) + 1 :][:3].mean() <= 1.10


@pytest.mark.parametrize(("exponent", "n"), CELLS)
def test_slides_are_even_again_in_time(exponent: float, n: int) -> None:
    check_slides(exponent, n, seeds=1)


@pytest.mark.long
@pytest.mark.parametrize(("exponent", "n"), FULL)
def test_slides_are_even_again_in_time_over_many_changes(exponent: float, n: int) -> None:
    check_slides(exponent, n, seeds=10)


@pytest.mark.parametrize(("exponent", "n"), CELLS)
def test_the_first_batch_after_a_change_is_even(exponent: float, n: int) -> None:
    """The micro-batch form sees the batch before it decides."""
    assert np.all(settled(exponent, n, seeds=1, step=BATCH, spans=2)[:2] <= 1.10)


@pytest.mark.parametrize("n", [16, 64])
def test_old_hot_keys_are_whole_again_after_a_window(n: int) -> None:
    before, after = old_fragments(1.5, n, seed=1)
    assert before > 1.5
    assert after == 1.0

"""The oracle of FIDELITY's grid by definition and by hand, and that marks and record can be missed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import grid
from benchmarks.grid import Dose, Stream, bound_of, figures, pairs_a_key, pk2_choices, stream_of
from benchmarks.router_grid import MARKS, Spread, contenders, missed, recorded, results, strayed
from tests.planning import key_hashes
from unskew.core import make_router
from unskew.core.quality.windows import window_replication


def stream(ranks: list[int], keys: int, seed: int = 0, warm: int = 0) -> Stream:
    return Stream(1.0, seed, Dose(len(ranks), warm), key_hashes(keys, seed), np.array(ranks, np.int64))


def bound_by_definition(rows: list[int], homes: list[int], n: int) -> Fraction:
    """Keys with a mean share or more are poured in, at best perfectly; the rest lies where it is hashed."""
    tail = {key: count for key, count in Counter(rows).items() if count < Fraction(len(rows), n)}
    load = [sum(count for key, count in tail.items() if homes[key] == worker) for worker in range(n)]
    return max(Fraction(1), Fraction(max(load) * n, len(rows)))


@settings(max_examples=60, deadline=None)
@given(
    ranks=st.lists(st.integers(0, 9) | st.integers(0, 1), min_size=1, max_size=80),
    n=st.integers(1, 6),
    slides=st.integers(1, 4),
    slide=st.integers(1, 8),
    warm=st.integers(0, 20),
)
def test_the_oracle_is_its_definition(ranks: list[int], n: int, slides: int, slide: int, warm: int) -> None:
    """In every window at every slide end after the warm-up, and batch by batch."""
    one = stream(ranks, 10, warm=min(warm, len(ranks)))
    homes, late = make_router("hash", n).route(one.hashes).tolist(), ranks[one.dose.warm :]
    if not late:
        return
    window = slides * slide
    found = bound_of(one, n, window, slide, batches=(slide,))
    for got, length in ((found.window, window), (found.batch[slide], slide)):
        spans = [late[end - length : end] for end in range(length, len(late) + 1, slide)]
        assert got.tolist() == pytest.approx([float(bound_by_definition(span, homes, n)) for span in spans])


def test_the_oracle_by_hand() -> None:
    """Ten rows, two workers: a key with 5 rows is poured in; what is left is 5 rows, at most all on one worker, so B is
    1. With 4 rows it is not hot, and stays where it is hashed with whatever else is there."""
    assert bound_of(stream([0] * 5 + [1, 2, 3, 4, 5], 6), 2, 10, 10, ()).window.tolist() == [1.0]
    cold = stream([0] * 4 + [1] * 3 + [2] * 3, 3)
    load = np.bincount(make_router("hash", 2).route(cold.hashes), weights=[4, 3, 3], minlength=2)
    assert bound_of(cold, 2, 10, 10, ()).window.tolist() == [load.max() / 5]


def test_two_workers_of_the_heaviest_key() -> None:
    """Six of ten rows on two of ten workers: three times the mean; p1 n / 2."""
    assert bound_of(stream([0] * 6 + [1, 2, 3, 4], 5), 10, 10, 10, ()).halved.tolist() == [3.0]


def test_the_pairs_of_workers_are_those_that_pk2_draws() -> None:
    """A key alone goes to its first, then to its second choice."""
    keys = key_hashes(200)
    for n, seed in ((2, 0), (8, 3), (64, 9)):
        first, second = pk2_choices(keys, n, seed)
        drawn = [make_router("pk2", n, seed).route(np.repeat(keys[i : i + 1], 2)).tolist() for i in range(200)]
        assert drawn == np.stack([first, second], axis=1).tolist()


def test_two_keys_of_one_pair_of_workers_are_what_pk2_cannot_part() -> None:
    """Two keys with half of the rows each and the same two of 8 workers: four times the mean; p1 n / 2 is 2."""
    first, second = pk2_choices(key_hashes(500, seed=0), 8, 0)
    pairs = np.minimum(first, second) * 8 + np.maximum(first, second)
    twin = int(np.flatnonzero(pairs[1:] == pairs[0])[0]) + 1
    assert bound_of(stream([0, twin] * 50, 500), 8, 100, 100, ()).paired == 4.0


def test_what_a_router_did_is_measured_as_by_the_library() -> None:
    """Hash on uniform rows: no key is hot, so the oracle is hash itself, in windows and in batches; replication by the
    table is that by sorting."""
    one, n = stream_of(0.0, 1, Dose(180_000, 60_000)), 16
    bound = bound_of(one, n)
    hashed = figures(one, make_router("hash", n).route(one.rows), n, bound)
    assert hashed.ratio == pytest.approx(1.0)
    assert hashed.imbalance == hashed.hashed
    assert all(hashed.batch_ratio(size) == pytest.approx(1.0) for size in grid.BATCHES)
    assert (hashed.replication, hashed.whole) == (1.0, 1.0)
    out = make_router("pk2", n).route(one.rows)
    assert figures(one, out, n, bound).replication == pytest.approx(
        float(window_replication(one.rows[60_000:], out[60_000:], grid.WINDOW).mean())
    )
    assert pairs_a_key(one.ranks, out, n) == window_replication(one.rows, out, 180_000)[0]


def test_batch_by_batch_measures_what_the_hook_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The micro-batch form gets the stream in batches of the size, after a few rows to compile by."""
    seen: list[int] = []

    def route(rows: np.ndarray) -> np.ndarray:
        seen.append(len(rows))
        return make_router("hash", 8).route(rows)

    monkeypatch.setattr(grid, "batched", lambda workers, seed: route)
    one = stream_of(0.0, 1, Dose(180_000, 60_000))
    found = grid.measure_batched(10_000, one, 8, bound_of(one, 8))
    assert seen == [2_000] + [10_000] * 18
    assert found.ratio == pytest.approx(1.0)


def test_marks_name_what_is_measured() -> None:
    """A mark for a name that nothing has would never be looked at."""
    assert {mark.name for mark in MARKS} <= set(contenders())


def test_marks_and_record_can_be_missed() -> None:
    """Hash in the place of PK-2, PoRC and Dalton misses their marks; one rule in another's place is not what is on
    record; a router without a record says how to make one."""
    cell = (1.5, 64)
    found = results(cell, range(1), Dose(), ["hash", "pk5"])
    wrong = dict.fromkeys(("pk2", "porc", "dalton"), found["hash"])
    assert {text.split(", ")[2].split(":")[0] for text in missed(cell, wrong)} == {"pk2", "porc", "dalton"}
    assert any("ratio" in text for text in strayed(cell, {"pk2": found["pk5"]}, recorded()))
    assert strayed(cell, {"newcomer": found["pk5"]}, recorded())[0].endswith("--write --routers newcomer")


def test_a_figure_strays_by_a_quarter_of_what_seeds_differ_by() -> None:
    """1.0 to 2.0 over the seeds: 0.25 and half a percent to either side; few seeds against the same few."""
    spread = Spread(median=1.5, low=1.0, high=2.0, few=1.2)
    assert [spread.strays([value] * 10) for value in (1.24, 1.25, 1.75, 1.76)] == [True, False, False, True]
    assert [spread.strays([value] * 3) for value in (0.94, 0.95, 1.45, 1.46)] == [True, False, False, True]

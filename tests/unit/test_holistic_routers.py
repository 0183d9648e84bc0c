"""CM, AM, cAM and LM with exact sets and with HyperLogLog: against the listings, against each other, and in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from papers.hyperloglog import HyperLogLog
from tests.planning import key_hashes
from tests.property.test_router_laws import stream, windows
from tests.unit.test_frequency_routers import memory
from unskew.core import make_router, quality
from unskew.core.errors import ConfigError
from unskew.core.kernels import base as kernels
from unskew.core.kernels import loglog
from unskew.core.kernels.choices import another
from unskew.core.routers.base import common

HOLISTIC = ("am", "cam", "cm", "lm")


def candidates(key: np.uint64, n: int, choices: int, seed: int) -> list[int]:
    """A key's choices, in order."""
    picked, common_settings = np.zeros(choices, np.int64), common(n, seed, None, None)
    with np.errstate(over="ignore"):
        return [int(another(key, common_settings.salt(j), n, picked, j)) for j in range(min(choices, n))]


def by_the_listing(name: str, keys: NDArray[np.uint64], n: int, choices: int, window: int, seed: int = 7) -> list[int]:
    """Algorithms 1 to 5 as printed, with Python sets; LM with the min-max scaling of Eq. 7 and 8."""
    out, of_key = [], {key: candidates(key, n, choices, seed) for key in np.unique(keys)}
    for i, key in enumerate(keys):
        if i % window == 0:
            rows, held = [0] * n, [set() for _ in range(n)]
        score = {
            "am": lambda w, held=held: len(held[w]),
            "cam": lambda w, rows=rows: rows[w],
            "cm": lambda w, held=held: len(held[w]),
            "lm": lambda w, rows=rows, held=held: 0.5 * scaled(rows, w) + 0.5 * scaled([len(one) for one in held], w),
        }[name]
        has = [w for w in of_key[key] if key in held[w]] if name in {"am", "cam"} else []
        best = has[0] if has else min(of_key[key], key=score)
        rows[best] += 1
        held[best].add(key)
        out.append(best)
    return out


def scaled(values: list[int], at: int) -> float:
    low, high = min(values), max(values)
    return (values[at] - low) / (high - low) if high > low else 0.0


@pytest.mark.parametrize("name", HOLISTIC)
@pytest.mark.parametrize(("n", "choices"), [(1, 2), (3, 5), (8, 2), (8, 5), (70, 2)])
def test_exact_routers_do_what_the_listings_say(name: str, n: int, choices: int) -> None:
    """Tuple for tuple the routes of Algorithms 2 to 5 with plain sets, windows and growth of the table included."""
    for exponent in (0.0, 1.2):
        keys = stream(2_500, 900, exponent)
        ours = make_router(name, n, window=1_300, choices=choices).route(keys)
        assert ours.tolist() == by_the_listing(name, keys, n, choices, 1_300)


def in_sketches(
    name: str, keys: NDArray[np.uint64], n: int, choices: int, window: int, *, published: bool
) -> list[int]:
    """AM and cAM with one ``HyperLogLog`` a worker, asked key by key, cardinality added up from its registers."""
    out, of_key = [], {key: candidates(key, n, choices, 7) for key in np.unique(keys)}
    for i, key in enumerate(keys):
        if i % window == 0:
            sketches, rows, count = [HyperLogLog() for _ in range(n)], [0] * n, [0.0] * n
        one = keys[i : i + 1]
        score = count if name == "am" else rows
        (place,), (rank,) = sketches[0].places(one)
        evidence = {w: int(sketches[w].contains(one)[0]) for w in of_key[key]}
        for w in of_key[key]:
            full = name == "cam" and rows[w] > (1 + 1 / 64) * sum(rows) / n
            evidence[w] += int(sketches[w].registers[place] == rank and not full)
        if published:
            found = [w for w in of_key[key] if evidence[w]][:1] or of_key[key]
        else:
            found = [w for w in of_key[key] if evidence[w] == max(evidence.values())]
        best = min(found, key=lambda w, score=score: score[w])
        if not evidence[best]:
            count[best] += 1.0 / float(np.exp2(-sketches[best].registers.astype(np.float64)).mean())
        sketches[best].update(one)
        rows[best] += 1
        out.append(best)
    return out


@pytest.mark.parametrize("name", ["am", "cam"])
@pytest.mark.parametrize("published", [False, True])
def test_hll_routers_do_what_a_sketch_a_worker_says(name: str, published: bool) -> None:
    """The registers, the containment test and the running cardinality are those of ``papers.hyperloglog``."""
    keys = stream(1_300, 1_000, 0.7)
    ours = make_router(name, 4, window=1_000, cardinality="hll", choices=3, as_published=published).route(keys)
    assert ours.tolist() == in_sketches(name, keys, 4, 3, 1_000, published=published)


def test_a_keys_register_and_rank_are_the_sketchs() -> None:
    keys = key_hashes(500)
    for bits in (4, 12, 18):
        places, ranks = HyperLogLog(bits).places(keys)
        with np.errstate(over="ignore"):
            ours = [loglog.register_and_rank(key, np.uint64(HyperLogLog.salt), bits) for key in keys]
        assert ours == list(zip(places.tolist(), ranks.tolist(), strict=True))


@pytest.mark.parametrize("name", ["am", "cam"])
@pytest.mark.parametrize("choices", [2, 5])
@pytest.mark.parametrize("n", [8, 16, 64])
def test_exact_affinity_never_splits_a_key_inside_a_window(name: str, choices: int, n: int) -> None:
    """Whatever the skew, each key has one worker within each window; between windows it may change."""
    for exponent in (0.0, 0.5, 1.0, 1.5, 2.0):
        keys = stream(20_000, 5_000, exponent)
        out = make_router(name, n, choices=choices, window=5_000, slide=100).route(keys)
        for part in (slice(start, start + 5_000) for start in range(0, 20_000, 5_000)):
            assert quality.split_share(keys[part], out[part]) == 0.0
            assert quality.replication(keys[part], out[part]) == 1.0


def test_split_share_by_hand() -> None:
    """Three keys, one of them on two partitions: a third; nothing routed, or nothing split: none."""
    keys = np.array([1, 1, 2, 2, 3], np.uint64)
    assert quality.split_share(keys, np.array([0, 1, 2, 2, 0])) == pytest.approx(1 / 3)
    assert quality.split_share(keys, np.array([1, 1, 0, 0, 1])) == 0.0
    assert quality.split_share(np.zeros(0, np.uint64), np.zeros(0, np.int32)) == 0.0


def evened(name: str, keys: NDArray[np.uint64], out: NDArray[np.int32], n: int) -> float:
    """Largest over mean of what the router evens: keys for AM and CM, rows for cAM and LM."""
    if name in {"am", "cm"}:
        return quality.load_imbalance(quality.cardinalities(keys, out, n))
    return quality.imbalance(out, n)


@lru_cache(maxsize=32)
def window_of(exponent: float, seed: int) -> NDArray[np.uint64]:
    """60,000 rows of 100,000 keys."""
    return stream(60_000, 100_000, exponent, seed)


def excess(name: str, n: int, choices: int, exponent: float, seeds: int) -> tuple[list[float], float]:
    """How much worse HyperLogLog is than exact sets in a window of 60,000 rows of 100,000 keys, per seed; and the
    largest share of keys that it splits."""
    worse, split = [], []
    for seed in range(seeds):
        keys = window_of(exponent, seed)
        exact = make_router(name, n, seed, window=60_000, choices=choices).route(keys)
        hll = make_router(name, n, seed, window=60_000, choices=choices, cardinality="hll").route(keys)
        worse.append(evened(name, keys, hll, n) / evened(name, keys, exact, n) - 1.0)
        split.append(quality.split_share(keys, hll))
    return worse, max(split)


SMALL = [(name, n, exponent) for name in ("am", "cam", "cm", "lm") for n in (8, 64) for exponent in (0.0, 1.5)]
FULL = [(name, n, exponent) for name in ("am", "cam", "cm", "lm") for n in (8, 16, 64) for exponent in (0, 0.5, 1, 1.5)]


@pytest.mark.parametrize(("name", "n", "exponent"), SMALL)
def test_hll_is_at_most_5_percent_less_even(name: str, n: int, exponent: float) -> None:
    """In keys where the router evens keys, in rows where it evens rows; the median of 3 draws. AM and cAM split few."""
    for choices in (2, 5):
        worse, split = excess(name, n, choices, exponent, 3)
        assert float(np.median(worse)) <= 0.05
        assert split <= 0.05 or name in {"cm", "lm"}


@pytest.mark.long
@pytest.mark.parametrize(("name", "n", "exponent"), FULL)
def test_hll_is_at_most_5_percent_less_even_full_dose(name: str, n: int, exponent: float) -> None:
    """The median of 20 draws; of cAM each draw, since rows are counted exactly."""
    for choices in (2, 5):
        worse, split = excess(name, n, choices, exponent, 20)
        assert float(np.median(worse)) <= 0.05
        assert split <= 0.06 or name in {"cm", "lm"}
        assert name != "cam" or max(worse) <= 0.05


@pytest.mark.parametrize("name", HOLISTIC)
def test_hll_memory_is_constant(name: str) -> None:
    """n x 4096 bytes and three numbers a worker, whatever comes; the exact table grows with the keys of a window."""
    keys = key_hashes(100_000)
    for n in (8, 32):
        hll, exact = (make_router(name, n, cardinality=kind) for kind in ("hll", "exact"))
        few = make_router(name, n, cardinality="hll", register_bits=10)
        before, small = memory(hll), memory(exact)
        hll.route(keys)
        exact.route(keys)
        assert memory(hll) == before
        assert memory(exact) > 50 * small
        assert memory(hll) - memory(few) == n * (4096 - 1024)
        assert n * (1024 + 24) <= memory(few) < n * (1024 + 24) + 256


def test_the_running_cardinality_is_close_to_the_truth() -> None:
    """Without splitting by chance (one worker) the estimate is within 3 standard errors, at each size."""
    for rows in (100, 4_096, 50_000):
        router = make_router("am", 1, cardinality="hll")
        router.route(key_hashes(rows))
        estimate = float(router.algorithm._memory.estimate[0])
        assert abs(estimate / rows - 1.0) < 3 * 0.83 / np.sqrt(4096)


@pytest.mark.parametrize("name", HOLISTIC)
def test_hll_forgets_with_the_window(name: str) -> None:
    """The second window is routed as the first one was."""
    keys = stream(4_000, 3_000, 0.8)
    out = make_router(name, 8, window=4_000, cardinality="hll").route(np.concatenate([keys, keys]))
    assert np.array_equal(out[:4_000], out[4_000:])


@pytest.mark.parametrize("cardinality", ["exact", "hll"])
@pytest.mark.parametrize("name", HOLISTIC)
def test_times_before_the_epoch_are_times(name: str, cardinality: str) -> None:
    """Windows with negative numbers are windows like any other."""
    keys, times = stream(600), np.arange(600) * 0.01
    before = make_router(name, 8, window=1.0, cardinality=cardinality).route(keys, times - 3.0)
    assert np.array_equal(before, make_router(name, 8, window=1.0, cardinality=cardinality).route(keys, times))


@pytest.mark.parametrize("name", HOLISTIC)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_batches_make_no_difference_with_hll(name: str, data: st.DataObject) -> None:
    """A stream fed whole or in random pieces takes the same routes, whatever the window and the registers."""
    n, seed, window = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 5)), data.draw(windows())
    extra = {
        "cardinality": "hll",
        "register_bits": data.draw(st.integers(4, 8)),
        "choices": data.draw(st.integers(1, 6)),
    }
    keys = stream(300, seed=seed)
    whole = make_router(name, n, seed, **window, **extra).route(keys)
    cuts = sorted(data.draw(st.lists(st.integers(0, 300), max_size=8)))
    pieces = make_router(name, n, seed, **window, **extra)
    parts = [pieces.route(keys[a:b]) for a, b in zip([0, *cuts], [*cuts, 300], strict=True)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.min() >= 0
    assert whole.max() < n


SCRIPT = """
import hashlib, warnings
warnings.simplefilter("error")
import numpy as np
from unskew.core.routers import make_router
rng = np.random.default_rng(5)
keys = rng.integers(0, 2**64, 900, dtype=np.uint64)[np.minimum(rng.zipf(1.3, 1500), 900) - 1]
for name in ("am", "cam", "cm", "lm"):
    digest = hashlib.sha256()
    for n, extra in (
        (1, {}), (3, {"window": 500, "slide": 70}), (16, {"choices": 5}), (64, {"register_bits": 6}),
    ):
        digest.update(make_router(name, n, seed=n, cardinality="hll", **extra).route(keys).tobytes())
    print(name, digest.hexdigest())
for name in ("am", "cam", "lm"):
    print(hashlib.sha256(make_router(name, 8, cardinality="hll", as_published=True).route(keys).tobytes()).hexdigest())
for name in ("am", "cam", "cm", "lm"):
    print(hashlib.sha256(make_router(name, 70, choices=5, window=700).route(keys).tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed here: there is nothing to compare with")
def test_hll_routes_the_same_compiled_and_plain() -> None:
    """A process without compilation gives the digests of one with it, five choices and the listings included."""
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout
        for disabled in ("1", "0")
    ]
    assert len(digests[0].splitlines()) == 11
    assert digests[0] == digests[1]


@pytest.mark.parametrize("name", HOLISTIC)
def test_bad_kinds_of_cardinality_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="cardinality: 'both' is not allowed; use one of exact, hll"):
        make_router(name, 4, cardinality="both")
    for bits in (3, 19):
        with pytest.raises(ConfigError, match="register_bits"):
            make_router(name, 4, cardinality="hll", register_bits=bits)

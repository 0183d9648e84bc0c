"""The laws that every registered router obeys. Registering a router is all it takes to be checked here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import defaults_of, key_hashes
from unskew.core import quality
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.routers import ROUTERS, make_router

every_router = pytest.mark.parametrize("name", sorted(ROUTERS))


def stream(rows: int, keys: int = 200, exponent: float = 1.0, seed: int = 1) -> np.ndarray:
    """A Zipf stream of key hashes."""
    share = 1.0 / np.arange(1, keys + 1) ** exponent
    rng = np.random.default_rng(seed)
    return key_hashes(keys, seed)[rng.choice(keys, rows, p=share / share.sum())]


@st.composite
def windows(draw: st.DrawFn) -> dict[str, object]:
    window = draw(st.none() | st.integers(1, 400))
    if window is None:
        return {}
    return {"window": window, "slide": draw(st.none() | st.integers(1, window))}


@every_router
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_batches_make_no_difference(name: str, data: st.DataObject) -> None:
    """A stream fed whole, tuple by tuple, or in random pieces takes the same routes, whatever the window."""
    n, seed, window = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 5)), data.draw(windows())
    keys = stream(300, seed=seed)
    whole = make_router(name, n, seed, **window).route(keys)
    one_by_one = make_router(name, n, seed, **window)
    assert [int(one_by_one.route(keys[i : i + 1])[0]) for i in range(len(keys))] == whole.tolist()
    cuts = sorted(data.draw(st.lists(st.integers(0, 300), max_size=8)))
    pieces = make_router(name, n, seed, **window)
    parts = [pieces.route(keys[a:b]) for a, b in zip([0, *cuts], [*cuts, 300], strict=True)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.dtype == np.int32
    assert whole.min() >= 0
    assert whole.max() < n


@every_router
def test_time_windows_equal_count_windows_where_time_counts_tuples(name: str) -> None:
    """One tuple a second: 60 seconds are 60 tuples."""
    keys = stream(1_000)
    counted = make_router(name, 8, window=60, slide=7).route(keys)
    timed = make_router(name, 8, window=60.0, slide=7.0).route(keys, np.arange(1_000))
    assert np.array_equal(counted, timed)


@every_router
def test_a_long_silence_empties_the_window(name: str) -> None:
    """After a gap of many windows loads start from nothing, and routing goes on."""
    keys = stream(400)
    times = np.concatenate([np.arange(200) * 0.01, 1e6 + np.arange(200) * 0.01])
    out = make_router(name, 4, window=1.0, slide=0.1).route(keys, times)
    assert set(out.tolist()) <= {0, 1, 2, 3}


@every_router
def test_keys_stay_whole_where_the_router_says_so(name: str) -> None:
    keys = stream(5_000)
    split = quality.replication(keys, make_router(name, 8, window=500, slide=50).route(keys)) > 1.0
    assert split == ROUTERS[name].splits


@every_router
def test_seeds_are_parameters(name: str) -> None:
    """Same seed, same routes; another seed, other routes wherever there is chance (``hash``, ``dagreedy``: none)."""
    keys = stream(2_000)
    assert np.array_equal(make_router(name, 8, seed=3).route(keys), make_router(name, 8, seed=3).route(keys))
    same = np.array_equal(make_router(name, 8, seed=3).route(keys), make_router(name, 8, seed=4).route(keys))
    assert same == (name in {"hash", "dagreedy"})


@every_router
def test_nothing_to_route(name: str) -> None:
    router = make_router(name, 8, window=10)
    assert router.route(np.zeros(0, np.uint64)).tolist() == []
    assert len(router.route(stream(5))) == 5


@every_router
def test_bad_settings_are_refused_by_name(name: str) -> None:
    """Each wrong setting is one clear error that names it."""
    for bad, message in [
        ({"workers": 0}, "workers"),
        ({"workers": 2.5}, "workers"),
        ({"workers": 4, "seed": "x"}, "seed"),
        ({"workers": 4, "window": 0}, "window"),
        ({"workers": 4, "window": float("nan")}, "window"),
        ({"workers": 4, "window": 10, "slide": 20}, "slide"),
        ({"workers": 4, "slide": 20}, "slide"),
        ({"workers": 4, "window": 1e9, "slide": 1}, "slide"),
        ({"workers": 4, "nonsense": 1}, "nonsense"),
    ]:
        with pytest.raises(ConfigError, match=message):
            make_router(name, **bad)  # type: ignore[arg-type]
    for parameter in defaults_of(ROUTERS[name].algorithm):
        for value in (["x"], -1, 10**9):
            with pytest.raises(ConfigError, match=parameter):
                make_router(name, 4, **{parameter: value})


@every_router
def test_bad_streams_are_refused_and_change_nothing(name: str) -> None:
    """Wrong dtype, falling or missing times: an error, and the router goes on as if they had never come."""
    keys = stream(100)
    router = make_router(name, 4, window=10)
    first = router.route(keys[:50], np.arange(50.0))
    for bad_keys, times in [
        (keys.astype(np.int64), np.arange(100.0)),
        (keys, np.arange(100.0)[::-1]),
        (keys, np.arange(100.0)),
        (keys, np.arange(99.0) + 100),
        (keys, np.full(100, np.nan)),
        (keys, None),
    ]:
        with pytest.raises(UnskewError):
            router.route(bad_keys, times)
    rest = router.route(keys[50:], np.arange(50.0, 100.0))
    undisturbed = make_router(name, 4, window=10).route(keys, np.arange(100.0))
    assert np.array_equal(np.concatenate([first, rest]), undisturbed)


def test_an_unknown_router_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="router: 'magic' is not allowed; use one of hash, shuffle"):
        make_router("magic", 4)

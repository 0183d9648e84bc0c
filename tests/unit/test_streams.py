"""The synthetic streams follow their law, follow their seed, and drift when told to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.errors import ConfigError
from unskew.simulate.key_streams import drifting, zipf_keys, zipf_probabilities

SIZES = st.tuples(st.integers(0, 400), st.integers(1, 60), st.floats(0, 4))


def rng(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_shares_follow_the_power_law() -> None:
    """Rank r has r ** -z times the share of rank 1, and the shares add up to one."""
    share = zipf_probabilities(1000, 1.5)
    assert share.sum() == pytest.approx(1.0)
    assert share[9] / share[0] == pytest.approx(10**-1.5)
    assert (np.diff(share) < 0).all()


def test_exponent_zero_is_uniform() -> None:
    """No skew at all: every key has the same share."""
    assert zipf_probabilities(4, 0.0).tolist() == [0.25] * 4


def test_drawn_frequencies_come_near_the_shares() -> None:
    """Each of the heaviest keys is within five standard deviations of its expected count."""
    rows, share = 200_000, zipf_probabilities(500, 1.0)
    counts = np.bincount(zipf_keys(rng(), rows, 500, 1.0), minlength=500)
    deviation = np.sqrt(rows * share * (1 - share))
    assert (np.abs(counts - rows * share) < 5 * deviation).all()


def test_rows_come_in_no_order() -> None:
    """The counts are shuffled: the heaviest key has its share in the first half and in the second."""
    keys = zipf_keys(rng(), 100_000, 500, 1.0)
    first, second = (keys[:50_000] == 0).sum(), (keys[50_000:] == 0).sum()
    assert abs(int(first) - int(second)) < 5 * np.sqrt(first + second)


@given(SIZES, st.integers(0, 2**32))
def test_a_stream_is_a_function_of_its_seed(size: tuple[int, int, float], seed: int) -> None:
    """Any size gives that many rows, all keys in range, the same ones for the same seed."""
    rows, keys, exponent = size
    out = zipf_keys(rng(seed), rows, keys, exponent)
    assert (out.dtype, len(out)) == (np.int64, rows)
    assert ((out >= 0) & (out < keys)).all()
    assert out.tolist() == zipf_keys(rng(seed), rows, keys, exponent).tolist()


@given(SIZES, st.integers(1, 100), st.integers(0, 30))
def test_drift_only_renames_keys(size: tuple[int, int, float], change_every: int, hot: int) -> None:
    """Within a span drifting is a one-to-one renaming of the plain stream: loads are the same, keys are not."""
    rows, keys, exponent = size
    hot = min(hot, keys // 2)
    plain = zipf_keys(rng(), rows, keys, exponent)
    drifted = drifting(rng(), rows, keys, exponent, change_every, hot)
    assert drifted[:change_every].tolist() == plain[:change_every].tolist()
    for start in range(0, rows, change_every):
        was, now = plain[start : start + change_every], drifted[start : start + change_every]
        pairs = set(zip(was.tolist(), now.tolist(), strict=True))
        assert len(pairs) == len(set(was.tolist())) == len(set(now.tolist()))


def test_each_change_replaces_the_whole_hot_set() -> None:
    """The three heaviest keys of a span are none of the three heaviest of the span before."""
    spans = drifting(rng(), 400_000, 1000, 1.5, change_every=100_000, hot=3).reshape(4, -1)
    hot = [set(np.argsort(-np.bincount(span, minlength=1000))[:3].tolist()) for span in spans]
    assert all(not a & b for a, b in pairwise(hot))
    assert hot[0] == {0, 1, 2}


def test_without_a_hot_set_nothing_drifts() -> None:
    """hot=0 is the plain stream."""
    assert drifting(rng(), 500, 50, 1.0, 100, 0).tolist() == zipf_keys(rng(), 500, 50, 1.0).tolist()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("keys", lambda: zipf_probabilities(0, 1.0)),
        ("exponent", lambda: zipf_probabilities(5, -0.1)),
        ("exponent", lambda: zipf_probabilities(5, float("nan"))),
        ("rows", lambda: zipf_keys(rng(), -1, 5, 1.0)),
        ("change_every", lambda: drifting(rng(), 10, 5, 1.0, 0, 1)),
        ("hot", lambda: drifting(rng(), 10, 5, 1.0, 5, 3)),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, call) -> None:  # type: ignore[no-untyped-def]
    """Each setting that cannot be a stream raises ConfigError with the parameter's name."""
    with pytest.raises(ConfigError) as error:
        call()
    assert error.value.parameter == name

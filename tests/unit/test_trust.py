"""How far plans of the batches before are trusted: a passive machine, its steps worked out by hand."""

from __future__ import annotations

import pytest

from unskew.core.errors import ConfigError
from unskew.core.freshness.trust import BatchImbalance, Trust, TrustRules

RULES = TrustRules(misses=3, tolerance=0.25)
RIGHT = BatchImbalance(predicted=1.1, observed=1.2, by_hash=4.0, other_predicted=1.1, other=1.2)
MISSED = BatchImbalance(predicted=1.1, observed=4.0, by_hash=4.0, other_predicted=1.1, other=4.0)


def after(trust: Trust, *seen: BatchImbalance, rules: TrustRules = RULES) -> tuple[Trust, list[str]]:
    said = []
    for one in seen:
        trust, told = trust.after(one, rules)
        said += [told] if told is not None else []
    return trust, said


def test_misses_in_a_row_lead_to_counting_first_and_then_to_hash() -> None:
    """Two are forgiven; the third changes the mode and says so, with the figures."""
    trust, said = after(Trust(), MISSED, MISSED)
    assert (trust.mode, trust.missed, said) == ("previous", 2, [])
    trust, said = after(trust, MISSED)
    assert (trust.mode, trust.missed) == ("same", 0)
    assert "3 batches in a row missed (predicted imbalance 1.10, observed 4.00, by hash 4.00)" in said[0]
    trust, said = after(trust, MISSED, MISSED, MISSED)
    assert (trust.mode, trust.missed) == ("hash", 0)
    assert "by plain hash for now" in said[0]
    trust, said = after(trust, *[MISSED] * 9)
    assert (trust.mode, said) == ("hash", [])


def test_a_batch_that_was_right_begins_the_count_anew() -> None:
    trust, said = after(Trust(), MISSED, MISSED, RIGHT, MISSED, MISSED)
    assert (trust.mode, trust.missed, said) == ("previous", 2, [])


@pytest.mark.parametrize("mode", ["same", "hash"])
def test_the_way_back(mode: str) -> None:
    """Whatever places the batches: when the plan from those before would have been right three times, it is used."""
    down = Trust("same") if mode == "same" else Trust("hash")
    trust, said = after(down, RIGHT, RIGHT)
    assert (trust.mode, trust.right, said) == (mode, 2, [])
    trust, said = after(trust, RIGHT)
    assert (trust.mode, trust.missed, trust.right) == ("previous", 0, 0)
    assert said == ["plans from the batches before would have been right for 3 batches: used again"]


def test_what_hash_would_not_do_better_is_no_miss() -> None:
    """Less good than predicted and still far better than hash: the plan stays."""
    poor = BatchImbalance(predicted=1.1, observed=1.9, by_hash=4.0, other_predicted=1.1, other=1.9)
    trust, said = after(Trust(), *[poor] * 5)
    assert (trust.mode, trust.missed, said) == ("previous", 0, [])


def test_scatter_is_no_miss() -> None:
    """What drawing so few rows does by itself is allowed for; more is not."""
    seen = {"predicted": 1.0, "by_hash": 1.0, "other_predicted": 1.0, "other": 1.0, "noise": 0.5}
    assert after(Trust(), *[BatchImbalance(observed=1.8, **seen)] * 3)[0].mode == "previous"
    assert after(Trust(), *[BatchImbalance(observed=1.9, **seen)] * 3)[0].mode == "same"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"misses": 0}, "misses: 0 is not allowed"),
        ({"misses": True}, "misses: True"),
        ({"misses": 1.5}, "misses: 1.5"),
        ({"tolerance": 0.0}, "tolerance: 0.0"),
        ({"tolerance": 11.0}, "tolerance: 11.0"),
    ],
)
def test_rules_are_checked(settings: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TrustRules(**settings)  # type: ignore[arg-type]

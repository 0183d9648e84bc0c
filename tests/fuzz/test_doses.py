"""A run is 10,000 cases and more."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.doses import DOSES


def test_a_run_has_ten_thousand_cases_and_every_dose_is_held_by_a_test() -> None:
    """The sum of what the tests count, and no number in it that nobody counts."""
    assert sum(DOSES.values()) >= 10_000
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for kind in DOSES:
        assert tests.count(f'judge.answered >= DOSES["{kind}"]') == 1, f"no test counts the cases of {kind!r}"

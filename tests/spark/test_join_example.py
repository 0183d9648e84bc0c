"""``examples/skewed_join.py`` as a reader runs it: in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "skewed_join.py"


def test_the_example_shows_even_partitions_and_the_same_rows() -> None:
    """One partition far over the mean before, none after."""
    ran = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    before, after = (float(times) for times in re.findall(r"fullest partition has (\S+) times", ran.stdout))
    assert before > 2
    assert after < 1.1
    assert "the same rows: True" in ran.stdout

"""``examples/live_stream.py`` against a service of its own: what a newcomer runs first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.command import environment
from unskew.client import testing

EXAMPLE = Path(__file__).parents[2] / "examples" / "live_stream.py"


def test_plans_follow_the_hot_keys_and_agents_learn_beside_them() -> None:
    """The first batch goes by hash, the second evenly; when other keys are hot, one batch pays for it."""
    with testing.embedded() as service, service.client() as client:
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLE), "23", service.target, "0.15"],
            capture_output=True,
            text=True,
            timeout=300,
            env=environment(),
        )
        streams = {info.name: info for info in client.list_streams()}
        scale = client.get_scale("clicks")
    assert (ran.returncode, ran.stderr) == (0, "")
    told = re.findall(r"^batch +(\d+)  (hash|plan \d+) +imbalance ([\d.]+)$", ran.stdout, re.MULTILINE)
    imbalance = [float(ratio) for _, _, ratio in told]
    assert [by for _, by, _ in told[:3]] == ["hash", "plan 1", "plan 2"]
    assert imbalance[0] > 3.0
    assert imbalance[20] > 2.0
    assert max(imbalance[2:20]) < 1.2
    assert imbalance[22] < imbalance[20] / 2
    assert streams["clicks"].version is not None
    assert streams["clicks-learned"].epoch > 0
    assert scale.zone in (1, 2, 3)

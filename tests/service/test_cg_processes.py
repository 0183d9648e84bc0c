"""Consistent grouping for real: processes, a service, throttled CPUs. How it is measured: benchmarks/cg_processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RIVALS = ("KG", "PKG", "SG")
STARVED = 0.05  # of the workers' slots


def outcomes(*arguments: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Each scheme's run. Where others on the machine took the workers' CPU nothing was measured: then once more, and
    then what comes counts."""
    for _ in range(2):
        found = measured(*arguments, seconds=seconds)
        if max(one["starved"] for one in found.values()) <= STARVED:
            return found
    return measured(*arguments, seconds=seconds)


def measured(*arguments: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Its processes end with it, however it ends."""
    command = [sys.executable, "-m", "benchmarks.cg_processes", "--json", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return {one["scheme"]: one for one in json.loads(out)}


def check_settled(ours: dict[str, Any]) -> None:
    """Every report and plan went through, and the workers are evenly used again, within 20 slots."""
    assert ours["problems"] == []
    assert ours["settled"] is not None, ours["spread"]
    assert ours["settled"] <= 20, ours["spread"]


def check_beats(ours: dict[str, Any], theirs: dict[str, Any], shorter: float) -> None:
    """More rows finished, and the slowest of them much sooner."""
    assert ours["after"]["throughput"] > 1.03 * theirs["after"]["throughput"], theirs
    assert shorter * ours["after"]["p99"] < theirs["after"]["p99"], theirs


@pytest.mark.long
def test_throttled_workers_are_given_less() -> None:
    """Two of eight workers lose 70 % of their CPU: what they signal reaches the sources as plans, within slots. How
    well they settle is for the tests below."""
    short = ("--slot", "0.5", "--cost", "5e-5", "--before", "3", "--after", "16", "--grace", "8")
    ours = measured(*short, "--schemes", "CG", seconds=60.0)["CG"]
    assert ours["problems"] == []
    assert ours["plans"] > 3
    assert statistics.median(ours["weak"][-6:]) < 0.6


@pytest.mark.long
def test_cg_beats_the_others_on_throttled_workers() -> None:
    """CG's Figure 14, at 80 % load: only CG finishes what comes."""
    found = outcomes(seconds=400.0)
    check_settled(found["CG"])
    assert found["CG"]["after"]["throughput"] > 0.97 * found["CG"]["before"]["throughput"]
    for name in RIVALS:
        check_beats(found["CG"], found[name], shorter=10.0)


@pytest.mark.long
def test_cg_beats_the_others_at_saturation() -> None:
    """The same with 2,000 rows under way at a time, as the paper's Storm cluster was driven: up to 2x and 3.44x."""
    found = outcomes("--window", "2000", "--before", "6", "--after", "22", "--grace", "12", seconds=300.0)
    for name in RIVALS:
        assert found["CG"]["after"]["throughput"] > 1.8 * found[name]["after"]["throughput"], found[name]
        assert 1.5 * found["CG"]["after"]["p99"] < found[name]["after"]["p99"], found[name]


@pytest.mark.long
def test_without_quotas_of_the_kernel_cg_settles_as_well() -> None:
    """Processes stopped and continued, as cpulimit does: what is measured elsewhere."""
    found = outcomes("--governor", "--before", "4", "--after", "24", "--grace", "12", "--schemes", "CG", seconds=120.0)
    assert found["CG"]["limit"] == "stopped and continued"
    check_settled(found["CG"])

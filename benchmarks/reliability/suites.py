"""Figures that suites and commands of others already take: run them, and count."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.reliability.taken import Dose, Taken

__all__ = ["command", "count", "passed"]

ROOT = Path(__file__).resolve().parents[2]


def passed(dose: Dose, name: str, paths: Sequence[str], *options: str) -> tuple[int, list[str]]:
    """How many of these tests there were, and the names of those that failed."""
    report = dose.folder / f"{name}.xml"
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options, *paths]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    if not report.exists():
        raise RuntimeError(f"pytest ended with {done.returncode} before any test: {done.stdout[-2000:]}{done.stderr}")
    cases = [one for one in ElementTree.parse(report).iter("testcase") if one.find("skipped") is None]
    bad = [str(one.get("name")) for one in cases if one.find("failure") is not None or one.find("error") is not None]
    return len(cases), bad


def count(what: str, paths: Sequence[str], *options: str) -> Callable[[Dose], Taken]:
    """A figure that is the number of tests that fail, of so many."""

    def take(dose: Dose) -> Taken:
        tests, bad = passed(dose, "suite", paths, *options)
        more = f": {', '.join(bad[:5])}" if bad else ""
        return Taken(f"{len(bad)} of {tests:,} {what}{more}", tests > 0 and not bad, {"tests": tests, "failed": bad})

    return take


def command(module: str, *words: str) -> Callable[[Dose], Taken]:
    """A figure that a module of its own takes: ``python -m <module> --json FILE`` writes what a ``Taken`` has."""

    def take(dose: Dose) -> Taken:
        file = dose.folder / f"{module}.json"
        line = [sys.executable, "-m", module, *words, *(["--quick"] if dose.quick else []), "--json", str(file)]
        subprocess.run(line, cwd=ROOT, check=True)
        found = json.loads(file.read_text("utf-8"))
        return Taken(found["said"], found["met"], found.get("values", {}))

    return take

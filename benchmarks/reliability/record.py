"""What was measured, as a file; and the table of docs/reliability.md, made from it.

A run replaces the figures that it took and keeps the others, so that the dear ones can be taken one at a time. Each has
its own date, commit and machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reliability.taken import Dose, Figure, Taken

__all__ = ["FILE", "PAGE", "entry", "missed", "read", "table", "with_table", "write"]

ROOT = Path(__file__).resolve().parents[2]
FILE, PAGE = ROOT / "docs" / "reliability.json", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- made by `python -m benchmarks.reliability --page`: begin -->", "<!-- end -->"
Entries = Mapping[int, Mapping[str, Any]]


def entry(figure: Figure, taken: Taken, dose: Dose, seconds: float) -> dict[str, Any]:
    """A figure as the file has it."""
    command = f"python -m benchmarks.reliability --figures {figure.number}" + (" --quick" if dose.quick else "")
    if figure.number == 13:
        command += f" --soak {dose.soak:.0f}"
    if figure.number == 9 and not dose.quick:
        command += f" --inputs {dose.inputs}"
    return {
        "number": figure.number,
        "figure": figure.what,
        "mark": figure.mark,
        "measured": taken.said,
        "met": taken.met,
        "seconds": round(seconds),
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
        "values": dict(taken.values),
    }


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return found.stdout.strip()


def read(file: Path = FILE) -> dict[int, Mapping[str, Any]]:
    """By number; empty where there is no file yet."""
    if not file.exists():
        return {}
    return {one["number"]: one for one in json.loads(file.read_text("utf-8"))}


def write(entries: Entries, file: Path) -> None:
    file.write_text(json.dumps([entries[number] for number in sorted(entries)], indent=1) + "\n", "utf-8")


_VERDICTS = {True: "met", False: "**missed**", None: "not measured"}
_FULL = {"--soak": 3600.0, "--inputs": 1_000_000.0}
_GIVEN = re.compile(r"(--soak|--inputs) (\d+)")


def _verdict(one: Mapping[str, Any]) -> str:
    command = str(one["command"])
    small = "--quick" in command or any(float(much) < _FULL[name] for name, much in _GIVEN.findall(command))
    return _VERDICTS[one["met"]] + (", in a small dose" if small and one["met"] is not None else "")


def table(entries: Entries) -> str:
    """As the page has it."""
    rows = [
        f"| {one['number']} | {one['figure']} | {one['mark']} | {one['measured']} | {_verdict(one)} "
        f"| {one['seconds']} | {one['date']}, {one['commit']}, load {one['load']} |"
        for one in (entries[number] for number in sorted(entries))
    ]
    head = ["| # | figure | mark | measured | | seconds | when, commit, load |", "|---|---|---|---|---|---|---|"]
    machines = sorted({one["machine"] for one in entries.values()})
    return "\n".join(
        [*head, *rows, "", f"Machine: {'; '.join(machines)}, shared with other work.", "", missed(entries)]
    )


def missed(entries: Entries) -> str:
    """One sentence that names what is missed and what was not measured."""
    late = [str(number) for number, one in sorted(entries.items()) if one["met"] is False]
    absent = [str(number) for number in range(1, 16) if number not in entries or entries[number]["met"] is None]
    said = f"Missed: figures {', '.join(late)}." if late else "None of the figures that were measured is missed."
    return said + (f" Not measured: figures {', '.join(absent)}." if absent else "")


def with_table(page: str, entries: Entries) -> str:
    """The page with the table of these entries in it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(entries)}\n\n{END}{after}"

"""Compare what two checkouts of this project compute: plans, routings, merges, hashes and bytes, bit for bit.

    python tools/compare_checkouts.py BASE OTHER [--part plans routers ...]

In each checkout its own interpreter (``.venv/bin/python``, or ``--base-python`` and ``--other-python``) runs
``checkouts/probe.py`` of this tool, which works with public names and, for the rest, with the table of
``checkouts/names.py``: extend that where a class got another name. Printed are the differences and the counts by part;
the exit code is 0 where all is equal, 1 where anything differs, is missing or could not be computed, 2 where a probe
did not run.

Plans are compared twice: with their reasons ("bytes with reasons"), which are text for people, and without ("bytes").
Kernels are compiled anew for each run, because numba does not see an edit in a file that a kernel inlines from. Nothing
is written into the checkouts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

PROBE = Path(__file__).resolve().parent / "checkouts" / "probe.py"
PARTS = ("keys", "histograms", "plans", "routers", "dalton", "kept", "operators", "cli", "service")
FAILED = "failed:"


def start(checkout: Path, python: Path, out: Path, parts: list[str]) -> subprocess.Popen[str]:
    """The probe, at work in this checkout."""
    if not python.exists():
        print(f"{checkout}: there is no {python}; run make venv there, or give --base-python or --other-python")
        raise SystemExit(2)
    away = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in away}
    environment |= {"NUMBA_CACHE_DIR": str(out.with_suffix(".kernels")), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), str(PROBE), str(out), *parts]
    return subprocess.Popen(command, cwd=checkout, env=environment, text=True)


def results(process: subprocess.Popen[str], checkout: Path, out: Path) -> dict[str, str]:
    if process.wait() or not out.exists():
        print(f"{checkout}: the probe ended with {process.returncode}, see above")
        raise SystemExit(2)
    found: dict[str, str] = json.loads(out.read_text("utf-8"))
    package = found.pop("")
    if not Path(package).is_relative_to(checkout):
        print(f"{checkout}: its interpreter imports unskew from {package}, which is another checkout")
        raise SystemExit(2)
    return found


def differences(base: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """What is wrong with each name, those that are right left out."""
    wrong = {}
    for name in dict.fromkeys((*base, *other)):
        ours, theirs = base.get(name, "went through"), other.get(name, "went through")
        if FAILED in ours + theirs:
            wrong[name] = f"BASE {ours:.300}; OTHER {theirs:.300}"
        elif name not in other or name not in base:
            wrong[name] = "only in " + ("BASE" if name in base else "OTHER")
        elif base[name] != other[name]:
            wrong[name] = f"differs: BASE {base[name][:12]}, OTHER {other[name][:12]}"
    return dict(sorted(wrong.items(), key=lambda each: FAILED not in each[1]))


def show(base: dict[str, str], other: dict[str, str], wrong: dict[str, str], most: int) -> None:
    for part in PARTS:
        names = [name for name in wrong if name.startswith(f"{part}: ")]
        for name in names[:most]:
            print(f"  {name}\n      {wrong[name]}")
        if len(names) > most:
            print(f"  ... and {len(names) - most} more of {part}")
    all_of = Counter(name.partition(":")[0] for name in {*base, *other})
    bad = Counter(name.partition(":")[0] for name in wrong)
    print(f"{'part':12} {'compared':>9} {'not equal':>9}")
    for part in filter(all_of.get, PARTS):
        print(f"{part:12} {all_of[part]:>9,} {bad[part]:>9,}")
    print(f"{'all':12} {all_of.total():>9,} {bad.total():>9,}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("base", type=Path)
    options.add_argument("other", type=Path)
    options.add_argument("--base-python", type=Path, help="interpreter of BASE; BASE/.venv/bin/python when left out")
    options.add_argument("--other-python", type=Path, help="interpreter of OTHER; OTHER/.venv/bin/python when left out")
    options.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    options.add_argument("--most", type=int, default=20, help="differences to print for each part (20)")
    given = options.parse_args()
    checkouts = [given.base.resolve(), given.other.resolve()]
    pythons = [given.base_python, given.other_python]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / "base.json", Path(folder) / "other.json"]
        started = [
            start(checkout, python or checkout / ".venv/bin/python", out, given.part)
            for checkout, python, out in zip(checkouts, pythons, outs, strict=True)
        ]
        try:
            base, other = (results(*each) for each in zip(started, checkouts, outs, strict=True))
        finally:
            for process in started:
                process.kill()
    wrong = differences(base, other)
    show(base, other, wrong, given.most)
    print(f"{'NOT EQUAL' if wrong else 'equal'}: {checkouts[0]} and {checkouts[1]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

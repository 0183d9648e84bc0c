"""Write constraints.txt: the exact version of everything that `.[dev]` pulls in, for each supported Python.

    python tools/constraints.py python3.10 python3.11 python3.12 python3.13

Each interpreter is asked by `pip install --dry-run` what it would install, because only the interpreter that
a marker such as `python_version < "3.11"` speaks of decides it rightly. Where they agree a package gets one
line, else one line for each run of neighbours. The file holds no address and no local path.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Exact versions of everything that `.[dev]` pulls in. Made by `make constraints`; do not edit by hand.
# Resolved for Python {pythons}.
"""
Version = tuple[int, int]


def resolve(python: str) -> tuple[Version, dict[str, str]]:
    """What this interpreter would install for `.[dev]`, as its own version and {name: version}."""
    asked = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    major, minor = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), f"{ROOT}[dev]"], check=True, cwd=folder)
        found = json.loads(report.read_text())["install"]
    names = {item["metadata"]["name"]: item["metadata"]["version"] for item in found}
    return (int(major), int(minor)), {canonical(n): v for n, v in names.items() if n != "unskew"}


def canonical(name: str) -> str:
    """The name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(resolved: dict[Version, dict[str, str]]) -> list[str]:
    """The lines of the file: a bare pin where all agree, else a pin with a marker for each run."""
    out = []
    for name in sorted({name for packages in resolved.values() for name in packages}):
        pins = {python: packages[name] for python, packages in sorted(resolved.items()) if name in packages}
        if len(set(pins.values())) == 1:
            out.append(f"{name}=={next(iter(pins.values()))}")
        else:
            out.extend(f"{name}=={version} ; {marker}" for version, marker in _runs(pins))
    return out


def _runs(pins: dict[Version, str]) -> list[tuple[str, str]]:
    """Neighbours with the same version share a marker; the first and last run are open-ended."""
    runs: list[tuple[str, list[Version]]] = []
    for python, version in pins.items():
        if runs and runs[-1][0] == version:
            runs[-1][1].append(python)
        else:
            runs.append((version, [python]))
    out = []
    for place, (version, _) in enumerate(runs):
        bounds = []
        if place > 0:
            bounds.append(f'python_version >= "{_dotted(runs[place][1][0])}"')
        if place < len(runs) - 1:
            bounds.append(f'python_version < "{_dotted(runs[place + 1][1][0])}"')
        out.append((version, " and ".join(bounds)))
    return out


def _dotted(python: Version) -> str:
    return f"{python[0]}.{python[1]}"


def main(pythons: list[str]) -> int:
    if not pythons:
        print("usage: python tools/constraints.py PYTHON [PYTHON ...]", file=sys.stderr)
        return 2
    resolved = dict(resolve(python) for python in pythons)
    header = HEADER.format(pythons=", ".join(_dotted(python) for python in sorted(resolved)))
    target = ROOT / "constraints.txt"
    target.write_text(header + "\n".join(lines(resolved)) + "\n")
    print(header + f"{target.name}: {len(lines(resolved))} pins")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

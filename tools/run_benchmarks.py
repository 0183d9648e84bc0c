"""Run every benchmarks/*.py that has a `main()`, one after another, each in its own process.

One at a time, because two on one machine would measure each other. Arguments pick some of them by name:
`python tools/run_benchmarks.py hashing routers`. Fails if any of them fails, after having run the rest.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def has_main(file: Path) -> bool:
    """Whether the module defines a `main` function at top level (read, not imported)."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in body)


def main(wanted: list[str]) -> int:
    files = [file for file in sorted((ROOT / "benchmarks").glob("*.py")) if has_main(file)]
    unknown = set(wanted) - {file.stem for file in files}
    if unknown:
        names = ", ".join(file.stem for file in files)
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {names}")
        return 2
    failed = []
    for file in files:
        if wanted and file.stem not in wanted:
            continue
        print(f"\n== {file.stem}", flush=True)
        start = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{file.stem}"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(file.stem)
        print(f"== {file.stem}: {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

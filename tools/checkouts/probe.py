"""What one checkout computes, as one JSON of name -> digest: ``compare_checkouts`` runs this in both and compares.

    cd CHECKOUT && .venv/bin/python .../tools/checkouts/probe.py OUT.json [PART ...]

It goes by public names (``unskew.core``, ``unskew.wire``, ``unskew.client``, the command line) and by the table of
``names``, so it runs in a checkout whose modules have other paths. Every input is a function of a seed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path.cwd()))  # for the checkout's tests/conformance

from dalton import dalton
from digest import Results, digest
from outside import command_line, kept, service
from plans import counted, keys, operators, planned, routed

import unskew.core

PARTS: dict[str, Callable[[], Results]] = {
    "keys": keys, "histograms": counted, "plans": planned, "routers": routed, "dalton": dalton, "kept": kept,
    "operators": operators, "cli": command_line, "service": service,
}  # fmt: skip


def main(out: str, *parts: str) -> None:
    results: dict[str, str] = {"": str(Path(unskew.core.__file__ or "").resolve())}
    for part in parts or PARTS:
        try:
            for name, value in PARTS[part]():
                results[f"{part}: {name}"] = digest(value)
        except Exception as why:  # noqa: BLE001 - the others are compared all the same
            results[f"{part}: failed"] = f"failed: {type(why).__name__}: {why}"
    Path(out).write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

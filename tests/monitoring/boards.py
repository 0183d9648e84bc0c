"""What the dashboards of the chart ask, as files that anybody may read: not by way of the tool that writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.monitoring.prometheus import JOB, NAMESPACE, ROOT, WINDOW

FOLDER = ROOT / "helm" / "unskew" / "dashboards"
NAMES = ("unskew-service", "unskew-stream", "unskew-redis")
Json = dict[str, Any]


class Asked(NamedTuple):
    """A query of a panel."""

    board: str
    panel: str
    ref: str
    expr: str

    @property
    def id(self) -> str:
        return f"{self.board}: {self.panel} {self.ref}"


@cache
def board(name: str) -> Json:
    found: Json = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def panels(name: str) -> list[Json]:
    return [panel for panel in board(name)["panels"] if panel["type"] != "row"]


def asked() -> Iterator[Asked]:
    for name in NAMES:
        for panel in panels(name):
            for target in panel["targets"]:
                yield Asked(name, panel["title"], target["refId"], target["expr"])


def filled(expr: str, stream: str, every: str = ".*") -> str:
    """As Grafana sends it, for one stream; ``every``: what is chosen where all is."""
    chosen = {"$namespace": every, "$job": every, "$stream": stream, "$__rate_interval": WINDOW}
    for name, value in chosen.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def metrics_in(expr: str) -> set[str]:
    """The metrics that an expression names: what stands before a selector."""
    return set(re.findall(r"\b([a-z_:]+)\{", expr))


__all__ = ["FOLDER", "JOB", "NAMES", "NAMESPACE", "Asked", "asked", "board", "filled", "metrics_in", "panels"]


def pages_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.json")}

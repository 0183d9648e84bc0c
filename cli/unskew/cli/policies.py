"""``unskew policies``: lists the planners and routers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from unskew.core.planners import PLANNERS
from unskew.core.planners.registry import PlannerEntry
from unskew.core.routers import ROUTERS
from unskew.core.routers.registry import RouterEntry

__all__ = ["policy_list"]


def policy_list(*, as_json: bool) -> str:
    """Planners and routers, one line a policy; or all of them as JSON."""
    if as_json:
        return json.dumps({"planners": _rows(PLANNERS), "routers": _rows(ROUTERS)}, indent=2)
    lines = [
        "Planners place the keys of a whole batch by their counts (unskew whatif tries them all by default):",
        *_lines(PLANNERS),
        "",
        "Routers place each row as it comes (unskew whatif tries those that --policies names):",
        *_lines(ROUTERS),
    ]
    return "\n".join(lines)


def _rows(entries: Mapping[str, PlannerEntry | RouterEntry]) -> list[dict[str, object]]:
    return [{"name": name, "splits": entry.splits, "summary": entry.summary} for name, entry in entries.items()]


def _lines(entries: Mapping[str, PlannerEntry | RouterEntry]) -> list[str]:
    width = max(len(name) for name in (*PLANNERS, *ROUTERS))
    return [
        f"  {name:<{width}}  {'may split keys' if entry.splits else 'keeps keys whole':<16}  {entry.summary}"
        for name, entry in entries.items()
    ]

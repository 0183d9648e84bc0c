"""``unskew policies``: what there is to choose from."""

from __future__ import annotations

import json

from unskew.core.planners import PLANNERS

__all__ = ["listed"]


def listed(*, as_json: bool) -> str:
    """One line a policy, or all of them as JSON."""
    if as_json:
        rows = [{"name": n, "splits": e.splits, "summary": e.summary} for n, e in PLANNERS.items()]
        return json.dumps({"policies": rows}, indent=2)
    wide = max(map(len, PLANNERS))
    return "\n".join(
        f"{name:<{wide}}  {'may split keys' if entry.splits else 'keeps keys whole':<16}  {entry.summary}"
        for name, entry in PLANNERS.items()
    )

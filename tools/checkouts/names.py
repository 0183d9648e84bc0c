"""Where two checkouts keep what ``checkout_probe`` needs and no public name reaches.

A line a thing: ``module:name`` where it was before the folders of ``core``, then where it is or will be. What moved
without a new name needs no line: where no address fits, ``unskew.core``, ``simulate`` and ``papers`` are searched for
the one class or function with the name of the last address. Add an address where a name changes.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "UnskewError": ("unskew.core.errors:UnskewError",),
    "spark_hash": (
        "unskew.core.hashing:spark_hash", "unskew.core.keys.hashing:spark_hash", "tests.spark_hash:spark_hash",
    ),
    "placement_salt": (
        "unskew.core.hashing:placement_salt", "unskew.core.keys.hashing:placement_salt",
        "tests.spark_hash:placement_salt",
    ),
    "common_type": ("unskew.core.keytypes:common_type", "unskew.core.keys.types:common_type"),
    "History": ("unskew.core.history:History", "unskew.core.histogram.history:History"),
    "HyperLogLog": ("unskew.core.sketches.hyperloglog:HyperLogLog", "papers.hyperloglog:HyperLogLog"),
    "FrequentItems": ("unskew.core.sketches.frequent:FrequentItems",),
    "QTable": ("unskew.core.qtable:QTable", "unskew.core.dalton.qtable:QTable"),
    "Report": ("unskew.core.sync:Report", "unskew.core.rounds.messages:Report"),
    "Answer": ("unskew.core.sync:Answer", "unskew.core.rounds.messages:Answer"),
    "merge": ("unskew.core.merging:merge", "unskew.core.rounds.merge:merge"),
    "Agent": ("unskew.core.agent:Agent", "unskew.core.rounds.agent:Agent"),
    "AgentSettings": (
        "unskew.core.agent:Settings", "unskew.core.rounds.agent:Settings", "unskew.core.rounds.agent:AgentSettings",
        "unskew.core.rounds.settings:AgentSettings",
    ),
    "Tuples": ("unskew.core.agent:Tuples", "unskew.core.rounds.agent:Tuples"),
    "Answered": ("unskew.core.agent:Answered", "unskew.core.rounds.agent:Answered"),
    "Routed": ("unskew.core.agent:Routed", "unskew.core.rounds.agent:Routed"),
    "Bound": (
        "unskew.core.partition_agent:Bound", "unskew.core.rounds.partition_agent:RoutingChoice",
        "unskew.core.rounds:RoutingChoice",
    ),
    "decide": ("unskew.core.partition_agent:decide", "unskew.core.rounds.partition_agent:decide"),
    "report_of": ("unskew.core.partition_agent:report_of", "unskew.core.rounds.partition_agent:report_of"),
    "pin_to_bytes": ("unskew.wire:pinned_to_bytes", "unskew.wire:pin_to_bytes"),
    "pin_from_bytes": ("unskew.wire:pinned_from_bytes", "unskew.wire:pin_from_bytes"),
    "JoinRows": ("unskew.core.join_plan:JoinRows", "unskew.core.operators.join_plan:JoinRows"),
    "JoinBounds": (
        "unskew.core.join_plan:Bounds", "unskew.core.operators.join_plan:Bounds", "unskew.core.operators.join:Bounds",
        "unskew.core.operators:JoinBounds",
    ),
    "join_plan": ("unskew.core.join_plan:join_plan", "unskew.core.operators.join_plan:join_plan"),
    "group_plan": ("unskew.core.group_plan:group_plan", "unskew.core.operators.group_plan:group_plan"),
    "next_plan": ("unskew.core.keyed_plan:next_plan", "unskew.core.operators.keyed_plan:next_plan"),
    "allocate": ("unskew.core.allocator:allocate", "unskew.core.operators.bucket_allocator:allocate"),
    "AutoScaler": ("unskew.core.autoscale:AutoScaler", "unskew.core.scaling.autoscale:AutoScaler"),
    "ScaleState": ("unskew.core.scale_values:ScaleState", "unskew.core.scaling.values:ScaleState"),
    "BatchStats": ("unskew.core.scale_values:BatchStats", "unskew.core.scaling.values:BatchStats"),
}  # fmt: skip


@cache
def named(thing: str) -> Any:
    """The class or function of this line of the table, wherever this checkout keeps it."""
    for address in NAMES[thing]:
        module, _, name = address.partition(":")
        if _exists(module) and hasattr(import_module(module), name):
            return getattr(import_module(module), name)
    name = NAMES[thing][-1].partition(":")[2]
    homes = _homes(name)
    if len(homes) == 1:
        return getattr(import_module(homes[0]), name)
    there = f"defined in {', '.join(homes)}" if homes else "defined nowhere"
    raise LookupError(f"{thing}: none of {', '.join(NAMES[thing])}, and {name} is {there}: extend {__file__}")


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a folder on the way is not there
        return False


def _homes(name: str) -> list[str]:
    """The modules of ``unskew.core``, ``simulate`` and ``papers`` that define this at top level."""
    package = Path(import_module("unskew.core").__file__ or "").parent
    folders = {"unskew.core": package, "simulate": Path.cwd() / "simulate", "papers": Path.cwd() / "papers"}
    defined = ast.FunctionDef | ast.ClassDef
    return [
        ".".join((root, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for root, folder in folders.items()
        for file in sorted(folder.rglob("*.py"))
        if any(isinstance(node, defined) and node.name == name for node in ast.parse(file.read_text("utf-8")).body)
    ]

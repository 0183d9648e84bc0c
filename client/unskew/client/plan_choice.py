"""Which plan a ``PlanAgent`` routes by: the newest that fits, else the last one that did, else plain hashing."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.client.results import Fetched
from unskew.core.plan.plan import Plan

__all__ = ["HASH", "LAST", "NEWEST", "PlanChoice", "choose_plan"]

NEWEST, LAST, HASH = "newest", "last", "hash"


@dataclass(frozen=True)
class PlanChoice:
    """A plan, its rung ("newest", "last" or "hash"), and why it was chosen."""

    plan: Plan
    rung: str
    reason: str


def choose_plan(fetched: Fetched, last: Plan | None, plain: Plan, key_types: tuple[str, ...]) -> PlanChoice:
    """A fetched plan is not used if it is for other partitions or key types, or older than the ``last`` in force."""
    plan = fetched.plan
    reason = _misfit(plan, plain, key_types)
    if not reason and last is not None and plan.version < last.version:
        reason = f"the service has version {plan.version}, older than {last.version}"
    if not reason:
        stale = "; it could not ask its store" if fetched.stale else ""
        return PlanChoice(plan, NEWEST, f"version {plan.version} is the latest that the service has{stale}")
    if last is not None:
        return PlanChoice(last, LAST, f"{reason}; version {last.version} stays in force")
    return PlanChoice(plain, HASH, f"{reason}; there is no other plan: plain hashing")


def _misfit(plan: Plan, plain: Plan, key_types: tuple[str, ...]) -> str:
    """Why this plan cannot be used; empty if it can."""
    if plan.partitions != plain.partitions:
        return f"version {plan.version} is for {plan.partitions} partitions, not for {plain.partitions}"
    if key_types and plan.key_types and plan.key_types != key_types:
        return f"version {plan.version} is for keys of {', '.join(plan.key_types)}, not of {', '.join(key_types)}"
    return ""

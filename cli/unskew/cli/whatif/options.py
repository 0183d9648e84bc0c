"""Parses ``--policies`` and the options for windows and agents, and checks them against each other.

A name that a planner and a router have stands for both; ``planner:cg`` and ``router:cg`` say which. ``hash`` routes the
same as planner and as router, so it stands for the planner only; ``router:hash`` is the router.
"""

from __future__ import annotations

from math import ceil

from unskew.cli.errors import choices
from unskew.cli.numbers import above, whole
from unskew.cli.whatif.agents import COOPERATING
from unskew.cli.whatif.job import Job, Sliding
from unskew.core.errors import ConfigError
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS

__all__ = ["MAX_ROWS", "parse_agents", "parse_policies", "parse_sliding"]

MAX_ROWS = 2**31
_MAX_AGENTS = 1024
_MOST_SLIDES = 100_000  # in a window, as the routers have it
_MOST_CELLS = 1 << 26  # rows per slide, partition and agent, that the routers keep: half a GB
_SLIDES = 50  # in a window when --slide is left out; the papers have 60


def parse_policies(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The planners and the routers of ``--policies``; all planners if it is empty."""
    if not text:
        return tuple(PLANNERS), ()
    planners: dict[str, None] = {}
    routers: dict[str, None] = {}
    for part in text.split(","):
        kind, name = _kind_and_name(part.strip())
        if kind != "router" and name in PLANNERS:
            planners[name] = None
        if kind != "planner" and name in ROUTERS and (kind or name != "hash"):
            routers[name] = None
    return tuple(planners), tuple(routers)


def _kind_and_name(part: str) -> tuple[str, str]:
    kind, colon, name = part.rpartition(":")
    allowed = {"planner": [*PLANNERS], "router": [*ROUTERS], "": list(dict.fromkeys([*PLANNERS, *ROUTERS]))}
    if kind not in allowed or (colon and not kind):
        raise ConfigError("--policies", part, "a name, or one after planner: or router: if it is the name of both")
    if name not in allowed[kind]:
        raise ConfigError("--policies", part, choices(name, allowed[kind]))
    return kind, name


def parse_sliding(job: Job, window: str, slide: str, *, timed: bool) -> Sliding | None:
    """The window of the routers, and of the figures per window; None without routers and without these options."""
    if timed and not window:
        raise ConfigError("--window", window, "so many seconds, together with --time")
    if not window and not slide and not job.routers:
        return None
    if timed:
        length = above("--window", window, MAX_ROWS)
    else:
        length = whole("--window", window, 1, MAX_ROWS) if window else job.batch
    least = max(length / _MOST_SLIDES, length * job.partitions * job.agents / _MOST_CELLS)
    if timed:
        return Sliding(length, _within(above("--slide", slide, MAX_ROWS) if slide else length / _SLIDES, least, length))
    rows = whole("--slide", slide, 1, MAX_ROWS) if slide else max(ceil(length / _SLIDES), ceil(least))
    return Sliding(length, _within(rows, ceil(least), length))


def _within(slide: float, least: float, window: float) -> float:
    if least <= slide <= window:
        return slide
    raise ConfigError("--slide", f"{slide:g}", f"{least:g} or more (memory), and not more than the window, {window:g}")


def parse_agents(agents: str, dsync: str, routers: tuple[str, ...]) -> tuple[int, int | None]:
    """How many partitioners a router has, and every how many rows of the stream they cooperate."""
    count = whole("--agents", agents, 1, _MAX_AGENTS)
    if count > 1 and not routers:
        raise ConfigError("--agents", agents, "1, or a router among --policies; planners have no agents")
    if not dsync:
        return count, None
    every = whole("--dsync", dsync, 1, MAX_ROWS)
    if count == 1:
        raise ConfigError("--dsync", dsync, "it together with --agents, 2 or more")
    if not set(routers) & set(COOPERATING):
        able = ", ".join(COOPERATING) or "none yet"
        raise ConfigError("--dsync", dsync, f"it with a router whose agents cooperate ({able}) among --policies")
    return count, every

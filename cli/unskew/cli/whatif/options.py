"""What ``--policies`` and the options about windows and agents ask for, checked against each other.

A name may be both a planner's and a router's. Then it asks for both, because neither is what everybody would expect
and a row too many does no harm; ``planner:cg`` and ``router:cg`` say which. ``hash`` routes the same either way and is
one row, the planner's, unless ``router:hash`` is asked for.
"""

from __future__ import annotations

from math import ceil

from unskew.cli.errors import choices
from unskew.cli.numerals import above, whole
from unskew.cli.whatif.agents import COOPERATING
from unskew.cli.whatif.job import Job, Sliding
from unskew.core.errors import ConfigError
from unskew.core.planners import PLANNERS
from unskew.core.routers import ROUTERS

__all__ = ["MAX_ROWS", "agents_of", "names", "sliding"]

MAX_ROWS = 2**31
_MAX_AGENTS = 1024
_MOST_SLIDES = 100_000  # in a window, as the routers have it
_MOST_CELLS = 1 << 26  # rows per slide, partition and agent, that the routers keep: half a GB
_SLIDES = 50  # in a window when --slide is left out; the papers have 60


def names(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The planners and the routers asked for; every planner when nothing is said."""
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
    there = {"planner": [*PLANNERS], "router": [*ROUTERS], "": list(dict.fromkeys([*PLANNERS, *ROUTERS]))}
    if kind not in there or (colon and not kind):
        raise ConfigError("--policies", part, "a name, or one after planner: or router: if it is the name of both")
    if name not in there[kind]:
        raise ConfigError("--policies", part, choices(name, there[kind]))
    return kind, name


def sliding(job: Job, window: str, slide: str, *, timed: bool) -> Sliding | None:
    """The window of the routers, and of the figures per window; none where nobody asks for one."""
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


def agents_of(agents: str, dsync: str, routers: tuple[str, ...]) -> tuple[int, int | None]:
    """How many partitioners a router has, and every how many rows of the stream they cooperate."""
    many = whole("--agents", agents, 1, _MAX_AGENTS)
    if many > 1 and not routers:
        raise ConfigError("--agents", agents, "1, or a router among --policies; planners have no agents")
    if not dsync:
        return many, None
    every = whole("--dsync", dsync, 1, MAX_ROWS)
    if many == 1:
        raise ConfigError("--dsync", dsync, "it together with --agents, 2 or more")
    if not set(routers) & set(COOPERATING):
        able = ", ".join(COOPERATING) or "none yet"
        raise ConfigError("--dsync", dsync, f"it with a router whose agents cooperate ({able}) among --policies")
    return many, every

"""Ways through the world: at random, and all that deviate from the good one in few places."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.property.checked_rounds.clockwork import standing_still
from tests.property.checked_rounds.replicated_store import BrokenError
from tests.property.checked_rounds.world import Move, Shape, World

__all__ = ["Walk", "random_walk", "with_one_fault"]

FAULTS = {"call": 12, "network": 40, "death": 4, "failover": 6}
"""How many there may be between two checks."""


@dataclass
class Walk:
    """What was done: ``moves`` by name, to be read when something is broken."""

    steps: int = 0
    moves: list[str] = field(default_factory=list)
    broken: str = ""


def random_walk(seed: int, steps: int, between: int = 120, faults: Mapping[str, int] = FAULTS) -> Walk:
    """So many moves at random; all is checked every ``between`` of them, and at the end."""
    walk, rng = Walk(), random.Random(seed)
    with standing_still() as loop:
        world = World(loop, Shape())
        try:
            while world.steps < steps:
                _some_trouble(world, rng, between, faults, walk)
                walk.moves.append("all goes well")
                world.check()
        except BrokenError as why:
            walk.broken = str(why)
        walk.steps = world.steps
    return walk


def _some_trouble(world: World, rng: random.Random, moves: int, faults: Mapping[str, int], walk: Walk) -> None:
    left = Counter(faults)
    trouble = rng.choice((0.05, 0.1, 0.3))
    for _ in range(moves):
        move = _any_move(world, rng, left, trouble)
        left[move.fault] -= 1
        walk.moves.append(move.name)
        world.make(move)


def _any_move(world: World, rng: random.Random, left: Counter[str], trouble: float) -> Move:
    chance = rng.random()
    if chance < trouble:
        allowed = [move for move in world.faults() if not move.fault or left[move.fault] > 0]
        kinds = {move.fault for move in allowed}
        kind = rng.choice(sorted(kinds))
        return rng.choice([move for move in allowed if move.fault == kind])
    moves = world.moves()
    return moves[0] if chance < 0.5 + 0.5 * trouble else rng.choice(moves)


def with_one_fault(place: int) -> Iterator[Walk]:
    """The good way of two agents, left once, after so many moves, in every way that there is: every call of a replica
    refused, answered twice or hung, every message lost, doubled or sent elsewhere, every death, and a failover to every
    earlier place."""
    for fault in range(_good_way(place).faults):
        yield _good_way(place, fault).walk
    for since in range(place):
        yield _good_way(place, failover_from=since).walk


@dataclass
class _Way:
    walk: Walk
    faults: int


def _good_way(place: int, fault: int | None = None, failover_from: int | None = None) -> _Way:
    walk, faults = Walk(), 0
    with standing_still() as loop:
        world = World(loop, Shape(agents=("ann", "bob")))
        try:
            for at in range(place):
                if at == failover_from:
                    world.store.lag()
                walk.moves.append((move := world.moves()[0]).name)
                world.make(move)
            if failover_from is not None:
                world.store.fail_over(0.0)
            found = world.faults()
            faults = len(found)
            if fault is not None:
                walk.moves.append(found[fault].name)
                world.make(found[fault])
            world.check()
        except BrokenError as why:
            walk.broken = str(why)
        walk.steps = world.steps
    return _Way(walk, faults)

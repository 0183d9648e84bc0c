"""Ways through the world: at random, and all that deviate from the good one in few places."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.property.checked_rounds.clockwork import standing_still
from tests.property.checked_rounds.replicated_store import Broken
from tests.property.checked_rounds.world import Move, Shape, World

__all__ = ["Walk", "random_walk"]

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
        except Broken as why:
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

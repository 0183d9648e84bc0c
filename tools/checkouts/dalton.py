"""Dalton: agents together, merges of what they learned, and tasks that route a batch by it."""

from __future__ import annotations

from dataclasses import fields
from itertools import accumulate, pairwise, product
from typing import Any

import numpy as np
from digest import Results
from inputs import streams, zipf
from names import named

from unskew import wire
from unskew.core import Histogram, make_planner

__all__ = ["dalton", "learned_table", "report"]

ROUNDS = (4, 5, 4, 6, 10)  # quarters of a DSYNC: a round may be larger than the one before


def cooperation(stream: np.ndarray, agents: int, workers: int, every: int, **settings: Any) -> tuple[Any, ...]:
    """Agents that route their shares of the stream, report, and take the merged answers: routes, reports, answers."""
    partners = [
        named("Agent")(named("AgentSettings")(f"a{i}", workers, float(every), i, **settings)) for i in range(agents)
    ]
    routes, reports, answers, previous = [], [], [], None
    sizes = [every * part // 4 for part in ROUNDS] * (len(stream) // every + 1)
    for epoch, (start, end) in enumerate(pairwise(accumulate(sizes, initial=0)), 1):
        sent = []
        for i, agent in enumerate(partners):
            mine = stream[start:end][i::agents]
            times = None if settings.get("window") is None else np.arange(start + i, start + i + len(mine), 1.0)
            for action in agent.handle(named("Tuples")(mine, times), float(start)):
                of = getattr(action, fields(action)[0].name)
                (routes if isinstance(action, named("Routed")) else sent).append(of)
        if sent and epoch % 5:  # each fifth answer is lost: its reports are sent again
            pool = named("merge")(sent, previous)
            merged = tuple(sorted(one.name for one in sent))
            previous = named("Answer")(epoch, merged, pool[0], pool[1], pool[2], pool[3], float(every), pool[4], 1)
            answers.append(previous)
            for agent in partners:
                agent.handle(named("Answered")(previous, 0.0), float(end - 1))
        reports += sent
    return np.concatenate(routes), reports, answers


def learned_table(workers: int) -> Any:
    return cooperation(zipf(24_000, 3_000, 1.5), 4, workers, 3_000)[2][-1].table


def dalton() -> Results:
    """Agents together, what they send and get, merges of Q-tables, and batches that tasks route by what was learned."""
    for (name, stream), (agents, workers) in product(streams().items(), ((1, 8), (4, 16), (7, 5))):
        for window in ({}, {"window": 3_000.0, "slide": 500.0}, {"lonely": True, "seed": 3}):
            if len(stream) < agents:
                continue
            routes, reports, answers = cooperation(stream, agents, workers, 1_500, **window)
            case = f"{name}, {agents} agents, {workers} workers, {window}"
            yield f"routes {case}", routes
            yield f"reports {case}", [(wire.report_to_bytes(one), one) for one in reports]
            yield f"answers {case}", [(wire.answer_to_bytes(one), one) for one in answers]
            yield f"read back {case}", [wire.report_from_bytes(wire.report_to_bytes(one)) for one in reports]
    yield from merges()
    yield from batches()


def report(agent: str, keys: int, workers: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    hashes = zipf(5_000, 60, 1.2, 4)
    values = np.where(rng.random((keys, workers)) < 0.4, -2.0, rng.uniform(-1.5, 1.0, (keys, workers)))
    table = named("QTable").of(np.unique(hashes)[:keys], values, rng.integers(0, 500, keys), values != -2.0)
    seen = named("FrequentItems")(32).update(rng.permutation(hashes)[: 1_000 * seed])
    return named("Report")(agent, seed, 4, table, seen.total, seen, rng.integers(0, 99, workers), 12.5, longer=seed > 2)


def merges() -> Results:
    for workers, first_of in product((1, 5, 16, 64), (0, 1, 2, 3)):
        reports = [report(f"agent-{i}", 10 * i, workers, i + 1) for i in range(4)]
        first = named("merge")(reports[first_of:])
        before = named("Answer")(1, (), *first[:4], 5.0, first[4])
        yield (
            f"merge {workers}, after {first_of}",
            [first, named("merge")(reports[::-1], before), named("merge")(reports[1:2], before)],
        )
        yield (
            f"merge as published {workers}, after {first_of}",
            named("merge")(reports, before, untried="included", renew=1.0),
        )
        yield f"resized {workers}, {first_of}", [first[0].resized(workers + 3), first[0].resized(1)]


def batches() -> Results:
    """What one task decides for its rows."""
    plan = make_planner("balanced", 16).plan(Histogram.from_hashes(zipf(9_000, 300, 1.5)))
    taken = streams() | {"large": zipf(300_000, 20_000, 1.2)}
    for (name, stream), alike in product(taken.items(), (False, True)):
        spread = np.random.default_rng(6).integers(0, len(stream) + 1, len(stream)).astype(np.uint64)
        for what, (by, table) in {"plan": (plan, None), "table": (None, learned_table(16)), "": (None, None)}.items():
            bound = named("Bound")(16, by, table, 3_000 if table else 0, (1, 2), 5, 7, alike)
            for given in (spread, None) if by is None else (spread,):
                done = named("decide")(bound, 3, stream, given)
                sent = named("report_of")(bound, done, agent="a", session=1, seq=1, dsync=2.0)
                case = f"{name}, by {what or 'nothing'}, alike {alike}, spread {given is not None}"
                yield f"batch {case}", [done, wire.report_to_bytes(sent)]

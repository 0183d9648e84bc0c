"""The autoscaler: how many map and reduce tasks the next batch should have.

Prompt, section 6, Algorithm 4 and Fig. 9. W = processing time / batch interval. Zone 3 is W > thres: ``d``
such batches, but for a quarter, add tasks. Zone 1 is W <= thres - step: ``d`` in a row remove tasks. Zone 2 between
them is the target. It decides numbers only; the caller changes a live plan to another number of partitions. A passive
machine: one batch's statistics in, one decision out; the state is a value of plain fields.

Deviations from the paper:

- The listing's ``else`` that increments ``count`` belongs to ``count = d``: it counts batches *above* the
  threshold, and the ``d``-th acts. A batch in another zone sets the count to 0 ("consecutive" in the text).
- Tasks are added where of the last ``d`` batches the first, this one and all but a quarter were above, and
  not only where all were: else a load a little above the threshold is never answered as long as noise takes one
  batch in ``d`` below it (decision 0008). ``as_published`` requires all. Removing tasks is not urgent.
- "Increased" is measured against the means of the first ``d`` quiet batches after the last change, not
  against the previous batches: a slow drift shows, and every step of one excursion is judged by the same
  cause.
- Neither rate nor keys changed: the paper is silent. The stage whose share of the time grew gets the task
  (it shrank: gives it up); no share changed: the stage where one task more gains most (one less costs
  least).
- Foresight: with stage times linear in 1/tasks, a removal that would put W above the middle of Zone 2 is not
  made, and a task is added to the other stage where the rule's own would gain less than a quarter of what
  the other does. Without it, 2 -> 1 tasks leaps over Zone 2, and a wrong cause adds map tasks without end.
  ``as_published`` is without.
- A stage at its bound: the other stage is taken. The bounds themselves are ours. But a stage is left alone where the
  other one by itself keeps W above the threshold and takes longer: more of its tasks would not answer the load.
- One decision changes a stage by as many increments as W asks for by the same foresight, and not by one: a load that
  rises by half would else be answered after as many times ``d`` batches as it needs tasks (decision 0008). At most
  to twice the tasks or half of them, for further away 1/tasks is a guess; by one where no number of them would do, and
  where the last such step has brought less than half of what it promised: tasks that wait for a slot help nobody.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from unskew.core.parameters import check_whole
from unskew.core.scaling.values import Action, BatchStats, Load, ScaleDecision, ScaleRules, ScaleState

__all__ = ["AutoScaler", "step"]

Stages = Literal["map", "reduce", "both"]

_HINDSIGHT = 4  # a scale-in that reverts a scale-out without a cause looks back this many times ``d`` batches
_WORTH = 0.25  # a stage is not worth a task that gains less than this share of what the other stage would gain


class AutoScaler:
    """Prompt's Algorithm 4 (section 6): holds the state and calls ``step``.

    >>> scaler = AutoScaler(ScaleState(p=4, r=4), ScaleRules(d=1))
    >>> decision = scaler.handle(BatchStats(1.0, 0.95, map_time=0.7, reduce_time=0.2, rows=10, keys=5))
    >>> decision.p, decision.r, decision.zone, decision.action
    (5, 4, 3, 'out')
    """

    def __init__(self, state: ScaleState, rules: ScaleRules | None = None) -> None:
        self.rules = rules or ScaleRules()
        check_whole("p", state.p, self.rules.min_p, self.rules.max_p)
        check_whole("r", state.r, self.rules.min_r, self.rules.max_r)
        self.state = state

    def handle(self, stats: BatchStats) -> ScaleDecision:
        """One finished batch: the decision for the next."""
        self.state, decision = step(self.rules, self.state, stats)
        return decision


def step(rules: ScaleRules, state: ScaleState, stats: BatchStats) -> tuple[ScaleState, ScaleDecision]:
    """The transition of Algorithm 4, lines 1-12, with its mirror image for scale-in."""
    load = Load.of(stats)
    zone = rules.zone(load.w)
    in_grace = state.grace > 0
    state = replace(
        state,
        above=state.above + 1 if zone == 3 else 0,
        below=state.below + 1 if zone == 1 else 0,
        grace=max(0, state.grace - 1),
        window=(*state.window, load)[-_HINDSIGHT * rules.d :],
    )
    sign = {3: 1, 2: 0, 1: -1}[zone]
    if sign == 0:
        return _hold(rules, state, load, f"W = {load.w:.2f} is in Zone 2")
    count = state.above if zone == 3 else state.below
    if count < rules.d and not (zone == 3 and _mostly_above(rules, state)):
        return _hold(rules, state, load, f"W = {load.w:.2f} is in Zone {zone} for {count} of {rules.d} batches")
    if in_grace and state.last == ("in" if sign > 0 else "out"):
        return _hold(rules, state, load, "grace: the last change is too recent to be taken back")
    return _change(rules, state, load, sign)


def _mostly_above(rules: ScaleRules, state: ScaleState) -> bool:
    """Whether W has been above the threshold for ``d`` batches, but for a quarter of them."""
    last = [rules.zone(load.w) == 3 for load in state.window[-rules.d :]]
    return not rules.as_published and len(last) == rules.d and last[0] and sum(last) >= rules.d - rules.d // 4


def _hold(rules: ScaleRules, state: ScaleState, load: Load, why: str) -> tuple[ScaleState, ScaleDecision]:
    """No change. The first full window without one is what later batches are compared with."""
    if not state.settled and len(state.window) >= rules.d:
        usual = Load.mean(state.window[-rules.d :])
        promised = None if rules.zone(usual.w) < 3 else state.promised
        state = replace(state, settled=True, baseline=usual, promised=promised)
    return state, ScaleDecision(state.p, state.r, rules.zone(load.w), load.w, "hold", why)


def _change(rules: ScaleRules, state: ScaleState, load: Load, sign: int) -> tuple[ScaleState, ScaleDecision]:
    now = Load.mean(state.window[-rules.d :])
    stages, cause, found_cause = _cause(rules, state, now, sign)
    if sign < 0 and state.last == "out" and not found_cause and not rules.as_published:
        if len(state.window) < _HINDSIGHT * rules.d:
            return _hold(rules, state, load, f"{cause}; too few batches to take the last scale-out back")
        now = Load.mean(state.window)
        if rules.zone(now.w) != 1:
            return _hold(rules, state, load, f"{cause}; mean W = {now.w:.2f} since the last scale-out is in Zone 2")
    p, r, note = _move(rules, state, now, stages, sign)
    if (p, r) == (state.p, state.r):
        return _hold(rules, state, load, f"{cause}; {note}")
    action: Action = "out" if sign > 0 else "in"
    zone = rules.zone(load.w)
    many = sum(rules.zone(each.w) == zone for each in state.window[-rules.d :])
    why = f"{many} of {rules.d} batches in Zone {zone}, mean W = {now.w:.2f}; {cause}"
    promised = _promise(state, now, p, r) if sign > 0 else None
    state = replace(state, p=p, r=r, above=0, below=0, grace=rules.grace_batches, last=action)
    state = replace(state, settled=False, window=(), promised=promised)
    return state, ScaleDecision(p, r, rules.zone(load.w), load.w, action, f"{why}; {note}" if note else why)


def _pays(state: ScaleState, now: Load) -> bool:
    """Whether the last large scale-out has lowered the cost of a row as promised."""
    return state.promised is None or now.cost <= state.promised


def _promise(state: ScaleState, now: Load, p: int, r: int) -> float | None:
    """The cost to reach: half of the fall that the stages' times predict. A promise not kept yet stays in force."""
    if not _pays(state, now):
        return state.promised
    predicted = now.map_part * state.p / p + now.reduce_part * state.r / r
    return (now.cost + predicted / now.rate) / 2.0 if now.rate else None


def _cause(rules: ScaleRules, state: ScaleState, now: Load, sign: int) -> tuple[Stages, str, bool]:
    """Lines 6-7, for scale-out (sign +1) and mirrored: the stages that the change of workload speaks for."""
    base, word = state.baseline, "rose" if sign > 0 else "fell"
    if base is not None:
        rate = sign * (now.rate - base.rate) > rules.tolerance * base.rate
        keys = sign * (now.keys - base.keys) > rules.tolerance * base.keys
        rates, counts = f"{base.rate:.0f} to {now.rate:.0f} rows/s", f"{base.keys:.0f} to {now.keys:.0f} keys"
        if rate and keys:
            return "both", f"rate and keys {word} ({rates}, {counts})", True
        if rate:
            return "map", f"the rate {word} ({rates})", True
        if keys:
            return "reduce", f"the keys {word} ({counts})", True
        moved = sign * (now.map_share - base.map_share)
        if abs(moved) > rules.tolerance:
            stage: Stages = "map" if moved > 0 else "reduce"
            return stage, f"neither rate nor keys {word}, but the {stage} stage's share of the time did", True
    gain_map, gain_reduce = _gains(rules, state, now, sign)
    best: Stages = "map" if gain_map >= gain_reduce else "reduce"
    much = "most" if sign > 0 else "least"
    return best, f"no cause seen in rate, keys or shares: {best}, where a task matters {much}", False


def _gains(rules: ScaleRules, state: ScaleState, now: Load, sign: int) -> tuple[float, float]:
    """What W would fall by (sign -1: minus what it would rise by) if that stage alone were changed by an increment."""
    one_map = _moved(rules, state, "map", sign)
    one_reduce = _moved(rules, state, "reduce", sign)
    return now.w - _predict(state, now, *one_map), now.w - _predict(state, now, *one_reduce)


def _predict(state: ScaleState, now: Load, p: int, r: int) -> float:
    """W with other numbers of tasks, each stage's time being proportional to 1/tasks."""
    return now.w + now.map_part * (state.p / p - 1.0) + now.reduce_part * (state.r / r - 1.0)


def _moved(rules: ScaleRules, state: ScaleState, stages: Stages, by: int) -> tuple[int, int]:
    """p and r after so many increments (below 0: fewer tasks) of those stages, kept within the bounds."""
    p = state.p + by * rules.increment if stages != "reduce" else state.p
    r = state.r + by * rules.increment if stages != "map" else state.r
    return min(max(p, rules.min_p), rules.max_p), min(max(r, rules.min_r), rules.max_r)


def _increments(rules: ScaleRules, state: ScaleState, stages: Stages, sign: int) -> int:
    """How many increments to change. Out: the fewest that bring W into Zone 2, by a quarter of the zone. In: the most
    that leave W in Zone 1.

    The mildest of the last batches is used: they were selected by W, so their mean is further out than the load is.
    """
    last, w_of = state.window[-rules.d :], attrgetter("w")
    if sign > 0:
        now, goal = min((each for each in last if each.w > rules.thres), key=w_of), rules.thres - rules.step / 4
    else:
        now, goal = max(last, key=w_of), rules.thres - rules.step
    if stages == "both":
        stages = _free(rules, state, sign)
    changed = [tasks for tasks, other in ((state.p, "reduce"), (state.r, "map")) if stages != other]
    most = (min(changed) if sign > 0 else min(changed) // 2) // rules.increment
    if rules.as_published or most < 2 or _rest(now, stages) > goal:
        return 1

    def w(by: int) -> float:
        return _predict(state, now, *_moved(rules, state, stages, by))

    tried = range(1, most + 1)
    if sign > 0:
        return min(1 + bisect_left(tried, -goal, key=lambda by: -w(by)), most)
    return max(bisect_right(tried, goal, key=lambda by: w(-by)), 1)


def _free(rules: ScaleRules, state: ScaleState, sign: int) -> Stages:
    """Which of both stages are not at their bound in this direction: only those change W."""
    (p, r), (to_p, to_r) = (state.p, state.r), _moved(rules, state, "both", sign)
    return "reduce" if p == to_p else "map" if r == to_r else "both"


def _rest(now: Load, stages: Stages) -> float:
    """The part of W that no number of tasks in these stages removes."""
    gone = {"map": now.map_part, "reduce": now.reduce_part, "both": now.map_part + now.reduce_part}
    return now.w - gone[stages]


def _move(rules: ScaleRules, state: ScaleState, now: Load, stages: Stages, sign: int) -> tuple[int, int, str]:
    """The rule's change, or the next best that bounds and foresight allow, and a note on what prevented the first."""
    order = _preferences(rules, state, now, stages, sign)
    note = "" if order[0] == stages else f"one more {stages} task would gain little, so {order[0]}"
    if _moved(rules, state, stages, sign) == (state.p, state.r):
        note = f"the {stages} stage is at its bound"
    refused = ""
    for choice in order:
        if sign > 0 and (slow := _too_slow(rules, state, now, choice)):
            return state.p, state.r, slow
        many = _increments(rules, state, choice, sign) if sign < 0 or _pays(state, now) else 1
        p, r = _moved(rules, state, choice, sign * many)
        if (p, r) == (state.p, state.r):
            continue
        w = _predict(state, now, p, r)
        if sign < 0 and w > rules.middle and not rules.as_published:
            refused = refused or f"with p = {p} and r = {r} W would be {w:.2f}"
            continue
        return p, r, refused or note
    if refused:
        return state.p, state.r, f"{refused}, above the middle of Zone 2; kept"
    return state.p, state.r, f"p = {state.p} and r = {state.r} are at their bounds"


def _too_slow(rules: ScaleRules, state: ScaleState, now: Load, stage: Stages) -> str:
    """Why tasks of this stage would not answer the load: the other stage is at its bound, and is what is slow."""
    stage = _free(rules, state, 1) if stage == "both" else stage
    if stage == "both" or rules.as_published:
        return ""
    other: Stages = "reduce" if stage == "map" else "map"
    own, others = (now.map_part, now.reduce_part) if stage == "map" else (now.reduce_part, now.map_part)
    bound, rest = _moved(rules, state, other, 1) == (state.p, state.r), _rest(now, stage)
    if not bound or rest <= rules.thres or own >= others:
        return ""
    return f"hold: the {other} stage is what is slow, W = {rest:.2f} however many {stage} tasks there are"


def _preferences(rules: ScaleRules, state: ScaleState, now: Load, stages: Stages, sign: int) -> tuple[Stages, ...]:
    gain_map, gain_reduce = _gains(rules, state, now, sign)
    map_first = gain_map >= gain_reduce
    if stages == "both":
        return ("both", "map", "reduce") if map_first else ("both", "reduce", "map")
    if sign > 0 and not rules.as_published:
        if stages == "map" and gain_map < _WORTH * gain_reduce:
            return ("reduce", "map")
        if stages == "reduce" and gain_reduce < _WORTH * gain_map:
            return ("map", "reduce")
    return ("map", "reduce") if stages == "map" else ("reduce", "map")

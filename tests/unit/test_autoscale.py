"""Prompt's Algorithm 4: the right number of tasks after each change of workload, and no flapping."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.prompt_machines import RAMP, Cluster, drive, near_threshold, reversals
from unskew.core.errors import ConfigError
from unskew.core.scaling.autoscale import AutoScaler
from unskew.core.scaling.values import BatchStats, ScaleDecision, ScaleRules, ScaleState


def batch(mapping: float, reducing: float, rows: int = 1000, keys: int = 100) -> BatchStats:
    """A one-second batch whose W is the sum of its stages."""
    return BatchStats(1.0, mapping + reducing, mapping, reducing, rows, keys)


def feed(scaler: AutoScaler, stats: BatchStats, times: int) -> list[ScaleDecision]:
    return [scaler.handle(stats) for _ in range(times)]


def scaler_of(p: int, r: int, **rules: object) -> AutoScaler:
    return AutoScaler(ScaleState(p, r), ScaleRules(**rules))  # type: ignore[arg-type]


def actions(decisions: list[ScaleDecision]) -> list[str]:
    return [decision.action for decision in decisions]


def test_settled_tasks_on_the_ramp_of_fig_12():
    """Map 10 us a row, reduce 100 us a key, 0.05 s fixed, 1 s batches; each phase by hand. Out aims at .875, in at .8.

    start     1.6/4 + 1.6/4 + .05 = .85: as wanted.
    rate up   4/4 + .4 + .05 = 1.45 asks for 4/10, more than twice the tasks: 8; then 10, 4/10 + .4 + .05 = .85.
    keys up   the same on the other side.
    both up   8/10 + 8/10 + .05 = 1.65 asks for 16/20 (16/19 would be .892).
    rate down 4/20 + .4 + .05 = .65 leaves 4/12, .783; still too little, and 4/11 + .4 + .05 = .814.
    both down .275: (6, 15) .423, (3, 12) .717; two map tasks would give more than .85, so reduce tasks:
              .533 + 1.6/8 + .05 = .783 is too little, .533 + 1.6/7 + .05 = .812.
    """
    scaler, settled, decisions = scaler_of(4, 4), [], []
    for _, rows, keys in RAMP:
        decisions = drive(Cluster(), scaler, rows, keys, 150)
        assert reversals(decisions) == 0
        assert max((at for at, made in enumerate(decisions, 1) if made.action != "hold"), default=0) <= 20
        settled.append((scaler.state.p, scaler.state.r))
    assert settled == [(4, 4), (10, 4), (10, 10), (20, 20), (11, 20), (3, 7)]
    assert decisions[-1].zone == 2


@pytest.mark.parametrize(
    ("rows", "keys", "expected"),
    [(2000, 100, (5, 4)), (1000, 200, (4, 5)), (2000, 200, (5, 5))],
    ids=["rate", "keys", "both"],
)
def test_scale_out_follows_the_cause(rows, keys, expected):
    """Rate up: a map task. Keys up: a reduce task. Both: both. After d batches above the threshold, not before."""
    scaler = scaler_of(4, 4)
    feed(scaler, batch(0.43, 0.42), 5)
    made = feed(scaler, batch(0.47, 0.47, rows, keys), 5)
    assert actions(made) == ["hold"] * 4 + ["out"]
    assert (made[-1].p, made[-1].r, made[-1].zone) == (*expected, 3)
    assert "rose" in made[-1].reason


@pytest.mark.parametrize(
    ("rows", "keys", "part", "expected"),
    [(500, 100, 0.38, (7, 8)), (1000, 50, 0.38, (8, 7)), (500, 50, 0.34, (7, 7))],
    ids=["rate", "keys", "both"],
)
def test_scale_in_is_the_mirror_image(rows, keys, part, expected):
    """Rate down: a map task less. Keys down: a reduce task less. Both: both."""
    scaler = scaler_of(8, 8)
    feed(scaler, batch(0.43, 0.42), 5)
    made = feed(scaler, batch(part, part, rows, keys), 5)
    assert actions(made) == ["hold"] * 4 + ["in"]
    assert (made[-1].p, made[-1].r, made[-1].zone) == (*expected, 1)
    assert "fell" in made[-1].reason


@pytest.mark.parametrize(("parts", "expected"), [((0.65, 0.35), (5, 4)), ((0.35, 0.65), (4, 5))])
def test_neither_rate_nor_keys_scales_the_stage_whose_share_grew(parts, expected):
    """The rows themselves became dearer in one stage."""
    scaler = scaler_of(4, 4)
    feed(scaler, batch(0.42, 0.42), 5)
    made = feed(scaler, batch(*parts), 5)
    assert (made[-1].p, made[-1].r) == expected
    assert "share of the time" in made[-1].reason


def test_neither_and_scale_in_takes_from_the_stage_whose_share_shrank():
    """The mirror image of the rule above."""
    scaler = scaler_of(8, 8)
    feed(scaler, batch(0.42, 0.42), 5)
    made = feed(scaler, batch(0.33, 0.42), 5)
    assert (made[-1].p, made[-1].r) == (7, 8)


def test_overloaded_from_the_first_batch():
    """Nothing to compare with: the stage where a task gains most."""
    made = feed(scaler_of(4, 4), batch(0.2, 0.75), 5)
    assert (made[-1].p, made[-1].r) == (4, 5)
    assert "no cause seen" in made[-1].reason


def test_a_slow_drift_is_seen_as_such():
    """1 % more rows a batch: never a jump from one batch to the next, yet the reason is the rate."""
    scaler, rows, made = scaler_of(8, 8), 1000.0, []
    for _ in range(60):
        made.append(scaler.handle(batch(0.42 * rows / 1000 * 8 / scaler.state.p, 0.4, int(rows), 100)))
        rows *= 1.01
    first = next(decision for decision in made if decision.action != "hold")
    assert first.action == "out"
    assert "the rate rose" in first.reason
    assert (scaler.state.p > 8, scaler.state.r) == (True, 8)


def test_interrupted_runs_do_not_count_as_published():
    """Four batches above, one within, four above: nothing happens; the fifth in a row acts."""
    scaler = scaler_of(4, 4, as_published=True)
    above, within = batch(0.5, 0.5), batch(0.43, 0.42)
    made = feed(scaler, above, 4) + feed(scaler, within, 1) + feed(scaler, above, 4)
    assert actions(made) == ["hold"] * 9
    assert scaler.handle(above).action == "out"


@pytest.mark.parametrize(
    ("zones", "acts"),
    [("aawaa", True), ("aaawa", True), ("awawa", False), ("waaaa", False), ("aaaaw", False), ("aaaaa", True)],
)
def test_a_load_that_is_mostly_above_is_answered(zones, acts):
    """Of five batches the first, the last and four in all: noise that takes one below does not begin anew."""
    scaler = scaler_of(4, 4)
    feed(scaler, batch(0.43, 0.42), 5)
    made = [scaler.handle(batch(0.5, 0.5) if zone == "a" else batch(0.43, 0.42)) for zone in zones]
    assert actions(made) == ["hold"] * 4 + ["out" if acts else "hold"]


def test_taking_away_waits_for_batches_in_a_row():
    scaler = scaler_of(4, 4)
    below, within = batch(0.2, 0.2), batch(0.43, 0.42)
    made = feed(scaler, below, 4) + feed(scaler, within, 1) + feed(scaler, below, 4)
    assert actions(made) == ["hold"] * 9
    assert scaler.handle(below).action == "in"


@pytest.mark.parametrize(("w", "zone"), [(0.8, 1), (0.81, 2), (0.9, 2), (0.91, 3)])
def test_zones(w, zone):
    """Zone 1 up to thres - step, Zone 3 above thres."""
    assert scaler_of(4, 4).handle(batch(w, 0.0)).zone == zone


def test_grace_forbids_the_reverse_only():
    """d = 1, grace 3: after a scale-out, three idle batches are held, the fourth scales in; going on out is free."""
    scaler = scaler_of(8, 8, d=1, grace=3, as_published=True)
    over, idle = batch(0.5, 0.5), batch(0.2, 0.2)
    assert actions(feed(scaler, over, 2)) == ["out", "out"]
    made = feed(scaler, idle, 4)
    assert actions(made) == ["hold", "hold", "hold", "in"]
    assert "grace" in made[0].reason


@pytest.mark.parametrize("tasks", [(2, 2), (8, 8), (32, 16)])
@pytest.mark.parametrize("w", [0.8, 0.9])
def test_no_flap_in_100_noisy_batches_around_each_threshold(tasks, w):
    """Stage times that scatter by 5 %: no decision is taken back, in 20 runs."""
    assert [near_threshold(ScaleRules(), w, tasks, (0.05, 0.0), seed) for seed in range(20)] == [0] * 20


def test_rare_flaps_where_rate_and_keys_scatter_too():
    """Times by 3 %, rate and keys by 5 %: reversals in less than one run of ten."""
    runs = [near_threshold(ScaleRules(), w, (8, 8), (0.03, 0.05), seed) for w in (0.8, 0.9) for seed in range(50)]
    assert sum(count > 0 for count in runs) < 10


def test_a_hasty_controller_does_flap():
    """The check above can fail: d 1 and no grace take decisions back all the time."""
    hasty = ScaleRules(d=1, grace=0)
    runs = [near_threshold(hasty, w, (8, 8), (0.05, 0.0), seed) for w in (0.8, 0.9) for seed in range(20)]
    assert sum(runs) / len(runs) > 3


def test_few_tasks_flap_as_published_and_not_with_foresight():
    """W = .95 on one map task is .55 on two: published, up and down forever, without any noise."""

    def map_tasks(*, as_published: bool) -> list[int]:
        scaler = scaler_of(1, 1, max_r=1, as_published=as_published)
        return [scaler.handle(batch(0.8 / scaler.state.p, 0.15)).p for _ in range(100)]

    assert map_tasks(as_published=False) == [1] * 4 + [2] * 96
    turns = [one - two for one, two in pairwise(map_tasks(as_published=True)) if one != two]
    assert len(turns) > 15
    assert turns == ([-1, 1] * 50)[: len(turns)]


def test_a_wrong_cause_does_not_add_map_tasks_without_end():
    """Reduce time grows with rows, and only the rate rose: map tasks alone cannot help."""

    def run(*, as_published: bool) -> tuple[int, float]:
        scaler = scaler_of(4, 4, as_published=as_published)
        cluster = Cluster(key_cost=0.0, row_cost=1e-5)
        drive(cluster, scaler, 150_000, 100, 20)
        decisions = drive(cluster, scaler, 800_000, 100, 400)
        return scaler.state.p, decisions[-1].w

    p, w = run(as_published=False)
    assert w <= 0.9
    assert p < 40
    p, w = run(as_published=True)
    assert w > 0.9
    assert p > 60


def test_bounds_hold_and_the_other_stage_helps_out():
    """Map tasks at their maximum: reduce tasks instead; both there: the reason says that no more can be done."""
    scaler = scaler_of(4, 4, max_p=4, max_r=5)
    feed(scaler, batch(0.43, 0.42), 5)
    made = feed(scaler, batch(0.6, 0.5, rows=2000), 10)
    assert (made[4].p, made[4].r) == (4, 5)
    assert "map stage is at its bound" in made[4].reason
    assert actions(made[5:]) == ["hold"] * 5
    assert "at their bounds" in made[-1].reason


def test_scale_in_stops_at_the_minimum():
    """An idle stream keeps its least tasks."""
    scaler = scaler_of(3, 3, min_p=2, min_r=1)
    feed(scaler, batch(0.0, 0.0, 0, 0), 100)
    assert (scaler.state.p, scaler.state.r) == (2, 1)


def test_tasks_come_by_whole_increments():
    """.9/p * 40 + .1 at most .875 wants 46.5 tasks: 48. In: .5 * 40/r + .1 at most .8 wants 28.6: 32."""
    made = feed(scaler_of(40, 40, increment=8), batch(0.9, 0.1), 5)
    assert (made[-1].p, made[-1].r) == (48, 40)
    made = feed(scaler_of(1, 40, increment=8), batch(0.1, 0.5), 5)
    assert (made[-1].p, made[-1].r) == (1, 32)


def test_a_leap_is_answered_at_once_up_to_twice_the_tasks():
    """.8 + .05 becomes .8 * 1.6: 1.6 times the tasks (aim .875 gives 50) after d batches; one by one as published."""

    def after(load: float, *, as_published: bool = False) -> int:
        scaler = scaler_of(1, 32, max_p=1, as_published=as_published)
        feed(scaler, batch(0.05, 0.8), 5)
        return feed(scaler, batch(0.05, load, keys=200), 5)[-1].r

    assert after(0.8 * 1.6) == 50
    assert after(0.8 * 9.0) == 64
    assert after(0.8 * 1.6, as_published=True) == 33


def test_a_leap_goes_by_the_mildest_batch_that_led_to_it():
    """Four batches at 1.0 and one at .91: as far as the latter asks for."""
    scaler = scaler_of(1, 32, max_p=1)
    feed(scaler, batch(0.0, 0.85), 5)
    made = feed(scaler, batch(0.0, 1.0), 3) + feed(scaler, batch(0.0, 0.91), 1) + feed(scaler, batch(0.0, 1.0), 1)
    assert made[-1].r == 34


def test_no_leap_where_tasks_alone_cannot_do():
    """.88 of 1.0 is neither stage's: more tasks help a little, and twice as many cost twice as much."""
    stats = BatchStats(1.0, 1.0, 0.02, 0.1, 1000, 100)
    made = feed(scaler_of(16, 16), stats, 5)
    assert (made[-1].p, made[-1].r) == (16, 17)


def test_where_one_stage_is_fixed_only_the_other_one_counts():
    """Rate and keys rose by 1.6. Two map tasks do not hold the reduce stage back: 32 * 1.6 in one step. Where the map
    stage is what is slow, no number of reduce tasks helps, and none is added."""

    def after(tasks: int, mapping: float, reducing: float) -> int:
        scaler = scaler_of(tasks, 32, min_p=tasks, max_p=tasks)
        feed(scaler, batch(mapping, reducing), 5)
        return feed(scaler, batch(1.6 * mapping, 1.6 * reducing, 1600, 160), 5)[-1].r

    assert after(2, 0.05, 0.8) == 52
    assert after(40, 0.8, 0.05) == 32


def test_leaps_end_where_they_do_not_pay():
    """Sixteen slots: more tasks wait for their turn, and W stays. .95 of 1.2 asks for 25; from then on one at a time,
    as published, until W is as wanted; what comes then is a new matter."""
    scaler = scaler_of(1, 16, max_p=1)
    stuck = BatchStats(1.0, 1.2, 0.05, 0.95, 1000, 100)
    made = [decision.r for decision in feed(scaler, stuck, 20)]
    assert made == [16] * 4 + [25] * 5 + [26] * 5 + [27] * 5 + [28]
    feed(scaler, batch(0.05, 0.8), 5)
    assert feed(scaler, BatchStats(1.0, 1.2, 0.05, 0.95, 1000, 200), 5)[-1].r == 43


def test_leaps_go_on_where_they_pay():
    """Nine times the work: twice the tasks every d batches, for each time the stage has become as much shorter."""
    scaler, made = scaler_of(1, 8, max_p=1), []
    for _ in range(20):
        made.append(scaler.handle(batch(0.05, 0.75 * 9 * 8 / scaler.state.r)).r)
    assert made[4::5] == [16, 32, 64, 64]


def test_what_was_added_without_a_cause_is_kept_while_the_mean_is_in_zone_2():
    """Five batches in a row may be at .79 by chance, though all twenty since then are at .83 in the mean."""
    scaler = scaler_of(1, 32, max_p=1)
    feed(scaler, batch(0.0, 0.85), 5)
    assert feed(scaler, batch(0.0, 0.91), 5)[-1].action == "out"
    made = feed(scaler, batch(0.0, 0.845), 15) + feed(scaler, batch(0.0, 0.79), 5)
    assert actions(made) == ["hold"] * 20
    assert "mean W = 0.83 since the last scale-out is in Zone 2" in made[-1].reason


def test_a_slow_machine_that_recovers_gives_the_tasks_back():
    """No cause in rate or keys: the scale-in comes, but looks back longer than the scale-out did."""
    scaler = scaler_of(8, 8)
    feed(scaler, batch(0.43, 0.42), 5)
    while scaler.state.p + scaler.state.r < 20:
        scaler.handle(batch(0.6, 0.6))
    made = feed(scaler, batch(0.3, 0.3), 25)
    assert actions(made[:19]) == ["hold"] * 19
    assert "too few batches" in made[10].reason
    assert "in" in actions(made[19:])


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"thres": 0.0}, "thres"),
        ({"thres": 1.1}, "thres"),
        ({"step": 0.9}, "step"),
        ({"step": float("nan")}, "step"),
        ({"d": 0}, "d"),
        ({"grace": -1}, "grace"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"increment": 0}, "increment"),
        ({"min_p": 0}, "min_p"),
        ({"max_p": 3, "min_p": 4}, "max_p"),
        ({"max_r": 0}, "max_r"),
        ({"max_r": 2.0}, "max_r"),
    ],
)
def test_bad_parameters_are_named(parameters, name):
    """A ConfigError names the parameter."""
    with pytest.raises(ConfigError) as caught:
        ScaleRules(**parameters)
    assert caught.value.parameter == name


@pytest.mark.parametrize(("p", "r", "name"), [(0, 4, "p"), (4, 2000, "r")])
def test_a_state_outside_the_bounds_is_refused(p, r, name):
    """The machine starts within its bounds."""
    with pytest.raises(ConfigError) as caught:
        scaler_of(p, r)
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ((0.0, 1.0, 1.0, 0.0, 1, 1), "interval"),
        ((1.0, -1.0, 1.0, 0.0, 1, 1), "processing"),
        ((1.0, 1.0, float("nan"), 0.0, 1, 1), "map_time"),
        ((1.0, 1.0, 0.0, 0.0, 1, 1), "map_time"),
        ((1.0, 1.0, 1.0, 0.0, -1, 1), "rows"),
        ((1.0, 1.0, 1.0, 0.0, 1, -1), "keys"),
    ],
)
def test_impossible_statistics_are_refused(fields, name):
    """The error names the field, and the state is untouched, because no value was built."""
    with pytest.raises(ConfigError) as caught:
        BatchStats(*fields)
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("map_part", "reduce_part", "grows"), [(1.2, 0.1, False), (0.95, 0.9, False), (0.6, 0.7, True), (0.95, 2.0, True)]
)
def test_a_job_bound_by_its_map_side_gets_no_reduce_tasks(map_part: float, reduce_part: float, grows: bool) -> None:
    """The source has decided the number of map tasks. What one stage lacks the other one's tasks do not make good; but
    a reduce stage that is the slower one, or that can bring W down, still grows."""
    scaler = AutoScaler(ScaleState(p=4, r=8), ScaleRules(d=2, min_p=4, max_p=4))
    stats = BatchStats(1.0, map_part + reduce_part, map_part, reduce_part, rows=1_000, keys=10)
    decisions = [scaler.handle(stats) for _ in range(12)]
    assert (decisions[-1].r > 8) == grows
    if not grows:
        assert {decision.action for decision in decisions} == {"hold"}
        assert "the map stage is what is slow" in decisions[-1].reason


def test_a_rate_that_rises_does_not_get_round_it() -> None:
    """Rate and keys rise: the rule is for both stages, of which the one at its bound is what is slow."""
    scaler = AutoScaler(ScaleState(p=4, r=8), ScaleRules(d=2, min_p=4, max_p=4))
    for batch in range(16):
        scaler.handle(BatchStats(1.0, 1.4, 1.3, 0.1, rows=1_000 + 100 * batch, keys=10 + batch))
    assert scaler.state.r == 8

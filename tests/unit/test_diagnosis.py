"""What a stage lost, why, by which operator, and what to write: each regime by tasks made for it."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from unskew.core.diagnosis.cause import Cause, cause_of
from unskew.core.diagnosis.expressions import KeyColumn, key_column, partitioning
from unskew.core.diagnosis.findings import Application, Finding, SkewedStage, findings, worth_keeping
from unskew.core.diagnosis.lost_time import lost_time
from unskew.core.diagnosis.remedy import remedy_of
from unskew.core.diagnosis.spark_operator import Operator, PlanNode, operator_of
from unskew.core.diagnosis.stage_run import StageRun, TaskColumns

APPLICATION = Application("app-1", "job", "4.3.0", 0.0, 100.0, 100.0)
HOT = [30.0, *[1.0] * 15]
EVEN = [3.0] * 16


def stage(tasks: TaskColumns, slots: int = 4, **others: Any) -> StageRun:
    return StageRun(3, 0, "collect at job.py:1", len(tasks), tasks, slots, 10.0, 40.0, **others)


def cause(seconds: list[float], records: list[float], **columns: Any) -> Cause:
    run = stage(TaskColumns.of(seconds, records, **columns))
    return cause_of(run, lost_time(run))


def found(run: StageRun, operator: Operator | None = None, others: tuple[tuple[float, float], ...] = ()) -> Finding:
    lost = worth_keeping(run)
    assert lost is not None
    kind = operator or Operator("group_apply", "FlatMapGroupsInPandas", ((KeyColumn("user", True),),), 16)
    (finding,) = findings(APPLICATION, [SkewedStage(run, lost, kind, None)], [(10.0, 40.0), *others])
    return finding


# -- what was lost


def test_a_hot_task_loses_what_even_tasks_would_have_saved() -> None:
    """45 seconds of work on four slots are 11.25; the hot task alone takes 30."""
    lost = lost_time(stage(TaskColumns.of(HOT, HOT)))
    assert (lost.taken, lost.ideal) == (30.0, 45 / 4)
    assert lost.gain == pytest.approx(30 - 45 / 4)


def test_even_tasks_lose_nothing() -> None:
    """Sixteen alike on four slots; also with the noise of a tenth that tasks have."""
    noise = 1 + 0.1 * np.random.default_rng(1).random(16)
    assert worth_keeping(stage(TaskColumns.of(EVEN, EVEN))) is None
    assert worth_keeping(stage(TaskColumns.of(EVEN * noise, EVEN))) is None


def test_what_a_task_takes_beside_its_records_is_not_promised() -> None:
    """A task with twice the records and ten times the time: only what the records explain is called a gain."""
    seconds, records = [30.0, *[3.0] * 15], [20.0, *[10.0] * 15]
    lost = lost_time(stage(TaskColumns.of(seconds, records), slots=16))
    assert lost.taken - lost.ideal > 20
    assert lost.gain < 4


def test_the_gain_is_never_above_what_was_measured() -> None:
    """Small tasks whose fixed cost makes a record look dear."""
    seconds, records = [2.0, *[1.0] * 15], [1_000.0, *[1.0] * 15]
    lost = lost_time(stage(TaskColumns.of(seconds, records), slots=16))
    assert lost.gain <= lost.total


# -- why


@pytest.mark.parametrize(
    ("records", "columns", "kind"),
    [
        (HOT, {}, "rows"),
        (EVEN, {"bytes": HOT}, "rows"),
        (EVEN, {"gc": [20.0, *[0.0] * 15]}, "gc"),
        (EVEN, {"fetch": [20.0, *[0.0] * 15]}, "fetch"),
        (EVEN, {"spilled": [1e9, *[0.0] * 15]}, "spill"),
        (EVEN, {}, "costly rows"),
    ],
)
def test_the_cause_is_what_the_long_task_had_more_of(records: list[float], columns: Any, kind: str) -> None:
    """Rows, bytes, garbage collection, waiting for blocks, spill; else nothing that a log knows."""
    assert cause(HOT, records, **columns).kind == kind


def test_a_slow_host_is_no_skew() -> None:
    """Its four tasks take three times as long for as many records; one of 64 tasks alone would be no proof."""
    seconds = [9.0] * 4 + [3.0] * 12
    assert cause(seconds, EVEN, host=[0] * 4 + [1] * 12).kind == "slow host"


def test_skew_on_a_slow_host_is_skew() -> None:
    """The hot task reads more, wherever it runs."""
    assert cause(HOT, HOT, host=[0] + [1] * 15).kind == "rows"


def test_few_tasks_are_no_skew() -> None:
    """Two even tasks on four slots: another placement changes nothing, more tasks do."""
    run = stage(TaskColumns.of([8.0, 8.0], [5, 5]))
    finding = found(run)
    assert (finding.cause.kind, finding.is_skew) == ("few tasks", False)
    assert "coalescePartitions" in finding.remedy.words
    assert not finding.remedy


def test_doubts_make_it_less_sure_and_are_told() -> None:
    """Another stage at the same time, a stage that has not ended, a second attempt: one step each."""
    assert found(stage(TaskColumns.of(HOT, HOT))).cause.sureness == "sure"
    crowded = found(stage(TaskColumns.of(HOT, HOT)), others=((15.0, 35.0),)).cause
    assert crowded.sureness == "likely"
    assert "same time" in crowded.reasons[-1]
    run = StageRun(3, 1, "", 16, TaskColumns.of(HOT, HOT), 4, 10.0, None)
    assert found(run).cause.sureness == "unsure"


def test_what_aqe_has_split_is_told() -> None:
    """What is left of a join that AQE has split is still shown, and says so."""
    finding = found(stage(TaskColumns.of(HOT, HOT)), Operator("join", "SortMergeJoin", (), 8, aqe_split=True))
    assert any("AQE has split" in note for note in finding.notes)


def test_a_stage_of_nothing_is_no_trouble() -> None:
    """No task, no time, no record."""
    for tasks in (TaskColumns.of([], []), TaskColumns.of([0.0], [0.0]), TaskColumns.of([0.0] * 4, [0.0] * 4)):
        assert worth_keeping(stage(tasks)) is None


# -- the operator


def exchange(text: str, reads: int, *children: PlanNode, name: str = "Exchange") -> PlanNode:
    return PlanNode(name, f"{name} {text}", reads=frozenset({reads}), children=children)


def over(name: str, text: str, *children: PlanNode, metric: int = 99) -> PlanNode:
    return PlanNode(name, f"{name} {text}", frozenset({metric}), frozenset(), children)


SCAN = PlanNode("Scan parquet", "Scan parquet")
USERS = exchange("hashpartitioning(user#1L, 8), ENSURE_REQUIREMENTS, [plan_id=1]", 5, SCAN)
NAMES = exchange("hashpartitioning(uid#2L, 8), ENSURE_REQUIREMENTS, [plan_id=2]", 6, SCAN)
JOIN = over("SortMergeJoin", "[user#1L], [uid#2L], LeftOuter", over("Sort", "[user#1L ASC]", USERS), NAMES)


def test_a_join_has_the_keys_of_both_sides_and_its_type() -> None:
    """In Spark's order, whichever side's rows were counted."""
    operator = operator_of(JOIN, frozenset({6}))
    assert (operator.kind, operator.how, operator.partitions) == ("join", "LeftOuter", 8)
    assert operator_of(JOIN, frozenset({5, 6, 99})).key_text == "user = uid"


def test_the_stage_after_the_next_exchange_has_its_own_operator() -> None:
    """A window by shop over a join by user: two stages, two operators."""
    window = over("Window", "[sum(x)], [shop#3]", exchange("hashpartitioning(shop#3, 8)", 7, JOIN))
    assert operator_of(window, frozenset({7})).key_text == "shop"
    assert operator_of(window, frozenset({5, 6})).kind == "join"
    assert operator_of(window, frozenset({1})).kind == "scan"


@pytest.mark.parametrize(
    ("node", "text", "kind"),
    [
        ("FlatMapGroupsInPandas", "[user#1L], f(user#1L)#9", "group_apply"),
        ("FlatMapGroupsInArrow", "[user#1L], f(user#1L)#9", "group_apply"),
        ("Window", "[rank(x#3)], [user#1L], [x#3 ASC]", "window"),
        ("WindowInPandas", "[mean(x#3)], [user#1L]", "window"),
        ("ObjectHashAggregate", "(keys=[user#1L], functions=[collect_list(x#3)])", "aggregate"),
        ("HashAggregate", "(keys=[], functions=[partial_count(1)])", "repartition"),
        ("Project", "[user#1L]", "repartition"),
        ("FlatMapCoGroupsInPandas", "[user#1L], [uid#2L], f()", "cogroup"),
    ],
)
def test_the_operator_is_what_needs_the_exchange(node: str, text: str, kind: str) -> None:
    """Not what merely stands above it: a partial aggregate over a repartition goes by no key."""
    operator = operator_of(over(node, text, USERS), frozenset({5}))
    assert (operator.kind, operator.key_text) == (kind, "user")


def test_the_way_goes_through_nodes_without_numbers() -> None:
    """Python nodes of older releases have no accumulators, and AQE's own nodes stand between."""
    read = PlanNode("AQEShuffleRead", "AQEShuffleRead coalesced and skewed", children=(USERS,))
    python = PlanNode("FlatMapGroupsInPandas", "FlatMapGroupsInPandas [user#1L], f()", children=(read,))
    operator = operator_of(PlanNode("AdaptiveSparkPlan", "AdaptiveSparkPlan", children=(python,)), frozenset({5}))
    assert (operator.kind, operator.aqe_split) == ("group_apply", True)


def test_a_reused_exchange_has_the_operator_that_ran() -> None:
    """The Exchange stands under one operator, is read again under another: accumulators tell which of them ran."""
    reused = PlanNode("ReusedExchange", "ReusedExchange [user#7L], Exchange hashpartitioning(user#1L, 8), [plan_id=1]")
    plan = over(
        "Union", "", over("Window", "[], [user#1L]", USERS, metric=1), over("SortMergeJoin", "x", reused, metric=2)
    )
    assert operator_of(plan, frozenset({5, 1})).kind == "window"


@pytest.mark.parametrize(("scheme", "kind"), [("SinglePartition", "single"), ("rangepartitioning(a#1 ASC, 8)", "sort")])
def test_partitionings_without_a_hash_have_no_key(scheme: str, kind: str) -> None:
    """Nothing that a plan of unskew could change."""
    operator = operator_of(over("Window", "[], []", exchange(scheme, 5, SCAN)), frozenset({5}))
    assert (operator.kind, operator.key_text) == (kind, "")
    assert not remedy_of(operator)
    assert remedy_of(operator).words


@pytest.mark.parametrize(
    "text",
    [
        "hashpartitioning(",
        "hashpartitioning(a#1, b#2",
        "hashpartitioning)))",
        "hashpartitioning()",
        "",
        "Exchange [((((",
        "?",
    ],
)
def test_a_text_that_is_cut_gives_no_key_and_no_error(text: str) -> None:
    """Spark cuts long texts; a hostile log has anything."""
    _scheme, parts = partitioning(text)
    assert parts == ()
    assert operator_of(over("Window", "", exchange(text, 5)), frozenset({5})).key_text == ""


def test_deep_plans_are_walked_without_recursion() -> None:
    """Ten thousand projections."""
    plan = USERS
    for _ in range(10_000):
        plan = PlanNode("Project", "Project [user#1L]", children=(plan,))
    assert operator_of(plan, frozenset({5})).kind == "repartition"


# -- what to write


@pytest.mark.parametrize("name", ["user", "a b", "it's", 'quo"te', "x\ny", "'); import os; ('", "\\", "ключ"])
@pytest.mark.parametrize("kind", ["join", "group_apply", "aggregate", "repartition"])
def test_what_is_to_be_written_is_python_whatever_a_column_is_called(name: str, kind: str) -> None:
    """One call each, whose arguments have the column's name as it is."""
    remedy = remedy_of(Operator(kind, "", ((KeyColumn(name, True),), (KeyColumn("other", True),))))
    for line in (remedy.advise, remedy.write):
        (statement,) = ast.parse(line).body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        assert name in [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]


def test_an_expression_as_key_is_written_as_one() -> None:
    """Of a join it has to be a column first."""
    key = key_column("cast(a#3 as bigint)")
    assert "F.expr('cast(a as bigint)')" in remedy_of(Operator("group_apply", "", ((key,),))).advise
    assert not remedy_of(Operator("join", "", ((key,), (key,))))

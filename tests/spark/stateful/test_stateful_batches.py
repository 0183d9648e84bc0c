"""``stateful()`` on a local Spark, batch by batch: results, a driver that dies, tasks that fail, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from unskew.core.errors import ConfigError, KeyTypeError, StateError
from unskew.spark import Unskew
from unskew.spark.folders import Folder
from unskew.spark.stateful import Stateful, read_report, stateful

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streams")]

PARTITIONS = 3
OUTPUT, STATE = "user string, shop int, n bigint", "n bigint"


def count(key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
    """Rows of a key so far; one with a row of 0 is forgotten."""
    n = (state["n"] if state else 0) + len(rows)
    return [(*key, n)], None if (rows["v"] == 0).any() else {"n": n}


def count_table(rows: pa.Table, states: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same, all keys of a task at once."""
    names = ["user", "shop"]
    new = rows.select(names).append_column("n", pa.array(np.ones(rows.num_rows, np.int64)))
    summed = pa.concat_tables([new, states]).group_by(names).aggregate([("n", "sum")]).rename_columns([*names, "n"])
    least = rows.group_by(names).aggregate([("v", "min")]).sort_by([(name, "ascending") for name in names])
    summed = summed.sort_by([(name, "ascending") for name in names])
    return summed, summed.filter(pa.compute.greater(least["v_min"], 0))


@dataclass
class Clicks:
    """Batches of rows and what a dict makes of them."""

    spark: SparkSession
    batches: list[list[tuple[str | None, int, int]]]
    states: dict[tuple[str | None, int], int] = field(default_factory=dict)

    @classmethod
    def drawn(cls, spark: SparkSession, batches: int, rows: int = 300, keys: int = 150, seed: int = 1) -> Clicks:
        rng = np.random.default_rng(seed)

        def row(number: int) -> tuple[str | None, int, int]:
            user = int(rng.zipf(1.4)) % keys
            return (
                None if user == 7 else f"user-{user + 10 * number}",
                int(rng.integers(0, 2)),
                int(rng.integers(0, 20)),
            )

        return cls(spark, [[row(number) for _ in range(rows)] for number in range(batches)])

    def frame(self, batch: int) -> DataFrame:
        return self.spark.createDataFrame(self.batches[batch], "user string, shop int, v int")

    def expected(self, batch: int) -> set[tuple[str | None, int, int]]:
        """The output of this batch, which has to be the next one."""
        rows = self.batches[batch]
        for key, new in Counter((user, shop) for user, shop, _ in rows).items():
            self.states[key] = self.states.get(key, 0) + new
        found = {(*key, self.states[key]) for key in {(user, shop) for user, shop, _ in rows}}
        for user, shop, value in rows:
            if value == 0:
                self.states.pop((user, shop), None)
        return found


@dataclass
class Seen:
    """A handler that keeps what it gets."""

    batches: dict[int, list[Row]] = field(default_factory=dict)

    def __call__(self, out: DataFrame, batch: int) -> None:
        self.batches[batch] = out.collect()

    def of(self, batch: int) -> set[tuple[Any, ...]]:
        rows = [tuple(row) for row in self.batches[batch]]
        assert len(set(rows)) == len(rows)
        return set(rows)


def counting(spark: SparkSession, folder: Path, handle: Any, partitions: int = PARTITIONS, **given: Any) -> Stateful:
    """A new life of the query."""
    sk = Unskew(spark, stream="clicks", partitions=partitions)
    arguments = {"key": ["user", "shop"], "fn": count, "schema": OUTPUT, "state": STATE} | given
    return stateful(sk, handle, checkpoint=str(folder), name="q", **arguments)


@pytest.mark.parametrize(
    ("form", "fn"), [("pandas", count), pytest.param("table", count_table, marks=pytest.mark.long)]
)
def test_batches_give_what_a_dict_gives(spark: SparkSession, tmp_path: Path, form: str, fn: Callable[..., Any]) -> None:
    """Two key columns, NULL among the keys; keys come anew, are forgotten and come back; plans change on the way."""
    clicks, seen = Clicks.drawn(spark, 4), Seen()
    query = counting(spark, tmp_path, seen, form=form, fn=fn, parameters={"gate": False, "slack": 0.0})
    plans, moved = set(), 0
    for batch in range(4):
        query(clicks.frame(batch), batch)
        assert seen.of(batch) == clicks.expected(batch)
        report = query.report
        assert report is not None
        assert report.state_keys == len(clicks.states)
        plans.add(report.plan)
        moved += report.figures.moved
    assert len(plans) == 4, "each batch had another plan"
    assert str(report).startswith("batch 3: 300 rows of ")
    assert read_report(str(tmp_path), "q") == query.report
    assert moved > 0
    assert garbage(query) == set()


def test_another_number_of_partitions_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """The state moves to the new places, and counts go on."""
    clicks, seen = Clicks.drawn(spark, 3), Seen()
    for batch, partitions in enumerate((4, 2, 5)):
        counting(spark, tmp_path, seen, partitions)(clicks.frame(batch), batch)
        assert seen.of(batch) == clicks.expected(batch)


def test_keys_and_times_are_found_whatever_their_names_look_like(spark: SparkSession, tmp_path: Path) -> None:
    """In another case, and with a dot; floats of two zeros and two NaNs are two keys, as Spark groups them."""
    seen = Seen()
    query = counting(
        spark, tmp_path, seen, key="The.Key", fn=lambda key, rows, state: ([(str(key[0] + 0.0), len(rows))], None),
        schema="key string, n bigint",
    )  # fmt: skip
    frame = spark.createDataFrame([(0.0, 1), (-0.0, 1), (float("nan"), 1), (1.5, 1)], "`the.key` double, v int")
    query(frame.unionAll(frame.selectExpr("-`the.key`", "v")), 0)
    assert seen.of(0) == {("0.0", 4), ("nan", 2), ("1.5", 1), ("-1.5", 1)}


# -- failures ---------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The driver does, as far as this query is concerned."""


def dies(*_: object) -> None:
    raise Died


@pytest.mark.parametrize("step", ["before the commit", "before the handler", "after the handler"])
def test_a_driver_that_dies_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A new life runs the batch again: output and states are those of a dict, work that was committed is not done
    again, and after one more batch no file is there that no manifest lists."""
    clicks, seen, runs = Clicks.drawn(spark, 3, rows=120), Seen(), Counter[int]()

    def handle(out: DataFrame, batch: int) -> None:
        if batch == 1 and step == "before the handler" and runs[1] == 0:
            runs[1] += 1
            raise Died
        seen(out, batch)
        if batch == 1 and step == "after the handler" and runs[1] == 0:
            runs[1] += 1
            raise Died

    query = counting(spark, tmp_path, handle)
    query(clicks.frame(0), 0)
    with monkeypatch.context() as patch:
        if step == "before the commit":
            patch.setattr(Folder, "create", dies)
        with pytest.raises(Died):
            query(clicks.frame(1), 1)
    query = counting(spark, tmp_path, handle)
    log = Folder(tmp_path / "unskew/q/state")
    files = set(log.names("data"))
    query(clicks.frame(1), 1)
    assert (set(log.names("data")) == files) == (step != "before the commit")
    clicks.expected(0)
    assert seen.of(1) == clicks.expected(1)
    query(clicks.frame(2), 2)
    assert seen.of(2) == clicks.expected(2)
    assert garbage(query) == set()


def garbage(query: Stateful) -> set[str]:
    """Files that the last two manifests do not list."""
    from unskew.spark.stateful.manifest_log import Log, state_folder

    log = Log(state_folder(query.settings.checkpoint, query.settings.name))
    kept = [log.read(batch) for batch in log.committed()]
    assert len(kept) == 2
    listed = {name for one in kept for name in (*one.files, *one.outputs)}
    return {*log.folder.names("data"), *log.folder.names("output")} - listed


def test_tasks_that_fail_once_run_again(tmp_path: Path) -> None:
    """A task that has written its files and fails after it leaves them behind, and they are not listed. (A local
    session gives a task one attempt only, so this is the task by itself.)"""
    from tests.spark.stateful.alone import Alone, random_plan, rows_of

    query = Alone(tmp_path)
    plan = random_plan(np.random.default_rng(1), 2, np.zeros(0, np.uint64))
    query.run(rows_of(["a", "b", "a"], [1, 2, 3]), plan)
    query.run(rows_of(["a", "b", "c"], [1, 2, 3]), plan, attempts=3)
    assert query.counts() == {"a": 5, "b": 4, "c": 3}
    assert len(list((tmp_path / "data").iterdir())) > len({name for part in query.parts for name in part.names})


def test_a_checkpoint_that_was_set_back_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """So is one that ran on without its state, and the state is as it was."""
    clicks = Clicks.drawn(spark, 3, rows=20)
    query = counting(spark, tmp_path, Seen())
    query(clicks.frame(0), 5)
    with pytest.raises(StateError, match=r"batch 3 is to run and the state is of batch 5.*set back"):
        query(clicks.frame(1), 3)
    with pytest.raises(StateError, match="batch 8 is to run and the state is of batch 5: the batches between"):
        query(clicks.frame(1), 8)
    query(clicks.frame(1), 6)
    assert query.report is not None
    assert query.report.batch == 6


def test_damaged_and_missing_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """A job that would go on with a wrong state fails instead."""
    from unskew.spark.stateful.blocks import Reader
    from unskew.spark.stateful.manifest_log import Log, state_folder

    clicks = Clicks.drawn(spark, 1, rows=50)
    counting(spark, tmp_path, Seen())(clicks.frame(0), 0)
    folder = state_folder(str(tmp_path), "q")
    part = Log(folder).read(0).parts[0]
    reader = Reader(folder.sub("data"), pa.schema([]))
    file = tmp_path / "unskew/q/state/data" / part.files[-1].name
    whole = file.read_bytes()
    file.write_bytes(whole[:-3] + b"abc")
    with pytest.raises(StateError, match=r"\.state is damaged: a checksum does not fit"):
        reader.index(part)
    file.write_bytes(b"abc" + whole[3:])
    with pytest.raises(StateError, match="is damaged"):
        reader.raw(part, reader.index(part))
    file.unlink()
    with pytest.raises(StateError, match="is listed by the last manifest and is not there"):
        reader.index(part)


# -- time -------------------------------------------------------------------------------------------------------


def session_of(key: tuple[Any, ...], rows: pd.DataFrame, state: dict[str, Any] | None) -> tuple[Any, Any]:
    """Closed by time: a row when it ends, none before."""
    if rows.empty:
        assert state is not None
        return [(key[0], state["n"])], None
    n = (state["n"] if state else 0) + len(rows)
    return None, {"n": n, "expires": int(rows["at"].max()) + 1000}


def test_keys_expire_by_event_time(spark: SparkSession, tmp_path: Path) -> None:
    """A key without new rows is closed by the time that other keys' rows have told, in the batch after; a key that
    comes back after it has expired begins anew; one that is still open goes on."""
    seen = Seen()
    sessions = counting(
        spark, tmp_path, seen, key="user", fn=session_of, schema="user string, n bigint",
        state="n bigint, expires bigint", time="at",
    )  # fmt: skip
    batches = [
        [("a", 0), ("b", 100), ("a", 500)],
        [("b", 600), ("c", 1500)],  # the clock was 500: nobody is due
        [("a", 1600)],  # 1500: a is closed by it, and begins anew
        [("d", 5000)],  # 1600: b is closed
        [],  # 5000: a and c are closed, d is not
    ]
    for batch, rows in enumerate(batches):
        sessions(spark.createDataFrame(rows, "user string, at bigint"), batch)
    closed = {number: seen.of(number) for number in range(5)}
    assert closed == {0: set(), 1: set(), 2: {("a", 2)}, 3: {("b", 2)}, 4: {("a", 1), ("c", 1)}}
    assert sessions.report is not None
    assert (sessions.report.state_keys, sessions.report.figures.expired) == (1, 2)


# -- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"checkpoint": "/data/run[1]"}, r"checkpoint: '/data/run\[1\]' .*Spark reads those as a pattern"),
        ({"checkpoint": None}, "checkpoint: None is not allowed; use the query's checkpointLocation"),
        ({"name": "a/b"}, "name: 'a/b' is not allowed"),
        ({"key": []}, "key: .* names of columns"),
        ({"fn": lambda rows: rows}, r"fn: 'a function of 1 arguments' .* fn\(key, rows, state\)"),
        ({"form": "table"}, r"fn: 'a function of 3 arguments' .* fn\(rows, states\)"),
        ({"form": "rows"}, "form: 'rows' is not allowed; use one of pandas, arrow, table"),
        ({"handle": None}, "handle: None"),
        ({"state": "n bigit"}, "state: 'n bigit' is not allowed; use columns and types"),
        ({"state": "user string"}, "state: 'user' is not allowed; .* no key's"),
        ({"state": "n bigint, n int"}, "state: 'n'"),
        ({"state": "n interval year"}, "state: .* types that Arrow and Parquet can carry"),
        ({"schema": "n interval month"}, "schema: .* types that Arrow and Parquet can carry"),
        ({"policy": "balanced"}, "policy: 'balanced' is not allowed; use one that keeps keys whole"),
        ({"policy": "best"}, "'best'"),
        ({"parameters": {"slack": 7}}, "slack: 7"),
        ({"block": 0}, "block: 0"),
        ({"delay": -1}, "delay: -1"),
        ({"time": "v"}, "time: 'v' is not allowed; use a state with a column expires"),
        ({"state": "expires bigint"}, "time: None .* event time"),
        ({"state": "expires string", "time": "v"}, "state: 'expires string'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    """Before the query starts, by the name of the argument."""
    sk = Unskew(spark, stream="clicks", partitions=2)
    arguments = {"handle": Seen(), "key": "user", "fn": count, "schema": OUTPUT, "state": STATE}
    arguments |= {"checkpoint": str(tmp_path), "name": "q"} | given
    with pytest.raises(ConfigError, match=told):
        stateful(sk, **arguments)


def test_another_querys_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """By what is other; nothing of it is touched."""
    clicks = Clicks.drawn(spark, 1, rows=20)
    counting(spark, tmp_path, Seen())(clicks.frame(0), 0)
    files = sorted(tmp_path.rglob("*"))
    for given, told in (
        ({"key": "user"}, r"key_names \('user', 'shop'\), not \('user',\)"),
        ({"state": "n int"}, "state 'struct<n:bigint>', not 'struct<n:int>'"),
    ):
        with pytest.raises(StateError, match=f"of another query: .*{told}"):
            counting(spark, tmp_path, Seen(), **given)(clicks.frame(0), 1)
    with pytest.raises(StateError, match="key_types"):
        counting(spark, tmp_path, Seen())(clicks.frame(0).selectExpr("user", "cast(shop as bigint) shop", "v"), 1)
    (tmp_path / "metadata").write_text('{"id": "6e0a"}')
    with pytest.raises(StateError, match="query '', not '6e0a'"):
        counting(spark, tmp_path, Seen())(clicks.frame(0), 1)
    (tmp_path / "metadata").unlink()
    assert sorted(tmp_path.rglob("*")) == files


def test_frames_without_what_was_named_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """In the first batch, before any job; no state is begun."""
    frame = spark.createDataFrame([("a", 1, 1.5)], "user string, v int, at double")
    for given, kind, told in (
        ({"key": "usr"}, ConfigError, "key: 'usr' is not allowed; use a column of the stream: user, v, at"),
        ({"key": "user", "time": "when", "state": "expires bigint"}, ConfigError, "time: 'when'"),
        ({"key": "user", "time": "at", "state": "expires bigint"}, ConfigError, "time: 'at double'"),
    ):
        with pytest.raises(kind, match=told):
            counting(spark, tmp_path, Seen(), **given)(frame, 0)
    with pytest.raises(KeyTypeError, match="key column `nothing` is void"):
        counting(spark, tmp_path, Seen(), key="nothing")(frame.selectExpr("null nothing", "v"), 0)
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_gone_is_named_and_files_of_others_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """A copy of the checkpoint that lacks a file: fewer rows would look like a batch like any other."""
    clicks = Clicks.drawn(spark, 3, rows=50)
    state = tmp_path / "unskew/q/state"
    counting(spark, tmp_path, Seen())(clicks.frame(0), 0)
    for sub in ("data", "output", "manifests"):
        (state / sub / ".DS_Store").write_bytes(b"")
        (state / sub / "notes-of-mine.txt").write_bytes(b"")
    query = counting(spark, tmp_path, Seen())
    query(clicks.frame(1), 1)
    written = sorted(path for path in (state / "output").iterdir() if path.name.startswith("1-"))
    written[0].unlink()
    with pytest.raises(StateError, match=r"1 of \d+ files that batch 1 has written are gone"):
        counting(spark, tmp_path, Seen())(clicks.frame(1), 1)
    assert (state / "data" / "notes-of-mine.txt").exists()

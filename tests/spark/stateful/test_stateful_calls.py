"""What a function of a key's rows and state gets, what it may give back, and what is said of anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.spark.stateful.alone import Alone, rows_of
from unskew.core import Histogram, make_planner
from unskew.core.errors import ConfigError
from unskew.spark.folders import Folder
from unskew.spark.stateful.calls import _slices

PLAN = make_planner("kip", 1).plan(Histogram.empty())
ROWS = rows_of(["b", "a", "b", None], [1, 2, 3, 4])


def run(folder: Path, fn: Callable[..., Any], form: str = "pandas", times: int = 1) -> Alone:
    query = Alone(folder, fn, form)
    for _ in range(times):
        query.run(ROWS, PLAN)
    return query


@pytest.mark.parametrize(
    ("form", "rows"), [("pandas", lambda rows: list(rows["v"])), ("arrow", lambda rows: rows["v"].to_pylist())]
)
def test_each_key_is_called_once_with_its_rows_and_its_state(tmp_path: Path, form: str, rows: Any) -> None:
    """Rows in the order in which they came, all their columns; a state as a dict, None for a new key."""
    seen: list[Any] = []

    def fn(key: tuple[Any, ...], own: Any, state: dict[str, Any] | None) -> tuple[Any, Any]:
        seen.append((key, rows(own), list(own.columns if form == "pandas" else own.column_names), state))
        return None, (len(seen),)

    query = run(tmp_path, fn, form, times=2)
    assert sorted(seen[:3], key=repr) == [
        (("a",), [2], ["user", "v"], None),
        (("b",), [1, 3], ["user", "v"], None),
        ((None,), [4], ["user", "v"], None),
    ]
    assert sorted(state["n"] for *_, state in seen[3:]) == [1, 2, 3]
    assert query.outputs() == []


_BEYOND_FLOATS = (1 << 53) + 1


def test_one_key_s_null_does_not_change_another_key_s_numbers(tmp_path: Path) -> None:
    """pandas makes floats of a column of integers that has a NULL: which keys share a task is the plan's affair."""
    seen: dict[Any, Any] = {}

    def fn(key: tuple[Any, ...], own: Any, state: Any) -> tuple[Any, Any]:
        seen[key[0]] = (str(own["v"].dtype), own["v"].tolist(), own.index.tolist())
        return None, None

    users = ["a", "b", "b", "c"]
    Alone(tmp_path, fn, "pandas").run(rows_of(users, [_BEYOND_FLOATS, 1, None, 2]), PLAN)
    assert (seen["a"], seen["c"]) == (("int64", [_BEYOND_FLOATS], [0]), ("int64", [2], [0]))
    assert (seen["b"][0], seen["b"][2]) == ("float64", [0, 1])
    assert np.isnan(seen["b"][1]).tolist() == [False, True]


def test_what_is_inside_of_other_values_is_its_key_s_own_too() -> None:
    big = _BEYOND_FLOATS
    kinds = {"l": pa.list_(pa.int64()), "s": pa.struct([("a", pa.int64())]), "m": pa.map_(pa.string(), pa.int64())}
    values = {"l": [[big], [1, None]], "s": [{"a": big}, {"a": None}], "m": [[("a", big)], [("b", None)]]}
    own = _slices("pandas", pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()}))
    assert [own(0, 1)[name][0] for name in ("s", "m")] == [{"a": big}, [("a", big)]]
    assert own(0, 1)["l"][0].tolist() == [big]


def test_one_key_s_output_does_not_change_another_key_s(tmp_path: Path) -> None:
    def fn(key: tuple[Any, ...], own: Any, state: Any) -> tuple[Any, Any]:
        return pd.DataFrame({"user": list(key), "n": [_BEYOND_FLOATS if key[0] == "a" else None]}), None

    query = run(tmp_path, fn)
    assert {row["user"]: row["n"] for row in query.outputs()} == {"a": _BEYOND_FLOATS, "b": None, None: None}


def test_a_column_that_one_key_s_output_lacks_is_told_beside_others(tmp_path: Path) -> None:
    def fn(key: tuple[Any, ...], own: Any, state: Any) -> tuple[Any, Any]:
        return pd.DataFrame({"user": ["x"], **({"n": [1]} if key[0] == "a" else {})}), None

    with pytest.raises(ConfigError, match=r"output of fn: .* n is not there"):
        run(tmp_path, fn)


@pytest.mark.parametrize(
    "output",
    [
        [("x", 1)],
        [{"n": 1, "user": "x"}],
        pd.DataFrame({"n": [1], "user": ["x"], "other": [2.5]}),
        pa.table({"n": pa.array([1], pa.int32()), "user": ["x"]}),
        pa.record_batch({"user": ["x"], "n": [1]}),
    ],
)
def test_output_may_be_a_list_a_frame_or_a_table(tmp_path: Path, output: Any) -> None:
    """Columns by name, in the types of the schema."""
    query = run(tmp_path, lambda key, rows, state: (output, None))
    assert query.outputs() == [{"user": "x", "n": 1}] * 3
    assert query.counts() == {}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, r"fn: None is not allowed; use a function that returns \(output rows or None, new state or None\)"),
        (([], None, 1), "fn: "),
        ((None, {"m": 1}), "state of fn: {'m': 1} is not allowed; use a dict or a tuple of n"),
        ((None, 5), "state of fn: 5"),
        ((None, ("five",)), "state of fn: .*values of the types n int64"),
        (([("x",)], None), r"output of fn: \('x',\) .* a dict or a tuple of user, n"),
        (("x", None), "output of fn: 'str' .* a pandas frame, an Arrow table, or a list of rows"),
        ((pd.DataFrame({"user": ["x"]}), None), "output of fn: .* n is not there"),
        ((pd.DataFrame({"user": ["x"], "n": ["five"]}), None), "output of fn: .*types user string, n int64"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path: Path, answer: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(tmp_path, lambda key, rows, state: answer)


@pytest.mark.parametrize(
    ("keys", "told"),
    [(["a", "c"], "'c'.*other keys are another task's"), (["b", "b"], "each key of the call at most once")],
)
def test_states_of_other_keys_and_two_of_one_are_refused(tmp_path: Path, keys: list[str], told: str) -> None:
    """They would be lost, for they are looked for elsewhere, or one of them would."""
    states = pa.table({"user": keys, "n": [1, 2]})
    with pytest.raises(ConfigError, match=told):
        run(tmp_path, lambda rows, states_: (None, states), "table")


def test_keys_that_are_not_among_the_states_are_forgotten(tmp_path: Path) -> None:
    states = pa.table({"n": pa.array([7], pa.int32()), "user": ["b"]})
    query = run(tmp_path, lambda rows, _: (None, states), "table")
    assert query.counts() == {"b": 7}
    query.fn = lambda rows, _: (None, None)
    query.run(ROWS, PLAN)
    assert query.counts() == {}
    assert query.parts[0].files == ()


def test_a_store_over_a_network_is_asked_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps between blocks are read too, where they are short; what comes out is the same."""
    users = [f"user-{one}" for one in range(2_000)]
    near, far = Alone(tmp_path / "near"), Alone(tmp_path / "far")
    near.run(rows_of(users, [1] * 2_000), PLAN)
    some = rows_of(users[::100], [2] * 20)
    read = near.run(some, PLAN).bytes_read
    monkeypatch.setattr(Folder, "local", None)
    far.run(rows_of(users, [1] * 2_000), PLAN)
    assert far.run(some, PLAN).bytes_read > 3 * read
    assert far.counts() == near.counts()

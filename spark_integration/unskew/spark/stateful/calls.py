"""The user's function of a key's rows and state, called by a task: how it is given both, and what it may give back.

- ``form="pandas"`` and ``"arrow"``: ``fn(key, rows, state)`` for each key. ``key`` is a tuple, ``rows`` a frame or a
  table with all columns of the stream, ``state`` a dict of the state's columns, or None where the key has none. It
  returns ``(output, state)``: rows as a frame, a table or a list of tuples or dicts, or None for none; and the new
  state as a dict or a tuple, or None: forget the key.
- ``form="table"``: ``fn(rows, states)`` for all keys of a task at once, as Arrow tables. ``states`` has the key's
  columns and the state's, a row for each key that has one. It returns ``(output, states)``: keys of this call that are
  not among the states are forgotten.

Where keys expire the function is called for those first, without rows; then for the rows that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
from numpy.typing import NDArray

from unskew.core.errors import ConfigError
from unskew.spark.stateful.grouping import key_codes

__all__ = ["FORMS", "CallResult", "KeyedRows", "Shapes", "call", "check_arity"]

Function = Callable[..., Any]
FORMS = {"pandas": "fn(key, rows, state)", "arrow": "fn(key, rows, state)", "table": "fn(rows, states)"}
_NOTHING = (0, False)  # what stands for a NULL where it is not looked at
_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_arity(fn: object, form: str) -> None:
    """Refuse what could not be called."""
    arguments = FORMS[form].count(",") + 1
    if not callable(fn):
        raise ConfigError("fn", fn, f"a function, {FORMS[form]}, for form={form!r}")
    try:
        given = list(signature(fn).parameters.values())
    except (TypeError, ValueError):  # some of those written in C do not say
        return
    if any(one.kind is Parameter.VAR_POSITIONAL for one in given):
        return
    positional = [one for one in given if one.kind in _KINDS]
    needed = [one for one in positional if one.default is Parameter.empty]
    keyword = [one for one in given if one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty]
    if keyword or not len(needed) <= arguments <= len(positional):
        raise ConfigError("fn", f"a function of {len(needed)} arguments", f"{FORMS[form]} for form={form!r}")


@dataclass(frozen=True, eq=False)
class Shapes:
    """The columns of what goes in and comes out."""

    key: pa.Schema
    state: pa.Schema
    output: pa.Schema


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """Keys, their rows, one key after another from ``starts`` on, and their states where they have one."""

    keys: pa.Table
    rows: pa.Table
    starts: NDArray[np.int64]
    states: pa.Table
    has_state: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CallResult:
    """Output rows; and which of the keys have a state now, ascending, and these states."""

    output: pa.Table
    which: NDArray[np.int64]
    states: pa.Table


def call(fn: Function, form: str, shapes: Shapes, keyed: KeyedRows) -> CallResult:
    """The function's answer for these keys."""
    return _of_table(fn, shapes, keyed) if form == "table" else _of_keys(fn, form, shapes, keyed)


# -- a key at a time --------------------------------------------------------------------------------------------


def _of_keys(fn: Function, form: str, shapes: Shapes, keyed: KeyedRows) -> CallResult:
    outputs: list[Any] = []
    which: list[int] = []
    states: list[Any] = []
    for number, (key, rows, state) in enumerate(_each(form, keyed)):
        output, new = _pair(fn(key, rows, state))
        if output is not None:
            outputs.append(output)
        if new is not None:
            which.append(number)
            states.append(new)
    return CallResult(_output(outputs, shapes.output), np.array(which, np.int64), _rows(states, shapes.state, "state"))


def _each(form: str, keyed: KeyedRows) -> Iterator[tuple[tuple[Any, ...], Any, dict[str, Any] | None]]:
    keys = zip(*(column.to_pylist() for column in keyed.keys.columns), strict=True)
    states = keyed.states.to_pylist()
    own = _slices(form, keyed.rows)
    starts = keyed.starts.tolist()
    for number, (key, has_state) in enumerate(zip(keys, keyed.has_state.tolist(), strict=True)):
        yield key, own(starts[number], starts[number + 1]), states[number] if has_state else None


def _slices(form: str, rows: pa.Table) -> Callable[[int, int], Any]:
    """A key's rows by where they begin and end, as its function wants them. pandas makes floats of integers, and
    objects of booleans, where a column has a NULL: another key's must not do that to this one's."""
    if form != "pandas":
        return lambda start, stop: rows.slice(start, stop - start)
    whole = [at for at, column in enumerate(rows.columns) if column.null_count and _is_whole(column.type)]
    if any(_lacks_inside(column) for column in rows.columns):
        return lambda start, stop: rows.take(pa.array(np.arange(start, stop))).to_pandas()
    missing, filled = np.zeros(rows.num_rows, np.bool_), rows
    for at in whole:
        column = rows.column(at)
        missing |= column.is_null().to_numpy()
        filled = filled.set_column(at, rows.field(at), column.fill_null(_NOTHING[pa.types.is_boolean(column.type)]))
    frame = filled.to_pandas()

    def own(start: int, stop: int) -> pd.DataFrame:
        if missing[start:stop].any():
            return rows.slice(start, stop - start).to_pandas()
        part = frame.iloc[start:stop]
        part.index = pd.RangeIndex(stop - start)
        return part

    return own


def _lacks_inside(column: pa.ChunkedArray) -> bool:
    """Whether such a value inside of another, a list's or a struct's, is NULL. pandas looks at all that a column has
    inside, where it is given a slice, too."""
    return any(_lacks(child) for chunk in column.chunks for child in _children(chunk))


def _lacks(array: pa.Array) -> bool:
    return bool(array.null_count and _is_whole(array.type)) or any(_lacks(child) for child in _children(array))


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return [array.field(at) for at in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.values] if pa.types.is_nested(array.type) else []


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigError("fn", given, "a function that returns (output rows or None, new state or None)")
    return given


# -- all keys at once -------------------------------------------------------------------------------------------


def _of_table(fn: Function, shapes: Shapes, keyed: KeyedRows) -> CallResult:
    names = shapes.key.names
    before = pa.Table.from_arrays([*keyed.keys.columns, *keyed.states.columns], schema=_both(shapes))
    output, given = _pair(fn(keyed.rows, before.filter(pa.array(keyed.has_state))))
    made = _output([] if output is None else [output], shapes.output)
    states = _table(_both(shapes).empty_table() if given is None else given, _both(shapes), "states")
    joined = pa.concat_tables([keyed.keys, states.select(names)])
    code = key_codes(np.zeros(joined.num_rows, np.uint64), joined.columns)
    number = np.full(len(code), -1, np.int64)
    number[code[: keyed.keys.num_rows]] = np.arange(keyed.keys.num_rows)
    which = number[code[keyed.keys.num_rows :]]
    if (which < 0).any() or len(np.unique(which)) < len(which):
        wrong = states.select(names).slice(int(np.argmin(which)), 1).to_pylist()
        raise ConfigError(
            "states returned by fn", wrong, "each key of the call at most once: other keys are another task's"
        )
    order = np.argsort(which)
    return CallResult(made, which[order], states.select(shapes.state.names).take(pa.array(order)))


def _both(shapes: Shapes) -> pa.Schema:
    return pa.schema([*shapes.key, *shapes.state])


# -- what came back ---------------------------------------------------------------------------------------------


def _output(outputs: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """All output rows: one kind of answer from the first key to the last, or several."""
    frames = (one for one in outputs if isinstance(one, pd.DataFrame) and len(one))
    listed = [row for one in outputs if isinstance(one, (list, tuple)) for row in one]
    tables = [one for one in outputs if not isinstance(one, (pd.DataFrame, list, tuple))]
    parts = [_table(one, schema, "output") for one in tables]
    for _, alike in groupby(frames, _columns):  # put together, other columns would change each other's types
        parts.append(_table(pd.concat(list(alike), ignore_index=True), schema, "output"))
    return pa.concat_tables([*parts, _rows(listed, schema, "output")])


def _columns(frame: pd.DataFrame) -> tuple[list[Any], list[Any]]:
    return list(frame.columns), list(frame.dtypes)


def _table(given: Any, schema: pa.Schema, what: str) -> pa.Table:
    """A frame or table with the schema's columns, in its types."""
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if not isinstance(given, (pa.Table, pd.DataFrame)):
        raise ConfigError(f"{what} of fn", type(given).__name__, "a pandas frame, an Arrow table, or a list of rows")
    names = given.column_names if isinstance(given, pa.Table) else list(given.columns)
    if missing := [name for name in schema.names if name not in names]:
        raise ConfigError(f"{what} of fn", names, f"the columns of the schema; {', '.join(missing)} is not there")
    try:
        if isinstance(given, pd.DataFrame):
            return pa.Table.from_pandas(given[schema.names], schema=schema, preserve_index=False, nthreads=1)
        return given.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as why:
        raise ConfigError(f"{what} of fn", str(why), f"values of the types {_told(schema)}") from why


def _rows(given: Sequence[Any], schema: pa.Schema, what: str) -> pa.Table:
    """A list of tuples or dicts as a table."""
    columns = zip(*(_values(row, schema, what) for row in given), strict=True) if given else [[]] * len(schema)
    try:
        arrays = [pa.array(list(one), field.type) for one, field in zip(columns, schema, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as why:
        raise ConfigError(f"{what} of fn", str(why), f"values of the types {_told(schema)}") from why
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(row: Any, schema: pa.Schema, what: str) -> Sequence[Any]:
    if isinstance(row, dict) and row.keys() == set(schema.names):
        return [row[name] for name in schema.names]
    if isinstance(row, (tuple, list)) and len(row) == len(schema):
        return row
    raise ConfigError(f"{what} of fn", row, f"a dict or a tuple of {', '.join(schema.names)}")


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in schema)

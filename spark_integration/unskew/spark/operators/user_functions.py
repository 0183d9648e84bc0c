"""What a Python worker calls in place of the user's function: it takes off the columns that placement added.

Each is a closure over plain values, so it travels by value: workers need the user's function, pandas or Arrow, and
nothing of unskew. Helper columns are always the last of the rows, and the first of the grouping key.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa

from unskew.core.errors import ConfigError

__all__ = ["FORMS", "Function", "arity", "fragment", "in_pieces", "streamed", "whole"]

Function = Callable[..., Any]
FORMS = ("pandas", "arrow")


def arity(name: str, fn: object) -> int:
    """1 for fn(rows), 2 for fn(key, rows); anything else is refused."""
    if not callable(fn):
        raise ConfigError(name, fn, "a function of the rows of a group, fn(rows) or fn(key, rows)")
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    try:
        given = [one for one in signature(fn).parameters.values() if one.kind in kinds]
    except (TypeError, ValueError):  # some of those written in C do not say
        raise ConfigError(name, fn, "a function whose arguments can be told: write lambda rows: fn(rows)") from None
    if len(given) not in (1, 2):
        raise ConfigError(name, f"a function of {len(given)} arguments", "fn(rows) or fn(key, rows)")
    return len(given)


def streamed(fn: Function) -> dict[str, Any] | None:
    """The type hints of a function that takes its rows in batches, as an iterator; None for any other. Spark 4.1 and
    later tell them by these hints, so they have to be on what Spark is given."""
    try:
        hints = get_type_hints(fn)
    except (NameError, TypeError):  # hints that cannot be read: Spark does without them too
        return None
    rows = hints.get(list(signature(fn).parameters)[-1])
    return hints if getattr(rows, "_name", getattr(rows, "__name__", "")) == "Iterator" else None


def whole(fn: Function, form: str, columns: int, in_key: int) -> Function:
    """``fn`` for groups whose rows have so many columns more, and the key ``in_key``."""
    bare, hints = _bare(form, columns), streamed(fn)
    if hints is None:
        return _with_key(fn, bare, in_key) if arity("fn", fn) == 2 else _rows_only(fn, bare)
    named = signature(fn).parameters
    made = _in_batches(fn, bare, in_key, keyed=len(named) == 2)
    names = ("key", "rows")[-len(named) :]
    made.__annotations__ = {new: hints[old] for new, old in zip(names, named, strict=True) if old in hints}
    if "return" in hints:
        made.__annotations__["return"] = hints["return"]
    return made


def _unhinted(made: Function) -> Function:
    """Spark reads a function's hints to tell what kind it is, and ours say nothing of that."""
    made.__annotations__ = {}
    return made


def _rows_only(fn: Function, bare: Function) -> Function:
    def call(rows: Any) -> Any:
        return fn(bare(rows))

    return _unhinted(call)


def _with_key(fn: Function, bare: Function, in_key: int) -> Function:
    def call(key: Any, rows: Any) -> Any:
        return fn(key[in_key:], bare(rows))

    return _unhinted(call)


def _in_batches(fn: Function, bare: Function, in_key: int, *, keyed: bool) -> Function:
    def call(rows: Any) -> Any:
        return fn(bare(part) for part in rows)

    def call_with_key(key: Any, rows: Any) -> Any:
        return fn(key[in_key:], (bare(part) for part in rows))

    return call_with_key if keyed else call


def _bare(form: str, columns: int) -> Function:
    """Without the last columns. pandas: taken out in place, for the frame is this group's own, and a slice of it would
    warn the user's function when it assigns a column."""

    def bare_pandas(rows: Any) -> Any:
        for name in list(rows.columns[-columns:]):
            del rows[name]
        return rows

    def bare_arrow(rows: Any) -> Any:
        for _ in range(columns):
            rows = rows.remove_column(rows.num_columns - 1)
        return rows

    return bare_pandas if form == "pandas" else bare_arrow


def fragment(fn: Function, form: str, columns: list[str], mark: str) -> Function:
    """``fn`` for one piece of a key: its state, marked with which split key it is. The rows' last two columns are the
    partition, by which they are grouped too, and that mark.

    ``columns`` are those of the state, for a pandas result without names.
    """
    bare, keyed = _bare(form, 2), arity("partial", fn) == 2

    def state(key: Any, rows: Any) -> Any:
        which = _first(rows)
        own = bare(rows)
        return _marked(fn(key[1:], own) if keyed else fn(own), which)

    def _first(rows: Any) -> int:
        return int(rows.iat[0, rows.shape[1] - 1] if form == "pandas" else rows.column(rows.num_columns - 1)[0].as_py())

    def _marked(state: Any, which: int) -> Any:
        number = np.full(len(state), which, np.int32)
        if form == "arrow":
            return state.append_column(mark, pa.array(number))
        if len(state.columns) == len(columns) and not any(isinstance(name, str) for name in state.columns):
            state = state.set_axis(columns, axis="columns")
        return state.assign(**{mark: number})

    return _unhinted(state)


def in_pieces(fn: Function, keys: int, columns: list[str], mark: str, held: int) -> Function:
    """For ``mapInArrow``: a state of each key for every ``held`` rows or so, marked with the key's hash.

    The rows' last columns are the ``keys`` key columns and that hash. Groups have one hash and one value of each key
    column, as bits: finer than Spark's groups where it has two of a kind of zero, which merging mends.
    """
    bare, keyed = _bare("arrow", keys + 1), arity("partial", fn) == 2

    def states(batches: Any) -> Any:
        waiting, rows = [], 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= held:
                yield from _flushed(waiting)
                waiting, rows = [], 0
        if rows:
            yield from _flushed(waiting)

    def _flushed(waiting: Any) -> Any:
        table = pa.Table.from_batches(waiting)
        code = _codes(table)
        order = np.argsort(code, kind="stable")
        ordered, code = table.take(pa.array(order)), code[order]
        first = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
        for start, count in zip(first.tolist(), np.diff(first, append=len(code)).tolist(), strict=True):
            yield from _state(ordered.slice(start, count)).to_batches()

    def _codes(table: Any) -> Any:
        width = table.num_columns
        code = np.unique(table.column(width - 1).to_numpy(), return_inverse=True)[1]
        for at in range(width - 1 - keys, width - 1):
            column = table.column(at).combine_chunks()
            if column.null_count < len(column):
                value = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
                code = np.unique(code * (int(value.max()) + 1) + value, return_inverse=True)[1]
        return code

    def _state(rows: Any) -> Any:
        width = rows.num_columns
        key = tuple(rows.column(at)[0] for at in range(width - 1 - keys, width - 1))
        mark_of = rows.column(width - 1)[0].as_py()
        own = bare(rows)
        state = (fn(key, own) if keyed else fn(own)).select(columns)
        return state.append_column(mark, pa.array(np.full(state.num_rows, mark_of, np.int64)))

    return _unhinted(states)

"""``unskew explain``: reads a plan file and prints where one key's rows go, and why."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.cli.errors import InputError, first_line
from unskew.cli.numbers import bits, whole
from unskew.core.errors import ConfigError, PlanFormatError
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import arrow_of, parse
from unskew.core.plan.plan import Plan
from unskew.wire import plan_from_bytes

__all__ = ["explanation", "key_hash", "read_plan"]

_WROTE = "`unskew whatif --save-plans` wrote"
_EXAMPLES = {
    "boolean": " such as true",
    "date": " such as 2024-01-31",
    "timestamp": " such as 2024-01-31T12:00:00Z",
    "timestamp_ntz": " such as 2024-01-31T12:00:00",
}


def explanation(path: Path, values: Sequence[str], bare_hash: str, nulls: Sequence[str] = (), *, as_json: bool) -> str:
    """The plan's origin and where a key goes. ``nulls``: its columns, from 1, that are NULL; ``values``: the others."""
    plan = read_plan(path)
    key: list[str | None] = []
    if bare_hash or not (values or nulls):
        hashed = _bare(bare_hash, [*values, *nulls])
    else:
        key = _whole_key(plan, values, nulls)
        hashed = key_hash(plan, key)
    why = plan.explain(hashed)
    if as_json:
        where = asdict(why) | {"hash": f"{hashed:#018x}"}
        return json.dumps({"plan": _about(plan), "key": key or None, **where}, indent=2)
    info = plan.info
    batch = "" if info.batch is None else f", from batch {info.batch}"
    return (
        f"plan {info.version} of {info.stream or 'no stream'}: policy {info.policy}, {plan.partitions} partitions, "
        f"{info.rows:,} rows and {info.keys:,} keys seen{batch}\n"
        f"  because {info.reason}\n{why}"
    )


def read_plan(path: Path) -> Plan:
    """The plan in this file, or one clear error."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: cannot be read as a plan: no regular file; give one that {_WROTE}")
        data = path.read_bytes()
    except OSError as why:
        raise InputError(f"{path}: cannot be read as a plan: {why.strerror or first_line(why)}") from None
    try:
        return plan_from_bytes(data)
    except PlanFormatError as why:
        reason = str(why).partition("; ")[0]
        raise PlanFormatError(f"{path}: {reason}; give a file that {_WROTE}") from None


def _whole_key(plan: Plan, texts: Sequence[str], nulls: Sequence[str]) -> list[str | None]:
    """The key with its NULLs."""
    if not plan.key_types:
        raise ConfigError("KEY", " ".join(texts), "--hash 0x...: this plan does not say of which types its keys are")
    width = len(plan.key_types)
    empty = {whole("--null", text, 1, width) for text in nulls}
    if len(texts) != width - len(empty):
        raise ConfigError("KEY", " ".join(texts), _values(plan.key_types, empty))
    values = iter(texts)
    return [None if part in empty else next(values) for part in range(1, width + 1)]


def _values(types: Sequence[str], empty: set[int]) -> str:
    """How many values a key takes, and of which types."""
    left = [kind for part, kind in enumerate(types, 1) if part not in empty]
    listed = ", ".join(left)
    many = "1 value" if len(left) == 1 else f"{len(left) or 'no'} values"
    beside = f" beside --null {', '.join(map(str, sorted(empty)))}" if empty else ""
    return f"{many}{f' ({listed})' if listed else ''}{beside}; a hash goes with --hash"


def key_hash(plan: Plan, key: Sequence[str | None]) -> int:
    """The hash of a key given as text, None for NULL, by the plan's own key types."""
    columns = [_typed(text, name) for text, name in zip(key, plan.key_types, strict=True)]
    return int(hash_keys(*columns, types=plan.key_types)[0])


def _typed(text: str | None, name: str) -> pa.Array:
    kind = arrow_of(parse(name))
    try:
        return pa.array([text]).cast(kind)
    except UnicodeEncodeError:
        raise ConfigError("KEY", text, f"a value of type {name} in UTF-8; any other key goes by its --hash") from None
    except pa.ArrowException:
        raise ConfigError("KEY", text, f"a value of type {name}{_example(name, kind)}") from None


def _example(name: str, kind: pa.DataType) -> str:
    if not pa.types.is_integer(kind):
        return _EXAMPLES.get(name, "")
    range_ = np.iinfo(kind.to_pandas_dtype())
    return f", {range_.min} to {range_.max}"


def _bare(text: str, key: Sequence[str]) -> int:
    if key:
        raise ConfigError("--hash", text, "either a KEY or --hash, not both")
    number = bits(text)
    if number is None:
        raise ConfigError("--hash" if text else "KEY", text, "a KEY, or --hash with 64 bits such as 0x9ae16a3b2f90404f")
    return number


def _about(plan: Plan) -> dict[str, Any]:
    info = plan.info
    return {
        "stream": info.stream,
        "version": str(info.version),
        "policy": info.policy,
        "reason": info.reason,
        "batch": info.batch,
        "partitions": plan.partitions,
        "rows": info.rows,
        "keys": info.keys,
        "key_types": list(plan.key_types),
        "digest": plan.digest,
    }

"""What a store may have in place of what was written: of another type, cut, garbage, another stream's, too new."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import redis

__all__ = ["DAMAGES", "Damage", "keys_of"]

Damage = Callable[[redis.Redis, str, str], object]
"""Redis, the stream, and another stream with as much in it."""
_GARBAGE = b"\xff\x00<script>\n"


def keys_of(of: redis.Redis, stream: str, name: str = "*") -> Iterator[bytes]:
    """The keys of a stream by the names in ``stores.redis.scripts``."""
    return of.scan_iter(f"{{unskew:{stream}}}:{name}")


def _mistyped(name: str) -> Damage:
    def damage(of: redis.Redis, stream: str, _other: str) -> None:
        for key in keys_of(of, stream, name):
            of.delete(key)
            of.set(key, "x")

    return damage


def _gone(name: str) -> Damage:
    return lambda of, stream, _other: [of.delete(key) for key in keys_of(of, stream, name)]


def _field(name: str, field: str, value: bytes | None) -> Damage:
    """``value`` in place of the field; None: without it."""

    def damage(of: redis.Redis, stream: str, _other: str) -> None:
        for key in keys_of(of, stream, name):
            if value is None:
                of.hdel(key, field)
            else:
                of.hset(key, field, value)  # type: ignore[arg-type]  # the stubs know text only

    return damage


def _every_field(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(of: redis.Redis, stream: str, _other: str) -> None:
        for key in keys_of(of, stream, name):
            for field, value in of.hgetall(key).items():  # type: ignore[union-attr]  # not asynchronous
                of.hset(key, field, change(value))  # type: ignore[arg-type]

    return damage


def _cut(name: str, field: str, left: int) -> Damage:
    def damage(of: redis.Redis, stream: str, _other: str) -> None:
        for key in keys_of(of, stream, name):
            of.hset(key, field, of.hget(key, field)[:-left])  # type: ignore[index,arg-type]

    return damage


def _swapped(name: str, field: str) -> Damage:
    """The other stream's document under this one's key."""

    def damage(of: redis.Redis, stream: str, other: str) -> None:
        theirs = of.hget(max(keys_of(of, other, name)), field)
        for key in keys_of(of, stream, name):
            of.hset(key, field, theirs)  # type: ignore[arg-type]

    return damage


def _member(name: str, member: bytes) -> Damage:
    return lambda of, stream, _other: [of.zadd(key, {member: 0}) for key in keys_of(of, stream, name)]


def _future_plan(copied: bool) -> Damage:
    """A version of an incarnation that the stream has not reached: with the plan of this one, or without a plan."""

    def damage(of: redis.Redis, stream: str, _other: str) -> None:
        version = f"{int(time.time() * 1e6) + 10**13:020d}.{5:020d}"
        latest = max(keys_of(of, stream, "v:*"))
        if copied:
            of.copy(latest, latest[:-41] + version.encode())  # type: ignore[arg-type]
        of.zadd(f"{{unskew:{stream}}}:vs", {version: 0})

    return damage


def _answer_swapped(of: redis.Redis, stream: str, other: str) -> None:
    of.copy(f"{{unskew:{other}}}:c", f"{{unskew:{stream}}}:c", replace=True)


def _half(value: bytes) -> bytes:
    return value[: len(value) // 2]


DAMAGES: Mapping[str, Damage] = {
    "settings of another type": _mistyped("m"),
    "settings gone": _gone("m"),
    "settings without an incarnation": _field("m", "inc", None),
    "an incarnation of garbage": _field("m", "inc", _GARBAGE),
    "an older incarnation": _field("m", "inc", b"1"),
    "settings cut": _cut("m", "spec", 3),
    "settings of garbage": _field("m", "spec", _GARBAGE),
    "settings of another stream": _swapped("m", "spec"),
    "an expiry of garbage": _field("m", "expires", b"soon"),
    "a round of garbage": _field("m", "open", b"x"),
    "a merged round of the future": _field("m", "merged", b"999999"),
    "a list of keys of another type": _mistyped("k"),
    "versions of another type": _mistyped("vs"),
    "versions of garbage": _member("vs", b"zzz"),
    "plans cut": _cut("v:*", "data", 50),
    "plans of another stream": _swapped("v:*", "data"),
    "plans of nothing": _field("v:*", "data", b""),
    "plans of garbage": _field("v:*", "data", _GARBAGE),
    "plans of another type": _mistyped("v:*"),
    "plans without a digest": _field("v:*", "digest", None),
    "plans gone": _gone("v:*"),
    "a plan of the future": _future_plan(copied=True),
    "a version of the future": _future_plan(copied=False),
    "ways of garbage": _field("v:*", "ways", _GARBAGE),
    "advice of garbage": _field("v:*", "advice", _GARBAGE),
    "purposes of garbage": _every_field("w", lambda _value: _GARBAGE),
    "parts of garbage": _every_field("p:*", lambda _value: _GARBAGE),
    "parts cut": _every_field("p:*", _half),
    "parts without a run": _gone("h:*"),
    "runs of garbage": _every_field("h:*", lambda _value: b"x"),
    "batches of garbage": _member("b:*", b"xx"),
    "sizes of garbage": _every_field("u:*", lambda _value: b"x"),
    "an answer of garbage": _every_field("c", lambda _value: _GARBAGE),
    "an answer of another stream": _answer_swapped,
    "an answer of the future": _field("c", "epoch", b"99999"),
    "an answer gone": _gone("c"),
    "agents of garbage": _every_field("q", lambda _value: b"x"),
    "leases of another type": _mistyped("a"),
    "all gone": _gone("*"),
}

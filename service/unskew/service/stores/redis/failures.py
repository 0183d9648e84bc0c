"""What an error of redis-py means for a request: repeat it, give up, or take it as Redis's answer."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterError,
    ConnectionError,  # noqa: A004  # Redis's own, no relation of the built-in one
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004  # the same
    TryAgainError,
)

from unskew.service.errors import DamagedError, UnavailableError, WritesRefusedError

__all__ = ["FAILURES", "damaged", "is_answer", "is_damage", "is_transient", "refuses_writes", "unavailable"]

FAILURES = (RedisError, RedisClusterException, OSError)
_PERMANENT = (AuthenticationError, AuthorizationError, NoPermissionError, OutOfMemoryError)
_TRANSIENT = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, ClusterError, TryAgainError)
_REFUSALS = {
    ("OutOfMemoryError", "OOM"): "Redis is full (maxmemory) and refuses writes; give it more memory, or delete streams",
    ("ReadOnlyError", "READONLY"): "Redis is a read-only replica and refuses writes; wait for the failover to end, or "
    "name the primary in the store's URL (redis+sentinel:// finds it)",
    ("MISCONF",): "Redis cannot save to its disk and refuses writes; make room there, or see its log",
    ("NOREPLICAS",): "Redis has fewer replicas than min-replicas-to-write and refuses writes; bring them back",
}
_DAMAGE = ("WRONGTYPE", "user_script:", "is not an integer", "is not a valid float")
_TRANSIENT_WORDS = ("MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "UNKILLABLE", "BUSY", "LOADING", "READONLY", "TRYAGAIN")


def is_transient(error: Exception) -> bool:
    """Whether the same request may well get an answer in a moment."""
    if isinstance(error, _PERMANENT):
        return False
    return isinstance(error, _TRANSIENT) or (isinstance(error, ResponseError) and _says(error, _TRANSIENT_WORDS))


def is_answer(error: Exception) -> bool:
    """Whether Redis understood the request and refused it: a fault of ours, and Redis is well."""
    explained = isinstance(error, _PERMANENT) or is_transient(error) or _says(error, ("OOM", "MISCONF"))
    return isinstance(error, ResponseError) and not explained


def is_damage(error: BaseException) -> bool:
    """Whether a script of ours met a value that no script of ours has written."""
    return isinstance(error, ResponseError) and _says(error, _DAMAGE)


def damaged(why: object) -> DamagedError:
    """The same words whatever is read: the names of a stream's keys begin with its own, in braces."""
    return DamagedError(
        f"store: Redis has what this service cannot have written ({str(why)[:120]}). Does somebody else write under "
        "its prefix, or was a file of Redis cut? Delete the keys of the stream (its name is in braces), and put "
        "it again: it begins anew"
    )


def refuses_writes(error: BaseException) -> bool:
    """Whether Redis is there and takes no write. It still tells what it has, so nobody needs to spare it."""
    return isinstance(error, ResponseError) and _refusal(error) is not None


def _refusal(error: Exception) -> str | None:
    told = f"{type(error).__name__} {error}"
    return next((text for words, text in _REFUSALS.items() if any(word in told for word in words)), None)


def unavailable(error: Exception) -> UnavailableError:
    """Says what to check, and never what was sent."""
    kind = type(error).__name__
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return UnavailableError(
            f"store: Redis refuses our user or a command of its ({kind}); check the store's URL and ACL"
        )
    if (refusal := _refusal(error)) is not None:
        return WritesRefusedError(f"store: {refusal}")
    return UnavailableError(f"store: no answer from Redis in time ({kind}); the request may be sent again")


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    return any(word in str(error) for word in words)

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

from unskew.service.errors import UnavailableError

__all__ = ["FAILURES", "is_answer", "is_transient", "unavailable"]

FAILURES = (RedisError, RedisClusterException, OSError)
_PERMANENT = (AuthenticationError, AuthorizationError, NoPermissionError, OutOfMemoryError)
_TRANSIENT = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, ClusterError, TryAgainError)
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


def unavailable(error: Exception) -> UnavailableError:
    """Says what to check, and never what was sent."""
    kind = type(error).__name__
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return UnavailableError(
            f"store: Redis refuses our user or a command of its ({kind}); check the store's URL and ACL"
        )
    if isinstance(error, OutOfMemoryError) or _says(error, ("OOM",)):
        return UnavailableError("store: Redis is full (maxmemory); give it more, or delete streams")
    return UnavailableError(f"store: no answer from Redis in time ({kind}); the request may be sent again")


def _says(error: Exception, words: tuple[str, ...]) -> bool:
    return any(word in str(error) for word in words)

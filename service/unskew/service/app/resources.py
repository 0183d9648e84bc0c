"""What this process takes of the system: descriptors for its connections, and memory that is given back after a burst.

The C library gives freed memory back only from the end of an arena, and has up to eight arenas a core: after twenty
large bodies most of their memory would stay with the process for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import resource
from collections.abc import Callable

from unskew.service.app.settings import Settings

__all__ = ["few_arenas", "fitted", "give_back"]

METRICS_CONNECTIONS = 100
_OTHERS = 150  # descriptors of the log, the store, watches of files, Python itself
_ARENA_MAX = -8  # of mallopt
_ARENAS = 4
_log = logging.getLogger("unskew.service")


def fitted(settings: Settings) -> Settings:
    """The settings, with no more connections than this process may have descriptors for; raises the soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_grpc_connections + settings.max_http_connections
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    room = soft - METRICS_CONNECTIONS - _OTHERS
    if soft == resource.RLIM_INFINITY or wanted <= room:
        return settings
    names = ("max_grpc_connections", "max_http_connections")
    fewer = {name: max(1, getattr(settings, name) * room // wanted) for name in names}
    _log.warning("the limit of open files, %d, has no room for %d connections", soft, wanted, extra=fewer)
    return settings.model_copy(update=fewer)


def _c_library(name: str) -> Callable[..., int] | None:
    """A function of the GNU C library; others have neither."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    return found


def few_arenas() -> None:
    if (mallopt := _c_library("mallopt")) is not None:
        mallopt(_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Give freed memory back, that of calls which were ended in their midst, too: the frames of their errors refer to
    each other. Each takes milliseconds; for each hundred megabytes more, without Python's lock."""
    gc.collect()
    if (trim := _c_library("malloc_trim")) is not None:
        trim(0)

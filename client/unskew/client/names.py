"""What an agent is called that was given no name, and what its forked children are called."""

from __future__ import annotations

import os
import secrets
import socket

__all__ = ["child_name", "own_name"]

_LONGEST = 200


def own_name() -> str:
    """Unique also where a host's name and pids are not: containers have both alike."""
    host = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname())
    return f"{host[:100] or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"


def child_name(name: str) -> str:
    """Unique among the children of the agent with this name."""
    tail = f".{os.getpid()}-{secrets.token_hex(3)}"
    return name[: _LONGEST - len(tail)] + tail

"""The connections of the gRPC port: strangers do not keep out those who have a credential.

gRPC bounds its connections as a whole, tells nobody of them, and cannot close one of them for another. So they are
looked up where the system lists them, among the descriptors of this process; what is shut down there gRPC takes for
closed by its caller. A connection is a stranger's until a call with a credential has come on it. Strangers have a
quarter of the bound, of them the address that has the most loses its oldest first; so does, where nearly all of the
bound is in use, the identity that has the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable

from unskew.core.fairness.surplus import surplus
from unskew.service.api.admission import address_of

__all__ = ["GrpcConnections"]

_LOOK = 0.2  # seconds between two looks
_DESCRIPTORS = "/dev/fd"
_STRANGERS, _SPARE = 4, 16  # one in so many of the bound: for strangers, and kept free


class GrpcConnections:
    """``most``: gRPC's own bound. ``closed`` is called for each connection that is closed."""

    def __init__(self, most: int, closed: Callable[[], None]) -> None:
        self._strangers, self._most = max(1, most // _STRANGERS), most - most // _SPARE
        self._closed = closed
        self._callers: dict[str, str] = {}  # by peer, who has called
        self._peers: dict[int, str] = {}  # by the inode of its socket, the oldest first

    def called(self, peer: str, name: str) -> None:
        """This identity has called from this peer, as gRPC names it."""
        self._callers[peer] = name

    async def watch(self, port: int) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self.look(port)

    def look(self, port: int) -> None:
        """Close what is too much; of a port with few connections only their number is looked at."""
        with contextlib.suppress(OSError):  # without this folder only gRPC's own bound holds
            listed = [int(one.name) for one in os.scandir(_DESCRIPTORS)]
            if len(listed) > self._strangers or len(self._callers) > 2 * self._most:
                self._close_surplus(self._present(listed, port))

    def _present(self, descriptors: Iterable[int], port: int) -> dict[int, int]:
        """The descriptor of each connection, by its inode. ``_peers`` has just these, and an empty one of others."""
        found: dict[int, int] = {}
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                status = os.fstat(descriptor)
                if stat.S_ISSOCK(status.st_mode):
                    found[status.st_ino] = descriptor
        self._peers = {inode: peer for inode, peer in self._peers.items() if inode in found}
        for inode in sorted(found.keys() - self._peers.keys()):
            self._peers[inode] = _peer(found[inode], inode, port)
        return found

    def _close_surplus(self, present: dict[int, int]) -> None:
        peers = {inode: peer for inode, peer in self._peers.items() if peer}
        still = set(peers.values())
        self._callers = {peer: name for peer, name in self._callers.items() if peer in still}
        strange = {inode: address_of(peer) for inode, peer in peers.items() if peer not in self._callers}
        known = {inode: self._callers[peer] for inode, peer in peers.items() if peer in self._callers}
        room = max(0, self._most - min(len(strange), self._strangers))
        for inode in surplus(strange, self._strangers) + surplus(known, room):
            with contextlib.suppress(OSError), _opened(present[inode], inode) as connection:
                connection.shutdown(socket.SHUT_RDWR)
                self._closed()


def _opened(descriptor: int, inode: int) -> socket.socket:
    """The socket by a descriptor of our own, so that it is this one whatever gRPC closes meanwhile."""
    own = os.dup(descriptor)
    if os.fstat(own).st_ino != inode:
        os.close(own)
        raise OSError
    return socket.socket(fileno=own)


def _peer(descriptor: int, inode: int, port: int) -> str:
    """The other end, as gRPC names it; empty where the socket is no connection of this port."""
    try:
        with _opened(descriptor, inode) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getsockname()[1] != port:
                return ""
            host, from_port = found.getpeername()[:2]
    except OSError:
        return ""
    host = host.removeprefix("::ffff:") if "." in host else host
    return f"ipv6:%5B{host}%5D:{from_port}" if ":" in host else f"ipv4:{host}:{from_port}"

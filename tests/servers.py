"""Real Redis servers for tests, on free ports of this machine: one alone, one behind Sentinels, a cluster of three.

Nothing is kept on disk; each is a child of the test process and is killed by its pid. ``make test`` finds or installs
redis-server (``tools/redis.sh``); where there is none, the tests that need it fail and say so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

MASTER = "unskew-test"
_TRIES = 5
_START = 60.0
_PATIENT, _HASTY = 10_000, 300
"""Milliseconds of silence after which Sentinels call a server down: long, lest one that only waits for its turn on a
busy machine be passed over; short once it is known to be dead."""


def redis_program() -> str:
    found = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    own = Path(__file__).resolve().parents[1] / ".venv/bin/redis-server"
    if not found and own.exists():
        found = str(own)
    if not found:
        pytest.fail("no redis-server: run `make test`, or install it (Debian, Ubuntu: apt-get install redis-server)")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(what: str, done: Callable[[], bool], seconds: float = _START) -> None:
    """Poll until it is so; a server that does not answer yet counts as no."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(redis.RedisError, OSError):
            if done():
                return
        time.sleep(0.02)
    pytest.fail(f"{what}: not after {seconds} s")


@dataclass
class Server:
    """One redis-server process, and how to ask it."""

    port: int
    folder: Path
    options: tuple[str, ...] = ()
    sentinel: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> Server:
        config = self.folder / f"{self.port}.conf"
        if not config.exists():  # a Sentinel writes to its own
            base = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.port}.log"]
            base += [] if self.sentinel else ['save ""', "appendonly no", "repl-diskless-sync-delay 0"]
            base += [] if self.sentinel else [f"appenddirname {self.aof.name}"]
            config.write_text("\n".join([*base, *self.options, ""]))
        command = [redis_program(), str(config), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(f"redis-server on port {self.port}", self._up)
        if self.sentinel:  # it looks every ten seconds, else
            periods = ("info-period", "ping-period", "ask-period", "publish-period")
            self.ask("SENTINEL", "DEBUG", *(word for period in periods for word in (period, 200)))
        return self

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"redis-server ended: {(self.folder / f'{self.port}.log').read_text()[-2000:]}")
        return bool(self.ask("PING"))

    def ask(self, *words: object, **options: Any) -> Any:
        """One command over a connection of its own."""
        with redis.Redis("127.0.0.1", self.port, socket_timeout=30.0, protocol=2, **options) as client:
            return client.execute_command(*words)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def followed(self) -> bool:
        """Whether a replica has what was written a moment ago. Its link may be "up" up to a second before it is told of
        writes, and whoever takes over then has an old state."""
        with redis.Redis("127.0.0.1", self.port, socket_timeout=30.0, protocol=2) as client:
            client.execute_command("SET", "a-probe", "", "PX", 1)
            return bool(client.execute_command("WAIT", 1, 500))

    def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("INFO", section)
        return found

    def pause(self) -> None:
        """It stays connected and does not answer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None and self.running:
            self.process.kill()
            self.process.wait()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def aof(self) -> Path:
        """Where its append-only files are, if it is told to have any."""
        return self.folder / f"aof-{self.port}"


def _started(folder: Path, options: Sequence[str], *, sentinel: bool = False) -> Server:
    """On a free port; on another one, if somebody took it meanwhile."""
    for attempt in range(_TRIES):
        server = Server(free_ports(1)[0], folder, tuple(options), sentinel)
        try:
            return server.start()
        except RuntimeError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


@contextlib.contextmanager
def single(folder: Path, *options: str) -> Iterator[Server]:
    server = _started(folder, options)
    try:
        yield server
    finally:
        server.kill()


@dataclass
class Sentinels:
    """A master, a replica and three Sentinels that watch them."""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/{MASTER}"

    def master(self) -> Server:
        port = int(self.sentinels[0].ask("SENTINEL", "get-master-addr-by-name", MASTER)[1])
        return next(server for server in self.servers if server.port == port)

    def replica(self) -> Server:
        master = self.master()
        return next(server for server in self.servers if server is not master)

    def whole(self) -> bool:
        """Both servers up, the replica in step, and every Sentinel knows of all that."""
        replica, master = self.replica().info("replication"), self.master()
        if replica["role"] != "slave" or replica["master_link_status"] != "up":
            return False
        return all(self._sees(sentinel) for sentinel in self.sentinels) and master.followed()

    def patience(self, milliseconds: int) -> None:
        for sentinel in self.sentinels:
            if sentinel.running:
                sentinel.ask("SENTINEL", "SET", MASTER, "down-after-milliseconds", milliseconds)

    def restore(self) -> None:
        """Start what was killed, as a replica of the master that there is now."""
        self.patience(_PATIENT)
        for server in self.servers:
            if not server.running:
                server.start().ask("REPLICAOF", "127.0.0.1", self.master().port)
            server.ask("CONFIG", "SET", "masterauth", "")
        wait_for("Sentinels", self.whole, 120.0)

    def _sees(self, sentinel: Server) -> bool:
        master = self.servers.index(self.master())
        known = sentinel.ask("SENTINEL", "get-master-addr-by-name", MASTER)
        # To vote, a Sentinel has to have seen the replica's state, and not only its name.
        ready = sentinel.ask("SENTINEL", "CKQUORUM", MASTER)
        replicas = sentinel.ask("SENTINEL", "REPLICAS", MASTER)
        fields = [_fields(replica) for replica in replicas]
        up = [one for one in fields if one.get("master-link-status") == "ok" and one.get("flags") == "slave"]
        return bool(ready) and int(known[1]) == self.servers[master].port and len(up) == 1

    def failed_over(self, old: Server, hasty: int = _HASTY) -> None:
        """Wait until all Sentinels name another master than this, it takes writes, and the old one does no longer. A
        replica that was cut off for more than ten times ``hasty`` is not promoted."""

        if not old.running:
            self.patience(hasty)

        def done() -> bool:
            ports = {int(one.ask("SENTINEL", "get-master-addr-by-name", MASTER)[1]) for one in self.sentinels}
            if len(ports) != 1 or old.port in ports or self.master().info("replication")["role"] != "master":
                return False
            return not old.running or old.info("replication")["role"] == "slave"

        wait_for("failover", done, 300.0)


def _fields(flat: Any) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def sentinels(folder: Path, *options: str) -> Iterator[Sentinels]:
    """``options`` are those of the master and the replica."""
    with contextlib.ExitStack() as stack:
        master = _started(folder, options)
        stack.callback(master.kill)
        replica = _started(folder, [*options, f"replicaof 127.0.0.1 {master.port}"])
        stack.callback(replica.kill)
        watch = [
            f"sentinel monitor {MASTER} 127.0.0.1 {master.port} 2",
            f"sentinel down-after-milliseconds {MASTER} {_PATIENT}",
            f"sentinel failover-timeout {MASTER} 2000",
            f"sentinel parallel-syncs {MASTER} 1",
        ]
        watchers = []
        for _ in range(3):
            watchers.append(_started(folder, watch, sentinel=True))
            stack.callback(watchers[-1].kill)
        topology = Sentinels([master, replica], watchers)
        wait_for("Sentinels", topology.whole, 120.0)
        yield topology


@dataclass
class Cluster:
    """Nodes that share the slots."""

    nodes: list[Server]

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def flush(self) -> None:
        for node in self.nodes:
            node.ask("FLUSHALL")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        nodes, buses = [], free_ports(3)
        for number, bus in enumerate(buses):
            own = folder / f"node{number}"
            own.mkdir()
            nodes.append(_started(own, ["cluster-enabled yes", f"cluster-port {bus}", "cluster-node-timeout 2000"]))
            stack.callback(nodes[-1].kill)
        bounds = [0, 5461, 10923, 16384]
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node, bus in zip(nodes[1:], buses[1:], strict=True):
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        wait_for("cluster", lambda: all(_ready(node) for node in nodes), 120.0)
        yield Cluster(nodes)


@dataclass
class Followed:
    """A node of a cluster and its follower: whichever is the master has the slots."""

    cluster: Cluster
    servers: list[Server]

    def master(self) -> Server:
        masters = [one for one in self.servers if one.running and one.info("replication")["role"] == "master"]
        if not masters:
            raise redis.ConnectionError("neither is the master yet")
        return masters[0]

    def replica(self) -> Server:
        master = self.master()
        return next(one for one in self.servers if one is not master)

    def whole(self) -> bool:
        """The follower is in step, and the other nodes see both."""
        if self.replica().info("replication").get("master_link_status") != "up":
            return False
        seen = [_text(node.ask("CLUSTER", "NODES")) for node in self.cluster.nodes if node not in self.servers]
        return not any("fail" in nodes for nodes in seen)

    def failed_over(self, old: Server, hasty: int = _HASTY) -> None:
        """The nodes have a patience of their own."""

        def done() -> bool:
            return self.master() is not old and all(_serves(node) for node in self.cluster.nodes if node.running)

        wait_for("failover", done, 300.0)

    def restore(self) -> None:
        for server in self.servers:
            if not server.running:
                server.start()
            server.ask("CONFIG", "SET", "masterauth", "")
        wait_for("cluster", self.whole, 120.0)


@contextlib.contextmanager
def followed(cluster: Cluster, node: Server, folder: Path) -> Iterator[Followed]:
    """With a follower of this node."""
    follower, bus = _follower(folder)
    try:
        node.ask("CONFIG", "SET", "cluster-replica-validity-factor", 0)
        node.ask("CLUSTER", "MEET", "127.0.0.1", follower.port, bus)
        mine = _text(node.ask("CLUSTER", "MYID"))
        wait_for("a node", lambda: mine in _text(follower.ask("CLUSTER", "NODES")) and _serves(follower), 120.0)
        follower.ask("CLUSTER", "REPLICATE", mine)
        pair = Followed(cluster, [node, follower])
        wait_for("a follower", pair.whole, 120.0)
        yield pair
    finally:
        follower.kill()


def _follower(folder: Path) -> tuple[Server, int]:
    """A node without slots, and its second port; on others, if somebody took that meanwhile."""
    for attempt in range(_TRIES):
        bus = free_ports(1)[0]
        options = ["cluster-enabled yes", f"cluster-port {bus}", "cluster-node-timeout 2000"]
        try:
            return _started(folder, [*options, "cluster-replica-validity-factor 0"]), bus
        except RuntimeError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def _serves(node: Server) -> bool:
    return "cluster_state:ok" in _text(node.ask("CLUSTER", "INFO"))


def _ready(node: Server) -> bool:
    info = dict(line.split(":") for line in _text(node.ask("CLUSTER", "INFO")).split())
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3"

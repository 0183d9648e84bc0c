"""A gRPC channel to one service, made when a process first needs it, with a deadline on every call and our errors.

Fork-safe (see ``forks``): a child makes its own channel and never touches its parent's, not even to close it. Each
channel has its own connections (``use_local_subchannel_pool``): in the pool that gRPC shares by default the child's new
channel gets the parent's connection and fails on it ("wrong file descriptor generation", 2 children of 5). gRPC's own
fork support has to stay at its default: with GRPC_ENABLE_FORK_SUPPORT=0 children hang.

Retries are gRPC's, by service config: UNAVAILABLE and CANCELLED (a server that is full or going down says so), four
attempts, with jittered backoff, within the deadline; throttled while most calls fail. A service that says when it has
room again (``retry-after``) is asked again then, or a little later, if that is within the deadline.
"""

from __future__ import annotations

import ipaddress
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from unskew.client.credentials import Credentials
from unskew.client.errors import ClientClosedError, LimitReachedError, ServiceCallError, call_error
from unskew.client.forks import in_grpc, never_free, register_after_fork
from unskew.core.errors import ConfigError

__all__ = ["Call", "Channel", "Target", "seconds"]

SERVICE = "unskew.v1.PartitionerService"
DEFAULT_PORT = 8081
_PLAIN, _SECURE = "grpc://", "grpcs://"
_OTHERS = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:")
_MEGABYTE = 1 << 20
_LONGEST_PAUSE = 60.0

_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": SERVICE}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        }
    ],
    # Retries stop after half as many failed calls. A replica that goes down fails all calls of a channel at once: with
    # 20 tokens, ten of seventeen calls were retried and the other seven failed.
    "retryThrottling": {"maxTokens": 1000, "tokenRatio": 0.5},
}
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.lb_policy_name", "round_robin"),  # use all addresses of a name (Kubernetes' headless Service)
    ("SingleThreadedUnaryStream", 1),  # grpc.experimental.ChannelOptions, which costs an import
    ("grpc.enable_retries", 1),
    ("grpc.service_config", json.dumps(_RETRIES)),
    ("grpc.per_rpc_retry_buffer_size", 16 * _MEGABYTE),  # else a histogram of over 256 kB is never retried
    ("grpc.max_receive_message_length", 64 * _MEGABYTE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # else a minute, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),  # an open breaker makes no calls: a dead connection would stay
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # by default up to two minutes after the service is back
)

M = TypeVar("M", bound=Message)
Requests = Callable[[], Iterator[Message]]


def seconds(name: str, value: float) -> float:
    """A checked timeout."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < float("inf"):
        raise ConfigError(name, value, "a number of seconds above 0")
    return float(value)


class Target:
    """Where a service is: ``host``, ``host:port``, ``grpc://host:port``, ``grpcs://host:port`` (TLS), a gRPC name."""

    def __init__(self, text: object) -> None:
        if not isinstance(text, str) or not text or any(c.isspace() for c in text):
            raise ConfigError("target", text, "host:port, grpc://host:port or grpcs://host:port")
        self.secure = text.startswith(_SECURE)
        rest = text.removeprefix(_SECURE).removeprefix(_PLAIN).rstrip("/")
        if "://" in rest and not rest.startswith(_OTHERS):
            raise ConfigError("target", text, "grpc://host:port (REST is on another port), grpcs:// for TLS")
        if not rest:
            raise ConfigError("target", text, "grpc://host:port")
        self.address = rest if rest.startswith(_OTHERS) else _with_port(rest, text)

    @property
    def loopback(self) -> bool:
        """Whether the address is on this machine."""
        if self.address.startswith(("unix:", "unix-abstract:")):
            return True
        _, _, name = self.address.partition(":") if self.address.startswith(_OTHERS) else ("", "", self.address)
        if name.startswith("//"):  # //DNS server/name
            name = name[2:].partition("/")[2]
        return all(_is_loopback(address) for address in name.split(","))

    @property
    def url(self) -> str:
        return f"{_SECURE if self.secure else _PLAIN}{self.address}"

    def __str__(self) -> str:
        return self.address


def _retry_after(trailers: Iterable[tuple[str, str | bytes]] | None) -> float:
    """The seconds that the service asks to be left alone for; 0.0 where it does not say."""
    for name, value in trailers or ():
        if name == "retry-after" and isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            return min(float(value), _LONGEST_PAUSE)
    return 0.0


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _with_port(text: str, target: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return f"{text}:{DEFAULT_PORT}"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError("target", target, "an IPv6 address in brackets: [::1]:8081")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError("target", target, "host:port with a port of 1 to 65535")
    return text


class Call:
    """A call that may wait long: ``next`` returns its next answer, None after the last. Any thread may ``cancel`` it.

    One thread at a time waits in it, without a thread of gRPC's. ``interrupted``: a fork has ended the call, in the
    parent or in the child; make it again.
    """

    def __init__(self, call: Any, error_of: Callable[[Any], ServiceCallError]) -> None:
        self.interrupted = False
        self._call, self._error_of = call, error_of
        register_after_fork(self)

    def next(self) -> Any:
        try:
            with in_grpc(self.interrupt):
                return None if self.interrupted else next(self._call, None)
        except grpc.RpcError as why:
            if self.interrupted:
                return None
            raise self._error_of(why) from None

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def interrupt(self) -> None:
        self.interrupted = True
        self.cancel()

    def after_fork(self) -> None:
        never_free(self._call)
        self.interrupted, self._call = True, None


class Channel:
    """Calls the service. ``verb`` is the RPC's name, ``stream`` the stream it is about, for errors. Thread-safe."""

    def __init__(self, target: str, credentials: Credentials, options: Iterable[tuple[str, Any]] = ()) -> None:
        self.target = Target(target)
        self._credentials = credentials
        self._secure = self.target.secure or credentials.tls
        if credentials.has_token and not (self._secure or self.target.loopback or credentials.insecure):
            raise ConfigError(
                "target", target, "grpcs:// (TLS): a token would go over the network for all to read; or insecure=True"
            )
        self._options = tuple({**dict(_OPTIONS), **dict(options)}.items())  # gRPC takes the first of two of one name
        self.closed = False
        self._forget_channel()
        register_after_fork(self)

    def _forget_channel(self) -> None:
        self._lock = threading.Lock()
        self._channel: Any = None
        self._methods: dict[str, Any] = {}

    def after_fork(self) -> None:
        never_free((self._channel, self._methods))
        self._forget_channel()

    def call(self, verb: str, stream: str, request: Message | Requests, response: type[M], timeout: float) -> M:
        """One request, or what makes many, and one answer."""
        shape = "unary_unary" if isinstance(request, Message) else "stream_unary"
        end = time.monotonic() + timeout
        while True:
            sent = request if isinstance(request, Message) else request()
            try:
                return cast(M, self._invoke(shape, verb, stream, sent, response, timeout))
            except LimitReachedError as why:
                pause = why.retry_after * random.uniform(1.0, 1.5)
                timeout = end - time.monotonic() - pause
                if not pause or timeout <= 0.0:
                    raise
            time.sleep(pause)  # as long as the service asks for, within the caller's own timeout

    def begin(self, verb: str, stream: str, request: Message, response: type[Message], timeout: float) -> Call:
        """One request, and as many answers as there are: one is the same on the wire as a stream of one."""
        call = self._invoke("unary_stream", verb, stream, request, response, timeout)
        return Call(call, lambda why: self._error(verb, stream, why))

    def check_open(self) -> None:
        """Raise a ``ClientClosedError`` after ``close``."""
        if self.closed:
            raise ClientClosedError(f"the client of {self.target} is closed; make a new one") from None

    def close(self) -> None:
        """End all calls that are under way in this process. May be called again."""
        self.closed = True
        with self._lock:
            channel, self._channel, self._methods = self._channel, None, {}
        if channel is not None:
            channel.close()

    def _invoke(
        self, shape: str, verb: str, stream: str, request: object, response: type[Message], timeout: float
    ) -> Any:
        method = self._method(shape, verb, response)
        try:
            with in_grpc():
                return method(request, timeout=timeout, metadata=self._credentials.metadata())
        except grpc.RpcError as why:
            raise self._error(verb, stream, why) from None
        except ValueError:
            self.check_open()  # it may have been closed while the call was being made
            raise

    def _error(self, verb: str, stream: str, why: Any) -> ServiceCallError:
        target, detail = str(self.target), why.details() or ""
        return call_error(verb, stream, target, why.code().name, detail, _retry_after(why.trailing_metadata()))

    def _method(self, shape: str, verb: str, response: type[Message]) -> Any:
        with self._lock:
            self.check_open()
            if self._channel is None:
                self._channel = self._connect()
            method = self._methods.get(verb)
            if method is None:
                make = getattr(self._channel, shape)
                method = self._methods[verb] = make(
                    f"/{SERVICE}/{verb}",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=response.FromString,
                )
            return method

    def _connect(self) -> Any:
        address, options = self.target.address, list(self._options)
        if self._secure:
            return grpc.secure_channel(address, self._credentials.channel(), options=options)
        return grpc.insecure_channel(address, options=options)

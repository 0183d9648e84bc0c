"""A connection that swallows everything is found out by both ends, though TCP itself never tells."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest

from tests.chaos.proxy import FaultProxy, HalfOpen, ProxyLoop
from tests.servers import wait_for
from tests.service.test_main import process as served
from unskew.client import Client, ServiceCallError
from unskew.client.channel import _OPTIONS, Channel
from unskew.client.credentials import Credentials

pytestmark = pytest.mark.xdist_group("chaos")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A service that pings its clients each second and wants an answer within one."""
    keepalive = ["--keepalive", "1", "--keepalive-timeout", "1", "--min-ping-interval", "0"]
    with served(tmp_path_factory.mktemp("dead"), *keepalive) as service:
        yield service.grpc


@pytest.fixture
def proxy(port: int, proxies: ProxyLoop) -> FaultProxy:
    return proxies.proxy(port)


@pytest.mark.parametrize("ping_timeout", [1, pytest.param(None, marks=pytest.mark.long)])
def test_a_client_is_back_soon_after_half_open(ping_timeout: int | None, proxy: FaultProxy, proxies: ProxyLoop) -> None:
    """Without a call under way, as behind an open breaker; by default in ten seconds after the ping, and not in the
    minute that gRPC waits by itself."""
    options = [("grpc.keepalive_time_ms", 1_000)]
    options += [("grpc.http2.ping_timeout_ms", 1_000 * ping_timeout)] if ping_timeout else []
    with Client(f"127.0.0.1:{proxy.port}", timeout=0.5, options=options) as client:
        client.put_stream("clicks", partitions=2, policy="hash", timeout=60.0)
        with proxies.fault(HalfOpen(), proxy):
            with pytest.raises(ServiceCallError):
                client.get_stream("clicks")
            time.sleep(2.5)  # it is silence that is tested here

        def back() -> bool:
            try:
                return client.get_stream("clicks").name == "clicks"
            except ServiceCallError:
                return False

        wait_for("the client", back, 18.0 if ping_timeout else 50.0)


def test_a_service_drops_a_client_that_does_not_answer(proxy: FaultProxy, proxies: ProxyLoop) -> None:
    """``keepalive`` and ``keepalive_timeout`` do what the settings say."""
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        grpc.channel_ready_future(channel).result(60.0)
        assert proxy.connections == 1
        with proxies.fault(HalfOpen(), proxy):
            wait_for("the service", lambda: proxy.connections == 0, 18.0)


def test_what_a_caller_sets_takes_the_place_of_ours() -> None:
    """gRPC takes the first of two of one name."""
    given = {"grpc.keepalive_time_ms": 1_000, "grpc.primary_user_agent": "me"}
    options = dict(Channel("a:1", Credentials.of({}), given.items())._options)
    assert options == {**dict(_OPTIONS), **given}
    assert len(Channel("a:1", Credentials.of({}), given.items())._options) == len(options)

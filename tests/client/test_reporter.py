"""What a worker says of its load: in the background, each report once, the newest few kept while nobody listens."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest

from tests.client.service_in_test import Running, ServiceInTest, fails, until
from unskew.client import Breaker, Client, ClientClosedError, Reporter
from unskew.core.errors import ConfigError
from unskew.core.stream_spec import BatchWork, Work
from unskew.v1 import partitioner_pb2 as pb

QUICK = Breaker(1_000, 0.02, 0.02)


def work(rows: int = 5) -> BatchWork:
    return BatchWork((Work(3, rows=rows, seconds=0.5, queue=7, capacity=100.0),), interval=1.0)


def told(service: ServiceInTest) -> list[Any]:
    return [request for verb, request, _ in list(service.seen) if verb == "ReportBatch"]


def test_reports_arrive_in_order_and_say_whose_they_are(running: Running, service: ServiceInTest) -> None:
    with Reporter("clicks", running.target, source="app", part=3, parts=8) as reporter:
        for batch in range(3):
            reporter.tell(batch, work(batch + 1))
        assert reporter.close(60.0) is True
        assert (reporter.status.sent, reporter.status.dropped, reporter.status.error) == (3, 0, "")
    assert [(one.part.source, one.part.batch, one.part.part, one.part.parts) for one in told(service)] == [
        ("app", batch, 3, 8) for batch in range(3)
    ]
    assert [one.partitions[0].rows for one in told(service)] == [1, 2, 3]
    assert (told(service)[0].partitions[0].queue, told(service)[0].interval_seconds) == (7, 1.0)


def test_telling_waits_for_nobody(running: Running, service: ServiceInTest) -> None:
    """The service hangs: the worker goes on, and the end is within its deadline and says that something is left."""
    release = threading.Event()
    service.does["ReportBatch"] = lambda request, context: (release.wait(60), pb.ReportBatchResponse())[1]
    reporter = Reporter("clicks", running.target, source="app", timeout=60.0)
    began = time.monotonic()
    for batch in range(20):
        reporter.tell(batch, work())
    assert time.monotonic() - began < 30.0
    assert reporter.close(0.2) is False
    assert time.monotonic() - began < 30.0
    release.set()


def test_of_what_could_not_be_sent_the_newest_are_kept(running: Running, service: ServiceInTest) -> None:
    """Sent when the service is back; what was dropped is counted."""
    away = fails(grpc.StatusCode.UNAVAILABLE)
    service.does["ReportBatch"] = away
    with Reporter("clicks", running.target, source="app", keep=2, timeout=0.3, breaker=QUICK) as reporter:
        for batch in range(5):
            reporter.tell(batch, work())
        until(lambda: reporter.status.error)
        assert (reporter.status.waiting, reporter.status.dropped) == (2, 3)
        service.seen.clear()
        del service.does["ReportBatch"]
        until(lambda: reporter.status.sent == 2)
        assert (reporter.status.error, reporter.status.waiting) == ("", 0)
    assert [one.part.batch for one in told(service)][-2:] == [3, 4]


def test_what_is_refused_is_not_sent_again(running: Running, service: ServiceInTest) -> None:
    """It would be refused again, and hold up what comes after it."""
    service.does["ReportBatch"] = fails(grpc.StatusCode.INVALID_ARGUMENT, "partition: 3")
    with Reporter("clicks", running.target, source="app") as reporter:
        reporter.tell(1, work())
        until(lambda: reporter.status.dropped == 1)
        assert "RefusedError" in reporter.status.error
        del service.does["ReportBatch"]
        reporter.tell(2, work())
        until(lambda: reporter.status.sent == 1)
    assert [one.part.batch for one in told(service)] == [1, 2]


def test_a_closed_one_says_so_and_a_shared_client_stays_open(client: Client, service: ServiceInTest) -> None:
    reporter = Reporter("clicks", client, source="app")
    reporter.tell(1, work())
    assert reporter.close(5.0)
    assert not client.closed
    with pytest.raises(ClientClosedError, match="clicks"):
        reporter.tell(2, work())


def test_what_makes_no_sense_is_refused_by_name() -> None:
    for given, named in (
        ({"source": "a b"}, "source"),
        ({"source": "a", "part": 2, "parts": 2}, "part"),
        ({"source": "a", "keep": 0}, "keep"),
        ({"source": "a", "timeout": -1.0}, "timeout"),
    ):
        with pytest.raises(ConfigError, match=named):
            Reporter("clicks", **given)  # type: ignore[arg-type]

"""What runs beside a job: one thread, a breaker, a back-off, and what waits to be sent."""

from __future__ import annotations

import logging
import random
import threading
import time

import pytest

from unskew.client import Breaker, NoAnswerError, NotThereError
from unskew.client.background import Background, Backoff, Outbox, child_name, default_name


def no_answer() -> None:
    raise NoAnswerError("GetPlan", "clicks", "here", "UNAVAILABLE", "gone")


def not_there() -> None:
    raise NotThereError("GetPlan", "clicks", "here", "NOT_FOUND", "no such stream")


class TestTheThread:
    def test_it_is_started_once_and_ends_when_it_is_stopped(self) -> None:
        """Whoever calls ``start`` first starts it; ``stop`` wakes it from its pause."""
        background, runs = Background("test"), []

        def run() -> None:
            runs.append(threading.current_thread().name)
            while not background.stopped:
                background.pause()

        assert not background.started
        starters = [threading.Thread(target=background.start, args=(run,)) for _ in range(8)]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        assert not background.join(0.0)
        background.stop()
        assert background.join(5.0)
        assert runs == ["test"]

    def test_a_wake_before_the_pause_is_not_lost(self) -> None:
        """The pause after it returns at once, the next one waits; after ``stop`` none waits."""
        background = Background("test")
        background.wake()
        background.pause(60.0)
        began = time.monotonic()
        background.pause(0.05)
        assert time.monotonic() - began >= 0.05
        background.stop()
        background.pause(60.0)
        background.pause(60.0)

    def test_without_a_thread_there_is_nothing_to_join(self) -> None:
        assert Background("test").join(0.0)


class TestAttempts:
    def test_a_failure_is_counted_logged_once_as_a_warning_and_over_after_a_success(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "unskew.client")
        background = Background("unskew test")
        for _ in range(3):
            assert isinstance(background.attempt(no_answer, "no plan"), NoAnswerError)
        assert (background.failed, background.error[:14]) == (3, "NoAnswerError:")
        assert background.attempt(lambda: None, "no plan") is None
        assert (background.failed, background.error) == (3, "")
        assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG", "INFO"]
        assert caplog.records[0].message.startswith("no plan. NoAnswerError: ")

    def test_errors_that_do_not_trip_the_breaker_leave_it_closed(self) -> None:
        """A refusal is an answer; an agent counts it all the same, because it sends the same report again."""
        one, other = Background("test", Breaker(failures=1)), Background("test", Breaker(failures=1), trips=Exception)
        one.attempt(not_there, "")
        other.attempt(not_there, "")
        assert (one.allowed(), other.allowed()) == (True, False)
        one.attempt(no_answer, "")
        assert not one.allowed()

    def test_each_background_has_a_breaker_of_its_own(self) -> None:
        """The breaker that is given is a pattern: what fails in one life does not count in the next."""
        pattern = Breaker(failures=1)
        Background("test", pattern).attempt(no_answer, "")
        assert Background("test", pattern).allowed()

    def test_an_error_after_the_stop_only_counts_where_it_is_asked_for(self) -> None:
        """Stopping cancels the call that is under way; a last report that fails is a failure."""
        background = Background("test")
        background.stop()
        assert background.attempt(no_answer, "") is not None
        assert (background.failed, background.error) == (0, "")
        background.attempt(no_answer, "", after_stop=True)
        assert background.failed == 1


class TestOutbox:
    def test_the_newest_are_kept(self) -> None:
        outbox = Outbox[str](keep=2)
        for item in ("a", "b", "c"):
            outbox.put(item)
        assert (outbox.first(), len(outbox), outbox.dropped) == ("b", 2, 1)

    def test_an_item_that_was_pushed_out_while_it_was_sent_removes_no_other(self) -> None:
        outbox = Outbox[list[int]](keep=1)
        one, other = [1], [1]
        outbox.put(one)
        sent = outbox.first()
        outbox.put(other)
        assert sent is one
        outbox.remove(sent)
        assert outbox.first() is other
        outbox.remove(other)
        assert outbox.first() is None


def test_pauses_double_up_to_the_longest_and_are_random() -> None:
    """Between half of it and all of it; a success starts again."""
    backoff = Backoff(1.0, 4.0, random.Random(7))
    pauses = [backoff.next() for _ in range(40)]
    assert all(most / 2 <= pause <= most for most, pause in zip((1.0, 2.0, *[4.0] * 38), pauses, strict=True))
    assert len(set(pauses)) == 40
    backoff.reset()
    assert backoff.next() <= 1.0


def test_names_are_unique() -> None:
    """Of agents on hosts of one name, and of the children of one agent, however long that one's name is."""
    assert len({default_name() for _ in range(50)}) == 50
    assert len({child_name("a" * 300) for _ in range(50)}) == 50
    assert len(child_name("a" * 300)) == 200

"""Which pin a batch goes by: decided once, whoever asks, however often, and whatever happens in between."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import some_histogram
from unskew.core.errors import ConfigError, PlanError, PlanFormatError
from unskew.core.planners import make_planner
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.spark.folders import Folder
from unskew.spark.streaming.pin_log import PinLog, pin_folder
from unskew.wire import StoredPin

PLANS = [make_planner("balanced", 4).plan(some_histogram(2_000, 300, seed=seed)) for seed in range(4)]
IDENTITY = StoredPin(RoutingChoice(4), "clicks", "q", ("user",), ("auto",))


def binding(where: Path, identity: StoredPin = IDENTITY) -> PinLog:
    """As a run of the query has it."""
    return PinLog(pin_folder(str(where), "q"), identity)


def files(where: Path) -> list[int]:
    return sorted(int(name.removesuffix(".pb")) for name in pin_folder(str(where), "q").names())


def bind(to: PinLog, batch: int, plan: int) -> str:
    """What ``foreach`` does with a batch, and the plan that it then goes by; ``plan`` is what it would take."""
    found = None if to.free(batch) else to.bound(batch)
    if found is None:
        present = to.present
        stays = present is not None and present.bound.plan == PLANS[plan]
        found = to.stay(batch) if stays else to.bind(batch, RoutingChoice(4, PLANS[plan]), "a reason", 1)
    assert found.bound.plan is not None
    return found.bound.plan.digest


def test_a_pin_is_written_where_something_changes(tmp_path: Path) -> None:
    """Batches 0 to 2 by one plan, the next two by another: two files."""
    run = binding(tmp_path)
    went = [bind(run, batch, plan) for batch, plan in enumerate((0, 0, 0, 1, 1))]
    assert went == [PLANS[plan].digest for plan in (0, 0, 0, 1, 1)]
    assert files(tmp_path) == [0, 3]


def test_a_new_run_goes_by_what_is_there_and_then_on(tmp_path: Path) -> None:
    """The first batch may have been begun: its plan is the old one, though there is a newer. The next takes that."""
    first = binding(tmp_path)
    for batch, plan in enumerate((0, 0, 1)):
        bind(first, batch, plan)
    for batch, expected in ((2, 1), (3, 1)):  # in the batch; or before the pin of the next one
        run = binding(tmp_path)
        assert bind(run, batch, 2) == PLANS[expected].digest
        assert bind(run, batch, 2) == PLANS[expected].digest  # it failed, and runs again
    assert bind(run, 4, 2) == PLANS[2].digest


def test_a_driver_that_was_thought_dead_is_too_late(tmp_path: Path) -> None:
    """The old one wakes up and would bind the batch to a newer plan, when the new one has begun it by the pin that was
    there: it gets that, too. And so does whoever comes after both."""
    old, new = binding(tmp_path), binding(tmp_path)
    bind(old, 0, 0)
    assert old.free(1)
    assert bind(new, 1, 2) == PLANS[0].digest
    assert bind(old, 1, 1) == PLANS[0].digest
    assert bind(binding(tmp_path), 1, 3) == PLANS[0].digest


def ended(where: Path, batch: int, plan: int) -> PinLog:
    """A run that binds this batch and ends with it."""
    run = binding(where)
    bind(run, batch, plan)
    run.end(batch)
    return run


def test_the_first_batch_after_a_clean_end_is_bound_anew(tmp_path: Path) -> None:
    """One batch a run: each by the plan that is the newest then, with a pin of its own even where the plan stays."""
    for batch, plan in enumerate((0, 1, 1, 2)):
        run = ended(tmp_path, batch, plan)
        assert run.present is not None
        assert run.present.bound.plan == PLANS[plan]
    assert files(tmp_path) == [0, 1, 2, 3]


def test_a_batch_that_was_begun_after_a_clean_end_keeps_its_plan(tmp_path: Path) -> None:
    """The run dies in its only batch, and the end before it is still written there."""
    ended(tmp_path, 0, 0)
    assert bind(binding(tmp_path), 1, 1) == PLANS[1].digest
    assert bind(binding(tmp_path), 1, 2) == PLANS[1].digest
    ended(tmp_path, 1, 3)
    assert bind(binding(tmp_path), 2, 0) == bind(binding(tmp_path), 2, 3) == PLANS[0].digest


def test_two_drivers_after_a_clean_end_agree(tmp_path: Path) -> None:
    """Both find that nobody has begun the batch; the second finds what the first has bound."""
    ended(tmp_path, 0, 0)
    one, other = binding(tmp_path), binding(tmp_path)
    assert one.bound(1) is other.bound(1) is None
    assert bind(one, 1, 1) == bind(other, 1, 2) == PLANS[1].digest


def test_an_end_is_of_the_last_batch_only(tmp_path: Path) -> None:
    """A batch that was begun and is not done; one before the last; none at all: the next run may not bind anew."""
    run = binding(tmp_path)
    run.end(-1)
    bind(run, 0, 0)
    bind(run, 1, 0)
    run.end(0)
    assert bind(binding(tmp_path), 1, 2) == PLANS[0].digest
    assert bind(binding(tmp_path), 2, 2) == PLANS[0].digest


def test_an_end_is_forgotten_where_sparks_log_was_set_back(tmp_path: Path) -> None:
    """Batches 0 to 5 and a clean end; then batch 3 again, and a run that stays with its plan and dies in batch 6."""
    first = binding(tmp_path)
    for batch in range(6):
        bind(first, batch, 0)
    first.end(5)
    again = binding(tmp_path)
    for batch in range(3, 7):
        bind(again, batch, 0)
    assert bind(binding(tmp_path), 6, 1) == PLANS[0].digest


def test_a_query_that_is_being_stopped_may_begin_a_batch_after_its_end(tmp_path: Path) -> None:
    """It stays with its plan, and says so under the batch's name: the next run finds that."""
    run = binding(tmp_path)
    bind(run, 0, 0)
    run.end(0)
    assert bind(run, 1, 0) == PLANS[0].digest
    assert bind(binding(tmp_path), 1, 1) == PLANS[0].digest


def test_runs_of_one_batch_leave_no_more_pins_than_others(tmp_path: Path) -> None:
    for batch in range(140):
        ended(tmp_path, batch, 0)
    assert len(files(tmp_path)) == 101


def test_the_first_batch_of_all_is_bound_once(tmp_path: Path) -> None:
    one, other = binding(tmp_path), binding(tmp_path)
    assert one.bound(0) is other.bound(0) is None
    assert bind(one, 0, 1) == bind(other, 0, 2) == PLANS[1].digest
    assert files(tmp_path) == [0]


def test_a_pin_that_is_there_already_is_taken(tmp_path: Path) -> None:
    """The disk lost Spark's last commits and kept the pins: in the middle of a run a batch comes that has one."""
    before = binding(tmp_path)
    for batch, plan in enumerate((0, 1, 2)):
        bind(before, batch, plan)
    after = binding(tmp_path)
    bind(after, 0, 3)
    assert bind(after, 1, 0) == PLANS[1].digest
    assert bind(after, 2, 1) == PLANS[2].digest


@pytest.mark.parametrize("reached", [False, True])
def test_a_pin_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    """The disk says no, before or after the file is there: the batch that runs again looks what is."""
    run = binding(tmp_path)
    bind(run, 0, 0)
    create = Folder.create

    def failing(self: Folder, name: str, data: bytes) -> bool:
        if reached:
            create(self, name, data)
        raise OSError("the disk says no")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "create", failing)
        with pytest.raises(OSError, match="says no"):
            bind(run, 1, 1)
    went = bind(run, 1, 0)
    assert went == PLANS[1 if reached else 0].digest
    assert bind(binding(tmp_path), 1, 2) == went


def test_a_query_that_was_not_ours_before(tmp_path: Path) -> None:
    """Its first batch here has any number."""
    run = binding(tmp_path)
    assert bind(run, 41, 0) == PLANS[0].digest
    assert bind(run, 42, 0) == PLANS[0].digest
    assert files(tmp_path) == [41]


def test_a_pin_that_is_gone_is_missed(tmp_path: Path) -> None:
    """A batch is never run by another plan in silence: what to do is said."""
    bind(binding(tmp_path), 5, 0)
    with pytest.raises(PlanError, match=r"batch 3 is older than every pin in .*the oldest: 5"):
        binding(tmp_path).bound(3)


def test_a_damaged_pin_is_named(tmp_path: Path) -> None:
    bind(binding(tmp_path), 5, 0)
    folder = pin_folder(str(tmp_path), "q")
    whole = folder.read("5.pb")
    assert whole is not None
    folder.put("5.pb", whole[:-1])
    with pytest.raises(PlanFormatError, match=r"5\.pb in .*pins: .*not whole.*put the file back"):
        binding(tmp_path).bound(5)


@pytest.mark.parametrize(
    ("identity", "named"),
    [
        (
            StoredPin(RoutingChoice(4), "clicks", "q", ("shop",), ("auto",)),
            r"key: \('shop',\) is not allowed; use \('user',\)",
        ),
        (StoredPin(RoutingChoice(4), "clicks", "q", ("user",), ("id",)), r"spread: \('id',\)"),
        (StoredPin(RoutingChoice(4), "other", "q", ("user",), ("auto",)), "stream: 'other'"),
    ],
)
def test_pins_of_other_rows_are_refused(tmp_path: Path, identity: StoredPin, named: str) -> None:
    bind(binding(tmp_path), 0, 0)
    with pytest.raises(ConfigError, match=named):
        binding(tmp_path, identity).bound(0)


def test_old_pins_go_and_the_one_that_holds_stays(tmp_path: Path) -> None:
    """The hundred batches that Spark can go back can be gone back; a pin that holds for them is kept, however old."""
    run = binding(tmp_path)
    bind(run, 0, 0)
    for batch in range(1, 131):
        bind(run, batch, 0 if batch < 20 else batch % 2)
    assert files(tmp_path) == [30, *range(31, 131)]
    assert [bind(binding(tmp_path), batch, 3) for batch in (30, 129)] == [PLANS[0].digest, PLANS[1].digest]


def test_other_files_are_no_pins(tmp_path: Path) -> None:
    folder = pin_folder(str(tmp_path), "q")
    for name in (".5.pb.crc", "x.pb", "5.pb.old", "_5.pb"):
        folder.put(name, b"?")
    assert bind(binding(tmp_path), 7, 0) == PLANS[0].digest


kinds = st.sampled_from(["next", "again", "restart", "zombie", "clean end"])
steps = st.lists(st.tuples(kinds, st.integers(0, 3)), max_size=25)


@settings(max_examples=60)
@given(steps=steps)
def test_whatever_happens_a_batch_goes_by_one_plan(steps: list[tuple[str, int]]) -> None:
    """Drivers die, wake up again and run batches twice, and each time another plan is the newest. (One that wakes up
    has the batch in hand that its successor began with: Spark's log of commits lets only one of them go on.)"""
    with TemporaryDirectory() as folder:
        now, before, batch, went = binding(Path(folder)), None, 0, dict[int, str]()
        for step, plan in steps:
            if step == "next" and batch in went:
                batch, before = batch + 1, None
            if step == "restart":
                before, now = now, binding(Path(folder))
            if step == "clean end" and batch in went:
                now.end(batch)
                before, now, batch = None, binding(Path(folder)), batch + 1
            asked = before if step == "zombie" and before is not None else now
            digest = bind(asked, batch, plan)
            assert went.setdefault(batch, digest) == digest

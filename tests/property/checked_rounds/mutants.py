"""Rounds that are broken on purpose, one thing each: a checker that does not find them out is none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from unskew.core.rounds import next_step as machine
from unskew.core.rounds.next_step import Wait
from unskew.core.rounds.replica import ReplicaState
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundLog, StoredReport, _AgentRecord
from unskew.service.api.verbs import Synced
from unskew.service.engine.rounds.rounds import Rounds
from unskew.service.stores.memory import MemoryStore

__all__ = ["MUTANTS", "broken"]

MUTANTS: dict[str, Callable[[], Any]] = {}


def mutant(make: Callable[[], Any]) -> Callable[[], Any]:
    MUTANTS[make.__name__] = make
    return make


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    with MUTANTS[name]():
        yield


# -- the store


@mutant
def a_report_that_is_repeated_counts_again() -> Any:
    def report(log: RoundLog, key: ReportKey, data: bytes, now: float, lease: float, most: float = 0) -> ReportOutcome:
        agent = log.agents.setdefault(key.agent, _AgentRecord())
        agent.lease, agent.latest = now + lease, (key.session, key.seq)
        log._enter(StoredReport(key, data, now), key)
        return ReportOutcome.STORED

    return mock.patch.object(RoundLog, "report", report)


@mutant
def a_report_that_is_repeated_is_called_merged() -> Any:
    sound = RoundLog.report

    def report(log: RoundLog, *args: Any) -> ReportOutcome:
        outcome = sound(log, *args)
        return ReportOutcome.MERGED if outcome is ReportOutcome.REPEATED else outcome

    return mock.patch.object(RoundLog, "report", report)


@mutant
def a_commit_is_taken_whatever_is_there() -> Any:
    def commit(log: RoundLog, offered: Commit, now: float, forget: float) -> bool:
        log.epochs.pop(offered.epoch, None)
        log.merged, log.last = log.merged + 1, replace(offered, epoch=log.merged + 1)
        log.open = max(log.open, log.merged + 1)
        for name in offered.names:
            log.agents.setdefault(name.agent, _AgentRecord()).merged = name[1:]
        return True

    return mock.patch.object(RoundLog, "commit", commit)


@mutant
def a_seal_is_answered_before_it_is_done() -> Any:
    async def seal(store: MemoryStore, stream: str, epoch: int) -> bool:
        return True

    return mock.patch.object(MemoryStore, "seal", seal)


@mutant
def a_stream_that_begins_anew_keeps_its_number() -> Any:
    sound = MemoryStore._begin

    def begin(store: MemoryStore, name: str, spec: bytes, floor: int, owner: str) -> Any:
        had = store._streams.get(name)
        record = sound(store, name, spec, floor, owner)
        if had is not None:
            record = store._streams[name].record = replace(record, incarnation=had.record.incarnation)
        return record

    return mock.patch.object(MemoryStore, "_begin", begin)


# -- the machine


@mutant
def a_round_is_sealed_without_waiting_for_leases() -> Any:
    return mock.patch.object(machine, "seal_at", lambda now, deadline, missing: now)


@mutant
def nobody_takes_a_round_over() -> Any:
    return mock.patch.object(machine, "_take_over", lambda view, state, now: Wait(state.timing.poll))


@mutant
def a_lost_round_is_not_noticed() -> Any:
    return mock.patch.object(SeenRound, "is_lost", return_value=False)


@mutant
def a_lost_round_is_noticed_by_its_number_only() -> Any:
    return mock.patch.object(SeenRound, "is_lost", lambda seen, version, digests: seen[:2] > version)


@mutant
def what_agents_show_is_not_looked_at() -> Any:
    return mock.patch.object(ReplicaState, "after_shown", lambda state, seen: state)


@mutant
def a_round_is_looked_for_by_its_number_in_any_incarnation() -> Any:
    """A stream that began anew is taken for the one before it."""
    return mock.patch.object(SeenRound, "is_lost", lambda seen, version, digests: seen.epoch > version[1])


# -- the verbs


@mutant
def a_report_is_answered_when_it_is_stored() -> Any:
    sound = Rounds.sync

    async def sync(rounds: Rounds, stream: str, report: Any, *args: Any) -> Synced:
        synced = await sound(rounds, stream, report, *args)
        if synced.answer is None:
            return synced
        return replace(synced, answer=replace(synced.answer, merged=(*synced.answer.merged, report.name)))

    return mock.patch.object(Rounds, "sync", sync)

"""So much processor time for a process, and a file in which it can read how much: what a container gives it.

Two ways, the same semantics (a quota a period; who is below it runs at full speed):

- ``Groups``: the kernel's own CPU quota, by a cgroup of version 1 for each process. Where its folder can be written.
- ``Governor``: what cpulimit does (CG's authors throttled with it, section 7): a thread looks at the processor time of
  each process and sends SIGSTOP while it is over its share, SIGCONT when it is not. For everywhere else.

With ``Groups`` the processes weigh more than others on the machine, so that these do not take what the quota grants.
Version 2 of cgroups is left to the governor: who may write there differs too much between machines.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

__all__ = ["Limits", "limits", "share_of"]

_ROOT = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 50_000
_LOOK = 0.004
_BURST = 0.004  # processor seconds that the governor lets a process save up


class Limits(Protocol):
    """``put`` gives process ``pid`` this share of one processor from now on; ``file`` is where it can read it.
    ``favour`` lets a process run before others on the machine, if that can be had."""

    name: str

    def file(self, pid: int) -> str: ...

    def put(self, pid: int, share: float) -> None: ...

    def favour(self, pid: int) -> None: ...


def share_of(file: str) -> float:
    """The share of one processor that this file grants: quota and period, in microseconds."""
    path = Path(file)
    if path.is_dir():
        quota, period = ((path / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    else:
        quota, period = path.read_text().split()
    return int(quota) / int(period)


class Groups:
    name = "cgroup quota"

    def __init__(self) -> None:
        for old in (*_ROOT.glob("unskew-*/*/"), *_ROOT.glob("unskew-*/")):  # of runs that were killed
            with suppress(OSError):  # it has processes, or files are no folders
                old.rmdir()
        self._folder = _ROOT / f"unskew-{os.getpid()}"
        self._folder.mkdir()
        (self._folder / "cpu.shares").write_text("16384")
        self._pids: set[int] = set()

    def file(self, pid: int) -> str:
        return str(self._folder / str(pid))

    def put(self, pid: int, share: float) -> None:
        self.favour(pid)
        (Path(self.file(pid)) / "cpu.cfs_quota_us").write_text(str(max(round(share * _PERIOD_US), 1_000)))

    def favour(self, pid: int) -> None:
        own = Path(self.file(pid))
        if pid not in self._pids:
            own.mkdir()
            self._pids.add(pid)
            (own / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (own / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """The groups go when their processes are gone."""
        limit = time.monotonic() + 5.0
        for folder in (*(Path(self.file(pid)) for pid in self._pids), self._folder):
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > limit:
                        raise
                    time.sleep(0.02)


class Governor:
    name = "stopped and continued"

    def __init__(self) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="unskew-shares-")
        self._shares: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu governor", daemon=True)
        self._thread.start()

    def file(self, pid: int) -> str:
        return str(Path(self._files.name) / str(pid))

    def put(self, pid: int, share: float) -> None:
        own = Path(self.file(pid))
        fresh = own.with_suffix(".new")
        fresh.write_text(f"{round(share * 1_000_000)} 1000000")
        fresh.replace(own)
        self.favour(pid)
        self._shares = {**self._shares, pid: share}

    def favour(self, pid: int) -> None:
        """Where this user may."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, -10)

    def _run(self) -> None:
        left: dict[int, float] = {}
        used: dict[int, float] = {}
        last = time.monotonic()
        while not self._ended.wait(_LOOK):
            now, shares = time.monotonic(), self._shares
            for pid, share in shares.items():
                with suppress(OSError):
                    spent = time.clock_gettime(_clock(pid))
                    left[pid] = min(left.get(pid, 0.0) + share * (now - last), _BURST) - spent + used.get(pid, spent)
                    used[pid] = spent
                    os.kill(pid, signal.SIGSTOP if left[pid] < 0.0 else signal.SIGCONT)
            last = now

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for pid in self._shares:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        self._files.cleanup()


def _clock(pid: int) -> int:
    """The kernel's clock of the processor time of this process: ``clock_getcpuclockid``."""
    return (~pid << 3) | 2


@contextmanager
def limits(*, governor: bool = False) -> Iterator[Limits]:
    """The kernel's quota where this process may set one, else (or if told so) the governor. End the processes before
    the block ends."""
    chosen: Groups | Governor
    try:
        chosen = Governor() if governor else Groups()
    except OSError:
        chosen = Governor()
    try:
        yield chosen
    finally:
        chosen.close()

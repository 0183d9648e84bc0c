"""How fast `unskew events` reads a log, and in how much memory: MB of uncompressed log a second of one core.

    python -m benchmarks.events [--megabytes 1000]

The log is one of `tests/events/logs`, written by a real Spark, again and again with other numbers of stages:
once with stages of 100 tasks, once of 4, every second of them skewed, where plans and reports weigh more than tasks.
Each way of packing is read by a process of its own; its memory is the most that it had, libraries included. Beside it
stands what `json.loads` needs to decode the same lines and do nothing with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

LOGS = Path(__file__).resolve().parents[1] / "tests" / "events" / "logs"
NUMBERED = re.compile(rb'("Stage ID":|"executionId":|"spark.sql.execution.id":"|"Job ID":)(\d+)')
LISTED = re.compile(rb'("Stage IDs":\[|"Parent IDs":\[)([\d,]+)')
INDEX = re.compile(rb'"Index":\d+')
TASKS = {100: 25, 4: 1}  # of a stage, and how often each of the four tasks comes
APART = 1_000  # numbers of stages and queries from one copy to the next
LEAST, MOST = 100.0, 400.0  # MB/s, MB of memory
READ = """\
import sys, time
from unskew.cli.entry import main
start = time.process_time()
try:
    main(["events", sys.argv[1], "--top", "3"])
finally:
    seconds = time.process_time() - start
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("measured", seconds, int(peak) / 1000, file=sys.stderr)
"""


def copies(size: int, tasks: int) -> Iterator[bytes]:
    """So many bytes of log and a little more, a copy of the log at a time."""
    source = max(LOGS.glob("*.zstd"))
    lines = pa.CompressedInputStream(pa.OSFile(str(source)), "zstd").read().splitlines(keepends=True)
    once = (b"LogStart", b"ApplicationStart", b"ApplicationEnd", b"EnvironmentUpdate", b"ExecutorAdded")
    yield b"".join(line for line in lines if any(name in line[:60] for name in once[:2] + once[3:]))
    block = b"".join(_more(line, tasks) for line in lines if not any(name in line[:60] for name in once))
    written = 0
    while written < size:
        base = APART * (1 + written // len(block))
        copy = NUMBERED.sub(lambda at, base=base: at[1] + b"%d" % (int(at[2]) + base), block)
        yield LISTED.sub(lambda at, base=base: at[1] + _moved(at[2], base), copy)
        written += len(copy)


def _more(line: bytes, tasks: int) -> bytes:
    """A task's end as the ends of many tasks."""
    if b"ListenerTaskEnd" not in line[:60]:
        return line
    before, after = INDEX.split(line, maxsplit=1)
    index = int(INDEX.findall(line)[0].rpartition(b":")[2])
    return b"".join(b'%b"Index":%d%b' % (before, index + 1_000 * more, after) for more in range(tasks))


def _moved(numbers: bytes, base: int) -> bytes:
    return b",".join(b"%d" % (int(number) + base) for number in numbers.split(b","))


def write(folder: Path, size: int, tasks: int) -> dict[str, Path]:
    """The same log plain and packed by zstd."""
    files = {"plain": folder / "log", "zstd": folder / "log.zstd"}
    with files["plain"].open("wb") as plain, pa.CompressedOutputStream(str(files["zstd"]), "zstd") as packed:
        for copy in copies(size, tasks):
            plain.write(copy)
            packed.write(copy)
    return files


def measured(path: Path) -> tuple[float, float]:
    """Seconds of the processor, and the most memory in MB."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    _, seconds, peak = done.stderr.split()[-3:]
    return float(seconds), float(peak)


def decoded(path: Path) -> float:
    """Seconds that json.loads needs for a tenth of the lines, times ten."""
    with path.open("rb") as file:
        lines = file.read(path.stat().st_size // 10).splitlines()[:-1]
    start = time.process_time()
    for line in lines:
        json.loads(line)
    return 10 * (time.process_time() - start)


def compared(size: int, tasks: int) -> bool:
    """Print the figures of a log whose stages have so many tasks; whether they are as they should be."""
    good = True
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        files = write(Path(folder), size, TASKS[tasks])
        megabytes = files["plain"].stat().st_size / 1e6
        print(f"{megabytes:,.0f} MB of log, stages of {tasks} tasks")
        for name, path in files.items():
            seconds, peak = measured(path)
            good = good and megabytes / seconds >= LEAST and peak < MOST
            print(f"{name:>10}: {megabytes / seconds:6,.0f} MB/s a core, {peak:4,.0f} MB of memory")
        print(f"{'json.loads':>10}: {megabytes / decoded(files['plain']):6,.0f} MB/s a core")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1_000)
    asked = parser.parse_args()
    results = [compared(asked.megabytes * 1_000_000, tasks) for tasks in TASKS]
    good = all(results)
    print(f"at least {LEAST:.0f} MB/s in less than {MOST:.0f} MB: {'yes' if good else 'NO'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

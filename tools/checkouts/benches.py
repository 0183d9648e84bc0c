"""How a benchmark is run in another checkout, and how what it prints is read."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["BENCHES", "LAUNCH", "Figures", "figures"]

# Runs one benchmark with other constants, defaults and a clock of processor time, which counts in thousandths so that
# the figures are printed with three more digits.
LAUNCH = """
import functools, importlib, json, pathlib, sys, time, timeit, types
name, constants, defaults, clock, *arguments = sys.argv[1:]
import unskew.core
assert pathlib.Path(unskew.core.__file__).is_relative_to(pathlib.Path.cwd()), unskew.core.__file__
bench = importlib.import_module("benchmarks." + name)
for constant, value in json.loads(constants).items():
    getattr(bench, constant)
    setattr(bench, constant, value)
for function, values in json.loads(defaults).items():
    setattr(bench, function, functools.partial(getattr(bench, function), **values))
thousandths = lambda: 1000 * time.process_time()
if clock and hasattr(bench, "timeit"):
    bench.timeit = types.SimpleNamespace(
        timeit=timeit.timeit, repeat=functools.partial(timeit.repeat, timer=thousandths))
elif clock:
    bench.time = types.SimpleNamespace(perf_counter=thousandths)
sys.argv = [name, *arguments]
bench.main()
"""

Figures = dict[str, tuple[float, float]]  # by name: the cost, and half of its last digit, as a share of it
Read = Callable[[str], Iterator[tuple[str, str]]]


def routers(text: str) -> Iterator[tuple[str, str]]:
    for z, n, name, cost in re.findall(r"^ +z (\S+) +n +(\d+) +(\w+) +([\d.]+) ns", text, re.M):
        yield f"{name}, z {z}, n {n}", cost


def plan_cost(text: str) -> Iterator[tuple[str, str]]:
    for z, name, cost, peer in re.findall(r"^ +z (\S+) +(.+?) +([\d.]+) ms +(argsort|take)", text, re.M):
        yield f"{'plan' if peer == 'argsort' else 'route'} {name}, z {z}", cost


def wire(text: str) -> Iterator[tuple[str, str]]:
    within = ""
    for line, printed in re.findall(r"^( *\S.*?) {2,}([\d,.]+(?: +[\d,.]+)*)$", text, re.M):
        name, numbers = line.strip(), printed.split()
        if name.startswith(("bare", "values")):
            continue
        within = within if line.startswith(" ") else name
        of = name if name == within else f"{within}, {name}"
        if len(numbers) == 4:
            yield from ((f"{of}: encode", numbers[1]), (f"{of}: decode", numbers[2]))
        else:
            yield of, numbers[-1]


def service_rpc(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := re.match(r" +(\d+ x \d+) +[\d,]+ +[\d,]+ +([\d,]+) +[\d.]+$", line):
            yield f"Sync {match[1]}: server us", match[2]
        elif match := re.match(r"  (\S.{27}) +[\d,]+ +[\d,]+ +([\d,]+) +([\d,]+) +[\d.]+$", line):
            yield f"{match[1].strip()}: calls/s", f"1/{match[2]}"
            yield f"{match[1].strip()}: server us", match[3]
        elif match := re.match(r"  (\S.{27}) +[\d,]+ +([\d,.]+) +([\d,.]+) +[\d.]+$", line):
            yield f"{match[1].strip()}: p50 ms", match[2]
            yield f"{match[1].strip()}: p99 ms", match[3]
        elif match := re.match(r" +of which redis-server: ([\d,]+) us", line):
            yield "redis-server us", match[1]


def spark_native(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.splitlines():
        section = line.split()[0] if line[:1].strip() else section
        if match := re.match(r"  (\S+) +(\w* *) +([\d.]+)x wall, +([\d.]+)x CPU", line):
            yield f"{section} {match[1]} {match[2]}".strip() + ": wall, times Spark's", match[3]
            yield f"{section} {match[1]} {match[2]}".strip() + ": CPU, times Spark's", match[4]
        elif match := re.match(r"  (n +\d+ \w+) +([\d.]+) ms, planned", line):
            yield f"Column {match[1]}: ms", match[2]


@dataclass(frozen=True)
class Bench:
    """How one benchmark is read, and its short dose: arguments, constants and defaults of its functions."""

    read: Read
    arguments: Sequence[str] = ()
    constants: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, dict[str, int]] = field(default_factory=dict)
    processor_time: bool = True


BENCHES = {
    "routers": Bench(routers, constants={"ROWS": 500_000}),
    "plan_cost": Bench(plan_cost, defaults={"beside": {"rounds": 5}}),
    "wire": Bench(wire, ["--rounds", "5"]),
    "service_rpc": Bench(
        service_rpc, ["--only", "rates", "redis", "cells", "--rounds", "3", "--seconds", "0.5"], processor_time=False
    ),
    "spark_native": Bench(
        spark_native,
        ["--part", "building", "--part", "repartition", "--part", "histogram", "--rows", "2000000", "--runs", "5"],
        processor_time=False,
    ),
}


def cost(printed: str) -> tuple[float, float]:
    """The figure, and half of its last digit as a share of it."""
    digits = printed.removeprefix("1/").replace(",", "")
    value = float(digits)
    step = 10.0 ** -len(digits.partition(".")[2])
    return (1 / value if printed.startswith("1/") else value), step / 2 / value


def figures(name: str, text: str) -> Figures:
    """Of one run; "all" is the geometric mean. What a peer costs is no figure, nor is a side that does nothing."""
    peers = re.compile(r"bare echo|repartition \w+ spark|answer .* another: decode|.* in no order: encode")
    printed = {what: number for what, number in BENCHES[name].read(text) if not peers.match(what)}
    read = {what: cost(number) for what, number in printed.items() if re.search("[1-9]", number.removeprefix("1/"))}
    if not read:
        raise ValueError(f"{name} printed no figure that is known here:\n{text}")
    return {"all": (math.exp(statistics.fmean(math.log(value) for value, _ in read.values())), 0.0), **read}

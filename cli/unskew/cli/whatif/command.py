"""``unskew whatif``: checks the options, reads the keys, replays them, writes the files and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import cast, get_args

from unskew.cli.numbers import fractions, share, whole
from unskew.cli.output import check_apart, check_file, check_folder, path_of, writing
from unskew.cli.whatif.agents import fleet_of
from unskew.cli.whatif.job import Job
from unskew.cli.whatif.key_file import Keys, read_keys
from unskew.cli.whatif.options import MAX_ROWS, parse_agents, parse_policies, parse_sliding
from unskew.cli.whatif.replay import replay, steps
from unskew.cli.whatif.results import Replay
from unskew.core.errors import ConfigError
from unskew.core.freshness.ways import Fresh
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.planners import Origin
from unskew.wire import plan_to_bytes

__all__ = ["WhatifOptions", "run"]


@dataclass(frozen=True)
class WhatifOptions:
    """The options, checked. Every file that will be written can be written."""

    file: Path
    columns: tuple[str, ...]
    types: tuple[str, ...]
    time: str
    job: Job
    as_json: bool
    plot: Path | None
    save_plans: Path | None
    saved: tuple[str, ...]

    @classmethod
    def of(
        cls,
        *,
        file: str,
        columns: Sequence[str],
        types: Sequence[str],
        time: str,
        partitions: str,
        policies: str,
        batch: str,
        window: str,
        slide: str,
        agents: str,
        dsync: str,
        fresh: str,
        count_cost: str,
        capacities: str,
        weights: str,
        seed: str,
        as_json: bool,
        plot: str | None,
        save_plans: str | None,
    ) -> WhatifOptions:
        n = whole("--partitions", partitions, 1, MAX_PARTITIONS)
        rows = whole("--batch", batch, 1, MAX_ROWS)
        planners, routers = parse_policies(policies)
        agent_count, dsync_rows = parse_agents(agents, dsync, routers)
        source = path_of("FILE", file)
        job = Job(
            policies=tuple(dict.fromkeys(("hash", *planners))),  # hash comes first, for comparison
            partitions=n,
            batch=rows,
            window=max(1, round(whole("--window", window, 1, MAX_ROWS) / rows)) if window and not time else None,
            weights=_weights(capacities, weights, n),
            seed=whole("--seed", seed, 0, 2**63 - 1),
            fresh=_fresh(fresh),
            routers=routers,
            agents=agent_count,
            dsync=dsync_rows,
            count_cost=share("--count-cost", count_cost, 10.0),
        )
        job = replace(job, sliding=parse_sliding(job, window, slide, timed=bool(time)))
        _check(job, "--capacities" if capacities else "--weights")
        picture = None if plot is None else path_of("--plot", plot)
        folder = None if save_plans is None else path_of("--save-plans", save_plans)
        if picture is not None:
            from unskew.cli.whatif.plot import check_plot

            check_plot(picture)
            check_file("--plot", picture)
        if folder is not None:
            if not planners:
                raise ConfigError(
                    "--save-plans", save_plans, "it with a planner among --policies; routers make no plans"
                )
            check_folder("--save-plans", folder, map(_file_of, planners))
        if picture is not None and folder is not None:
            check_apart(picture, folder)
        return cls(source, tuple(columns), tuple(types), time, job, as_json, picture, folder, planners)


def _weights(capacities: str, weights: str, n: int) -> tuple[float, ...] | None:
    if capacities and weights:
        raise ConfigError("--weights", weights, "it or --capacities, which is the same, not both")
    if capacities:
        return fractions("--capacities", capacities, n)
    return fractions("--weights", weights, n) if weights else None


def _check(job: Job, weights: str) -> None:
    """Raise what a policy refuses, with the name of the option that it came from."""
    try:
        job.planners()
        for router in job.routers:
            fleet_of(router, job, perf_counter)
    except ConfigError as why:
        option = weights if why.parameter == "weights" else f"--{why.parameter}"
        raise ConfigError(option, why.value, why.allowed) from None


def run(options: WhatifOptions) -> None:
    """Print what each policy would have done; write the plot and the plans if the options say so."""
    from unskew.cli.whatif.json_report import as_json
    from unskew.cli.whatif.report import as_table

    keys = read_keys(options.file, options.columns, options.types, options.time)
    result = _replayed(keys, _in_batches(options.job, keys))
    files = _files(options, keys, result)
    text = as_json(keys, result) if options.as_json else as_table(keys, result, files)
    with writing(files):
        print(text, end="", flush=True)


def _in_batches(job: Job, keys: Keys) -> Job:
    """With times, the planners' window is the mean number of batches in so many seconds."""
    if keys.times is None or job.sliding is None or keys.times[-1] <= keys.times[0]:
        return job
    seconds = float(keys.times[-1] - keys.times[0]) * job.batch / len(keys.times)
    return replace(job, window=max(1, min(round(job.sliding.window / seconds), len(keys.times))))


def _replayed(keys: Keys, job: Job) -> Replay:
    origin = Origin(stream=keys.name, key_types=keys.types)
    with _progress(steps(len(keys.hashes), job)) as tick:
        return replay(keys.hashes, job, origin, perf_counter, tick, keys.times)


def _files(options: WhatifOptions, keys: Keys, result: Replay) -> dict[Path, bytes]:
    files = {}
    if options.save_plans is not None:
        for policy in result.policies:
            if policy.plan is not None and policy.policy in options.saved:
                files[options.save_plans / _file_of(policy.policy)] = plan_to_bytes(policy.plan)
    if options.plot is not None:
        from unskew.cli.whatif.plot import draw

        files[options.plot] = draw(keys, result, options.plot.suffix.lstrip("."))
    return files


def _file_of(policy: str) -> str:
    return f"{policy}.plan"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr if that is a terminal; it is removed at the end."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda: bar.advance(task)


def _fresh(text: str) -> Fresh:
    """As the Spark library takes it, but for what only Spark can do."""
    allowed = tuple(fresh for fresh in get_args(Fresh) if fresh != "inflight")
    if text not in allowed:
        raise ConfigError("--fresh", text, allowed)
    return cast(Fresh, text)

"""The sizes of the demo, and their bounds.

The work of a row is a fixed wait, as for a call to another system; a task sleeps once an Arrow batch. A wait needs no
processor, so sixteen tasks can run at once on two cores as on a cluster, and the longest task decides how long a batch
takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.errors import ConfigError

__all__ = ["BOUNDS", "Demo", "quick"]

BOUNDS = {
    "batches": (2, 500),
    "rows": (1_000, 5_000_000),
    "partitions": (2, 64),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class Demo:
    """``rows`` a batch; after every ``change`` batches other keys are the hottest ``hot``; ``wait`` seconds of work a
    row; the keys' frequencies follow Zipf's law with ``exponent``."""

    batches: int = 9
    rows: int = 120_000
    partitions: int = 16
    seed: int = 7
    change: int = 3
    wait: float = 1.2e-4
    keys: int = 40_000
    hot: int = 100
    exponent: float = 1.5

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigError(name, getattr(self, name), f"a whole number, {least} to {most}")

    @property
    def least_seconds(self) -> float:
        """The least time of a batch, with equal partitions: work over slots."""
        return self.rows * self.wait / self.partitions


def quick() -> Demo:
    """A run of seconds instead of minutes, as a trial: most of its time is Spark's own, not the placement's."""
    return Demo(batches=3, rows=20_000, partitions=6, change=2, wait=2e-4)

"""How large the demo is, and what is allowed.

The work of a row is a fixed wait, so many microseconds, slept once an Arrow batch: as a call to another system costs
it. A wait needs no processor, so on two cores sixteen tasks wait at once as they would on a cluster, and the longest
task is what decides how long a batch takes.
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
    """``rows`` a batch; after every ``change`` batches the hottest ``hot`` keys give way to others; ``wait`` seconds of
    work a row; how often a key comes follows Zipf's law with ``exponent``."""

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
        """What a batch takes at least, if all partitions have the same: work over slots."""
        return self.rows * self.wait / self.partitions


def quick() -> Demo:
    """Seconds instead of minutes, to see that it runs: Spark's own time weighs more in it than placement does."""
    return Demo(batches=3, rows=20_000, partitions=6, change=2, wait=2e-4)

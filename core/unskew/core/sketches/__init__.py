"""Mergeable summaries of a key stream in bounded memory.

``FrequentItems`` says which keys are heavy and what it cannot know, ``HyperLogLog`` how many distinct keys there are.
Both take key hashes (uint64) and keep plain arrays as state.
"""

from unskew.core.sketches.frequent import Classes, FrequentItems, HeavyVerdict
from unskew.core.sketches.hyperloglog import HyperLogLog, estimate_registers

__all__ = ["Classes", "FrequentItems", "HeavyVerdict", "HyperLogLog", "estimate_registers"]

"""Mergeable summaries of a key stream in bounded memory.

``FrequentItems`` says which keys are heavy and what it cannot know, ``CountMin`` how often any key came,
``HyperLogLog`` how many distinct keys there are. All take key hashes (uint64) and keep plain arrays as state.
"""

from unskew.core.sketches.countmin import CountMin
from unskew.core.sketches.frequent import Classes, FrequentItems, Verdict
from unskew.core.sketches.hyperloglog import HyperLogLog, estimate_registers

__all__ = ["Classes", "CountMin", "FrequentItems", "HyperLogLog", "Verdict", "estimate_registers"]

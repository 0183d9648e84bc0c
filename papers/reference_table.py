"""Prompt's reference tables (section 5): which keys of a batch are split over several blocks.

The input of Algorithm 3 (``unskew.core.operators.bucket_allocator``) where map tasks take their keys from blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.errors import HistogramError

__all__ = ["split_keys"]

U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def split_keys(hashes: U64, blocks: NDArray[np.integer]) -> Mask:
    """The reference tables of all blocks: which (key, block) fragments belong to a key in several blocks."""
    if hashes.shape != blocks.shape:
        raise HistogramError(f"{hashes.size} keys but {blocks.size} blocks; give one block for each key fragment")
    order = np.lexsort((blocks, hashes))
    same_key = hashes[order][1:] == hashes[order][:-1]
    crosses = same_key & (blocks[order][1:] != blocks[order][:-1])
    _, key = np.unique(hashes, return_inverse=True)
    split = np.zeros(key.max(initial=-1) + 1, dtype=np.bool_)
    split[key[order[1:][crosses]]] = True
    mask: Mask = split[key]
    return mask

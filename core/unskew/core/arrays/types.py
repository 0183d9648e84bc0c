"""Short names for the types of arrays in ``core``: the type of a value, and its bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["F64", "I32", "I64", "U64", "Index", "Mask"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

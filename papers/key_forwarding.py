"""Key-forwarding (Dalton, section 4.2): which keys are final at their worker, so that their aggregates can go on.

For one partitioner. With several, a key is final only if none of them can have split it since all have last agreed, and
what a round says is older than that: where a sync does not fall on the slide's end, another one may split a key
afterwards. ``aggregate`` in Spark forwards by the plan of the batch, which all tasks share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.core.routers.learner import Learner

__all__ = ["keys_not_final"]


def keys_not_final(learner: Learner) -> NDArray[np.uint64]:
    """The keys that may have tuples in the window on other workers than their hash worker, ascending.

    All other keys are final where they are. Without a window no key ever is, and these are the hot keys.
    """
    rows = learner.rows
    return np.sort(rows.row_keys[rows.table[rows.table > 0] - 1])

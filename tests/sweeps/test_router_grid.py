"""FIDELITY's grid for every router, against an oracle on the same hashes: its marks, and our figures on record.

A small dose in `make test` (some cells, the first seeds), all cells and ten seeds in `make test-long`. A router that is
new, or better than before, is put on record by `python -m benchmarks.router_grid --write`.
"""

from __future__ import annotations

import pytest

from benchmarks.grid import CELLS, Dose
from benchmarks.router_grid import FEW, SEEDS, Cell, missed, recorded, results, strayed
from unskew.core.routers import ROUTERS

SOME: tuple[Cell, ...] = ((0.0, 16), (1.5, 64))


@pytest.mark.parametrize(
    ("cell", "seeds"),
    [
        *(pytest.param(cell, FEW, id=f"z{cell[0]}-n{cell[1]}") for cell in SOME),
        *(pytest.param(cell, SEEDS, id=f"z{cell[0]}-n{cell[1]}-all", marks=pytest.mark.long) for cell in CELLS),
    ],
)
def test_every_router_reaches_its_marks_and_is_where_it_was(cell: Cell, seeds: range) -> None:
    """PK-2 within 1.05 of what two workers allow, PoRC and CH-BL within epsilon, Dalton within 1.15 of the oracle; of
    all routers the imbalance, the same against the oracle and by slides, and the replication on record."""
    found = results(cell, seeds, Dose())
    assert set(ROUTERS) <= set(found)
    assert missed(cell, found) == []
    assert strayed(cell, found, recorded()) == []

"""Compiled and plain kernels give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from unskew.core.kernels import base as kernels
from unskew.core.kernels import choices
from unskew.core.keys.hashing import mix
from unskew.core.routers import ROUTERS

SCRIPT = """
import hashlib, sys, warnings
warnings.simplefilter("error")
import numpy as np
from unskew.core.routers import ROUTERS, make_router
rng = np.random.default_rng(5)
keys = rng.integers(0, 2**64, 300, dtype=np.uint64)[np.minimum(rng.zipf(1.3, 4000), 300) - 1]
for name in sorted(ROUTERS):
    digest = hashlib.sha256()
    for n, window in ((1, {}), (3, {"window": 500, "slide": 70}), (16, {"window": 1000, "slide": 100}), (64, {})):
        digest.update(make_router(name, n, seed=n, **window).route(keys).tobytes())
    print(name, digest.hexdigest())
"""


def digests(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed here: there is nothing to compare with")
def test_every_router_routes_the_same_compiled_and_plain() -> None:
    """A process without compilation gives the digests of one with it, for every registered router."""
    plain = digests(NUMBA_DISABLE_JIT="1")
    assert len(plain.splitlines()) == len(ROUTERS)
    assert plain == digests(NUMBA_DISABLE_JIT="0")


def test_the_kernels_hash_is_the_vectors_hash() -> None:
    """``mixed`` is ``hashing.mix`` of one key, so that kernels and numpy code draw the same."""
    keys = np.random.default_rng(1).integers(0, 2**64, 100, dtype=np.uint64)
    with np.errstate(over="ignore"):
        one_by_one = [int(choices.mixed(key, np.uint64(9))) for key in keys]
    assert one_by_one == mix(keys, 9).tolist()

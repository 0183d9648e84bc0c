"""Compiled kernels in a container image.

numba caches machine code in a folder that must be writable, and compiles again where it is not. The root of a container
is read-only. So the image has the code that the first plan of every planner needs in ``shipped``, compiled when it was
built, and the service copies it to ``NUMBA_CACHE_DIR`` before it loads numba: 0.1 MB, and Dalton's first plan takes
0.2 s in place of 1.3 s (docs/decisions/0022-image.md).

``python -m unskew.service.app.kernels [FOLDER]`` compiles them. Set ``NUMBA_CPU_NAME=generic`` for that and for the
service: else numba caches the code for the builder's CPU, and compiles again on another one.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["compile_into", "seed", "shipped"]

_log = logging.getLogger("unskew.service")
_CACHE_DIR = "NUMBA_CACHE_DIR"


def shipped() -> Path:
    """The folder of an image's kernels: beside the packages that they belong to."""
    return Path(sys.prefix) / "share" / "unskew" / "kernels"


def seed(environment: Mapping[str, str], source: Path) -> bool:
    """Copy the image's kernels to numba's cache; whether there were any, and a cache to copy them to.

    Where they cannot be copied they are compiled when needed: slower, but no reason not to serve.
    """
    folder = environment.get(_CACHE_DIR, "")
    if not folder or not source.is_dir():
        return False
    try:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    except OSError as why:
        _log.warning("kernels not copied to %s, they are compiled when needed: %s", folder, why)
        return False
    return True


def compile_into(folder: Path) -> list[str]:
    """Make a plan by every planner, so that numba compiles into this folder; the files that it wrote."""
    if "numba" in sys.modules:
        raise RuntimeError("numba is loaded already, with another cache; call this first in a process")
    os.environ[_CACHE_DIR] = str(folder)
    import numpy as np

    from unskew.core import Histogram, make_planner
    from unskew.core.planners import PLANNERS

    keys = np.arange(1, 65, dtype=np.uint64) << np.uint64(56)
    histogram = Histogram.from_hashes(np.repeat(keys, 64 // np.arange(1, 65)))
    for name in PLANNERS:
        make_planner(name, partitions=4, seed=7).plan(histogram)
    return sorted(path.name for path in folder.rglob("*.nbc"))


if __name__ == "__main__":
    compiled = compile_into(Path(sys.argv[1]) if sys.argv[1:] else shipped())
    if not compiled:
        sys.exit("unskew: no kernel was compiled; install unskew[fast], numba is missing")
    sys.stdout.write("\n".join(compiled) + "\n")

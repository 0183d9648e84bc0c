"""Importing the data path is cheap: no server, no Spark, no compiler, no plotting, and little time.

A Spark executor imports `unskew.client` in each Python worker; what that pulls in is paid once a task slot.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = [
    "fastapi",
    "uvicorn",
    "orjson",
    "redis",
    "prometheus_client",
    "pyspark",
    "numba",
    "pandas",
    "typer",
    "rich",
    "matplotlib",
]
LIGHT = ["unskew.core", "unskew.wire", "unskew.client"]


def in_fresh_python(code: str) -> str:
    """What the code prints in an interpreter of its own, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("portion", LIGHT)
def test_the_data_path_loads_nothing_heavy(portion: str) -> None:
    """None of the packages of the extras is in sys.modules after the import."""
    code = f"import json, sys, {portion}; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.split(".")[0] for name in json.loads(in_fresh_python(code))}
    assert "unskew" in loaded
    assert loaded & set(HEAVY) == set()


@pytest.mark.parametrize("name", HEAVY)
def test_the_heavy_packages_are_there_to_be_loaded(name: str) -> None:
    """They are installed here, so the test above can fail."""
    assert in_fresh_python(f"import importlib.util as u; print(u.find_spec('{name}') is not None)") == "True\n"


def test_importing_the_client_costs_little_beside_its_libraries() -> None:
    """Our own modules add less than numpy, pyarrow and grpc themselves cost, measured in one interpreter."""
    code = (
        "from time import perf_counter as now; a = now()\n"
        "import numpy, pyarrow, pyarrow.compute, xxhash, grpc, google.protobuf.message; b = now()\n"
        "import unskew.client, unskew.core; c = now()\n"
        "print(c - b < b - a, b - a, c - b)"
    )
    # One of some: a busy machine can only add time.
    assert any(in_fresh_python(code).startswith("True") for _ in range(10))

"""The import contracts of pyproject.toml bite: each is broken on purpose in a copy, and must be reported.

A contract over a PEP 420 namespace can pass because the linter saw only some of them; this shows it sees all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.portions import PORTIONS

ROOT = Path(__file__).resolve().parents[2]
UP = "cli -> spark -> client | simulate -> wire -> core | v1"
SERVES = "cli -> service -> wire -> core | v1"
PURE = "core is pure"
LIGHT = "the data path is light"
SIMULATED = "no service and no executor decides by a simulation"
LAYERS = "inside core: arrays < keys < histogram < plan < planners < operators; routers and dalton beside them"
SERVICE_LAYERS = "service: stores < events < engine < api < grpc | rest < app"

BROKEN = [
    *[("core", portion, UP) for portion in ("wire", "v1", "client", "spark", "cli")],
    *[("v1", portion, UP) for portion in ("core", "wire", "client", "spark", "cli")],
    *[("wire", portion, UP) for portion in ("client", "spark", "cli")],
    *[("client", portion, UP) for portion in ("spark", "cli")],
    ("spark", "cli", UP),
    ("core", "simulate", UP),
    ("simulate", "client", UP),
    *[(portion, "simulate", SIMULATED) for portion in ("service", "client", "wire")],
    *[(portion, "service", SERVES) for portion in ("core", "v1", "wire")],
    ("service", "cli", SERVES),
    ("service", "client", "client and service are independent"),
    ("client", "service", "client and service are independent"),
    ("spark", "service", "spark and service are independent"),
    ("service", "spark", "spark and service are independent"),
]
AMBIENT = ["time", "random", "os", "asyncio", "logging", "threading", "pathlib"]
SERVERS = ["grpc", "redis", "fastapi", "pyspark"]
HEAVY = ["fastapi", "uvicorn", "redis", "pyspark", "pandas", "typer", "rich"]
FOREIGN = [
    *[("core", f"import {name}", PURE) for name in AMBIENT],
    *[("core", f"import {name}", PURE) for name in SERVERS],
    ("core", "from os.path import join", PURE),
    ("core", "def f():\n    from google.protobuf import message", PURE),
    *[("client", f"import {name}", LIGHT) for name in HEAVY],
    ("wire", "import redis", LIGHT),
    ("service", "from pyspark.sql import SparkSession", "the service runs without Spark"),
]
UPWARD = [
    ("arrays", "keys"), ("keys", "histogram"), ("histogram", "plan"), ("plan", "planners"), ("planners", "operators"),
    ("dalton", "planners"), ("planners", "routers"), ("routers", "rounds"),
]  # fmt: skip

SERVICE_UPWARD = [
    ("stores", "engine"), ("stores", "events.events"), ("events", "engine"), ("engine", "api.calls"),
    ("grpc", "app.main"), ("grpc", "rest.app"),
]  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The six roots and pyproject.toml, free to be spoilt."""
    for folder in PORTIONS.values():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(copy: Path) -> str:
    """The report of import-linter on the copy, and on nothing else of the name."""
    roots = {str(copy / folder.split("/")[0]) for folder in PORTIONS.values()}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sorted(roots)), "COLUMNS": "200"}
    code = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_tree_as_it_is_keeps_every_contract(copy: Path) -> None:
    """The unspoilt copy is clean, so what the other tests see comes from what they planted."""
    report = lint(copy)
    assert " 0 broken." in report, report


def test_each_wrong_import_between_portions_is_reported(copy: Path) -> None:
    """Every arrow that DESIGN section 3 does not draw breaks the contract that forbids it."""
    missed = []
    for source, target, contract in BROKEN:
        planted = copy / PORTIONS[source] / "planted.py"
        planted.write_text(f"import unskew.{target}\n")
        report = lint(copy)
        if f"{contract} BROKEN" not in report:
            missed.append(f"{source} -> {target}")
        planted.unlink()
    assert missed == []


def test_each_foreign_import_is_reported(copy: Path) -> None:
    """A clock, a thread, a server or Spark in the wrong portion is seen, also inside a function."""
    missed = []
    for portion, line, contract in FOREIGN:
        planted = copy / PORTIONS[portion] / "planted.py"
        planted.write_text(line + "\n")
        if f"{contract} BROKEN" not in lint(copy):
            missed.append(f"{portion}: {line}")
        planted.unlink()
    assert missed == []


def test_each_import_against_the_layers_of_core_is_reported(copy: Path) -> None:
    """A lower package of core that imports a higher one breaks the contract."""
    missed = []
    for lower, higher in UPWARD:
        planted = copy / PORTIONS["core"] / lower / "planted.py"
        planted.write_text(f"import unskew.core.{higher}\n")
        if f"{LAYERS} BROKEN" not in lint(copy):
            missed.append(f"{lower} -> {higher}")
        planted.unlink()
    assert missed == []


def test_each_import_against_the_layers_of_the_service_is_reported(copy: Path) -> None:
    """The same for the service's folders."""
    missed = []
    for lower, higher in SERVICE_UPWARD:
        planted = copy / PORTIONS["service"] / lower / "planted.py"
        planted.write_text(f"import unskew.service.{higher}\n")
        if f"{SERVICE_LAYERS} BROKEN" not in lint(copy):
            missed.append(f"{lower} -> {higher}")
        planted.unlink()
    assert missed == []

"""The import contracts of pyproject.toml bite: each is broken on purpose in a copy, and must be reported.

A contract over a PEP 420 namespace can pass because the linter saw only some of them; this shows it sees all.
"""

from __future__ import annotations

import json
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


LINT = """\
import contextlib, io, json, pathlib, sys
from importlinter.cli import lint_imports

reports = []
for file, line in json.load(sys.stdin):
    planted = pathlib.Path(file)
    if line:
        planted.write_text(line + "\\n")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        lint_imports(cache_dir="cache")
    planted.unlink(missing_ok=True)
    reports.append(said.getvalue())
json.dump(reports, sys.stdout)
"""


def folder(copy: Path, place: str) -> Path:
    """Of a portion, or of one of its rooms (``core/plan``). In core itself each module has to have a layer."""
    portion, _, room = place.partition("/")
    return copy / PORTIONS[portion] / (room or ("arrays" if portion == "core" else ""))


def lint(copy: Path, *planted: tuple[str, str]) -> list[str]:
    """The report of import-linter on the copy, and on nothing else of the name, for each (portion, line) planted there
    by itself. One process for all: what did not change is read once."""
    roots = {str(copy / folder.split("/")[0]) for folder in PORTIONS.values()}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sorted(roots)), "COLUMNS": "200"}
    files = [(str(folder(copy, portion) / "planted.py"), line) for portion, line in planted]
    done = subprocess.run(
        [sys.executable, "-c", LINT], cwd=copy, env=environment, input=json.dumps(files), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    reports: list[str] = json.loads(done.stdout)
    return reports


def missed(copy: Path, planted: list[tuple[str, str, str]]) -> list[str]:
    """Lines, each in the portion before it, that do not break the contract after it."""
    reports = lint(copy, *((portion, line) for portion, line, _ in planted))
    return [
        f"{portion}: {line}"
        for (portion, line, contract), report in zip(planted, reports, strict=True)
        if f"{contract} BROKEN" not in report
    ]


def test_the_tree_as_it_is_keeps_every_contract(copy: Path) -> None:
    """The unspoilt copy is clean, also after another one, so what the other tests see comes from what they planted."""
    clean, spoilt, again = lint(copy, ("core", ""), ("core", "import os"), ("core", ""))
    assert " 0 broken." in clean, clean
    assert " 1 broken." in spoilt, spoilt
    assert " 0 broken." in again, again


def test_each_wrong_import_between_portions_is_reported(copy: Path) -> None:
    """Every arrow that DESIGN section 3 does not draw breaks the contract that forbids it."""
    assert missed(copy, [(source, f"import unskew.{target}", contract) for source, target, contract in BROKEN]) == []


def test_each_foreign_import_is_reported(copy: Path) -> None:
    """A clock, a thread, a server or Spark in the wrong portion is seen, also inside a function."""
    assert missed(copy, FOREIGN) == []


def test_each_import_against_the_layers_of_core_is_reported(copy: Path) -> None:
    """A lower package of core that imports a higher one breaks the contract."""
    assert missed(copy, [(f"core/{lower}", f"import unskew.core.{higher}", LAYERS) for lower, higher in UPWARD]) == []


def test_each_import_against_the_layers_of_the_service_is_reported(copy: Path) -> None:
    """The same for the service's folders."""
    planted = [
        (f"service/{lower}", f"import unskew.service.{higher}", SERVICE_LAYERS) for lower, higher in SERVICE_UPWARD
    ]
    assert missed(copy, planted) == []

"""The layout of one distribution over six roots: what the tools are told, and what lies on the disk."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ["core", "simulate", "proto", "client", "service", "spark_integration", "cli"]
PORTIONS = {"core", "simulate", "wire", "v1", "client", "service", "spark", "cli"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_root_holds_its_portions_and_nothing_beside_them() -> None:
    """The portions on disk are the eight that CONTRIBUTING names, each in one root only."""
    found = [folder.name for root in ROOTS for folder in (ROOT / root / "unskew").iterdir() if folder.is_dir()]
    assert sorted(name for name in found if name != "__pycache__") == sorted(PORTIONS)


@pytest.mark.parametrize("root", ROOTS)
def test_the_namespace_has_no_init(root: str) -> None:
    """One `unskew/__init__.py` in any root would hide all the other portions (PEP 420)."""
    strays = [*(ROOT / root).glob("*.py*"), *(ROOT / root / "unskew").glob("*.py*")]
    assert strays == []


def test_every_portion_is_typed_and_a_package() -> None:
    """Each portion carries its own py.typed: a namespace has no place for a common one."""
    folders = [ROOT / root / "unskew" / name for root in ROOTS for name in PORTIONS]
    portions = [folder for folder in folders if folder.is_dir()]
    assert len(portions) == len(PORTIONS)
    assert [p.name for p in portions if not (p / "py.typed").is_file()] == []
    assert [p.name for p in portions if not (p / "__init__.py").is_file()] == []


def test_every_folder_with_code_is_a_package() -> None:
    """Below a portion a folder without `__init__.py` would be skipped by import-linter without a word."""
    code = {file.parent for root in ROOTS for file in (ROOT / root).rglob("*.py")}
    assert [str(folder) for folder in code if not (folder / "__init__.py").is_file()] == []


def test_all_tools_know_all_roots(project: dict[str, Any]) -> None:
    """hatchling, mypy, ruff and the Makefile name the same roots; import-linter names the same portions."""
    tool = project["tool"]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == ROOTS
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{root}/unskew" for root in ROOTS]
    assert tool["mypy"]["files"] == tool["mypy"]["mypy_path"] == ROOTS
    assert set(ROOTS) <= set(tool["ruff"]["src"])
    assert set(tool["importlinter"]["root_packages"]) == {f"unskew.{portion}" for portion in PORTIONS}
    named = re.search(r"^ROOTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    assert named.group(1).split() == ROOTS


def test_the_base_install_stays_light(project: dict[str, Any]) -> None:
    """What every Spark executor carries is five packages; all else is an extra."""
    names = {re.split(r"[^A-Za-z0-9-]", line)[0] for line in project["project"]["dependencies"]}
    assert names == {"numpy", "pyarrow", "xxhash", "grpcio", "protobuf"}
    assert set(project["project"]["optional-dependencies"]) == {"fast", "cli", "service", "spark", "telemetry", "dev"}


def test_constraints_are_exact_and_hold_no_address() -> None:
    """Each line pins one version, perhaps for some Pythons only: no URL, path or editable line."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    bound = r'python_version (?:<|>=) "3\.\d+"'
    pin = re.compile(rf"[a-z0-9-]+==[0-9][0-9A-Za-z.+]*(?: ; {bound}(?: and {bound})?)?")
    assert len(pins) > 50
    assert [line for line in pins if not pin.fullmatch(line)] == []


def test_every_dependency_is_pinned(project: dict[str, Any]) -> None:
    """Each direct dependency of each extra has a line in constraints.txt, so no install is left to chance."""
    table = project["project"]
    extras = [line for group in table["optional-dependencies"].values() for line in group]
    wanted = {re.split(r"[\[<>=!~ ;]", line)[0] for line in [*table["dependencies"], *extras]} - {"unskew"}
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert wanted - pinned == set()

"""The wheel a user installs: built, taken apart, installed into a clean venv, and tested there.

The unit and property tests run once more against the *installed* wheel, with the base dependencies alone: a
file left out of the wheel, or an import that only an extra would satisfy, fails here and nowhere else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.portions import PORTIONS

# One worker for this file: two would each build the venv.
pytestmark = pytest.mark.xdist_group("wheel")

ROOT = Path(__file__).resolve().parents[2]
# What the tests in the clean venv need beside the wheel itself.
TEST_TOOLS = ["pytest", "hypothesis"]
# Written beside the copied tests. A small dose: `make test` has run the full one against the same code.
CONFTEST = """\
from hypothesis import HealthCheck, settings

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("wheel", max_examples=10, deadline=None, suppress_health_check=slow)
settings.load_profile("wheel")
"""
WHERE = """\
import importlib, pathlib, sys
import unskew
site = pathlib.Path(sys.prefix).resolve()
homes = {pathlib.Path(path).resolve() for path in unskew.__path__}
assert len(homes) == 1 and all(site in home.parents for home in homes), homes
for name in sys.argv[1:]:
    found = pathlib.Path(importlib.import_module("unskew." + name).__file__).resolve()
    assert site in found.parents, found
print("installed")
"""


def run(command: list[str], cwd: Path) -> str:
    """Run to success with nothing of this checkout on the path, or fail with what it printed."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built the way `make wheel` builds it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)], out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_every_portion(members: set[str]) -> None:
    """Each module, type marker and page of each portion is inside, under `unskew/<portion>/`."""
    for portion, home in PORTIONS.items():
        files = [f for f in (ROOT / home).rglob("*") if f.is_file() and "__pycache__" not in f.parts]
        wanted = {f"unskew/{portion}/{file.relative_to(ROOT / home).as_posix()}" for file in files}
        assert f"unskew/{portion}/py.typed" in wanted
        assert wanted - members == set()


def test_the_wheel_holds_nothing_else(members: set[str]) -> None:
    """No namespace `__init__.py`, no test, no tool: only the seven portions and the metadata."""
    assert "unskew/__init__.py" not in members
    tops = {"/".join(name.split("/")[:2]) for name in members if ".dist-info/" not in name}
    assert tops == {f"unskew/{portion}" for portion in PORTIONS}


def test_the_metadata_says_what_an_installer_needs(metadata: Message) -> None:
    """Name, Python, licence, README and extras; only the five base packages need no extra."""
    version = re.search(r'"(.+)"', (ROOT / PORTIONS["core"] / "version.py").read_text().split("=")[1])
    assert version is not None
    assert (metadata["Name"], metadata["Version"]) == ("unskew", version.group(1))
    assert (metadata["Requires-Python"], metadata["License-Expression"]) == (">=3.10", "Apache-2.0")
    assert "make demo" in str(metadata.get_payload())
    assert set(metadata.get_all("Provides-Extra", [])) == {"fast", "cli", "service", "spark", "telemetry", "dev"}
    base = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9-]", line)[0] for line in base}
    assert names == {"numpy", "pyarrow", "xxhash", "grpcio", "protobuf"}


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a venv that holds the wheel, its base dependencies, pytest and hypothesis: no extra."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")  # ours installs into it
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    pins = str(ROOT / "constraints.txt")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-input",
        "--no-compile",
        "--disable-pip-version-check",
    ]
    run([*pip, "--constraint", pins, str(wheel), *TEST_TOOLS], home)
    return python


def test_the_installed_wheel_is_what_gets_imported(clean: Path, tmp_path: Path) -> None:
    """All portions resolve to the venv's site-packages, and none needs an extra to be imported."""
    assert run([str(clean), "-c", WHERE, *PORTIONS], tmp_path) == "installed\n"


def test_without_the_cli_extra_the_command_says_which_one_is_missing(clean: Path, tmp_path: Path) -> None:
    """`unskew` from a base install names the extra to install, in place of a traceback."""
    done = subprocess.run([str(clean.parent / "unskew"), "policies"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "unskew[cli]" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(("tests/unit/test_plan.py", "tests/unit/test_wire.py", "tests/unit/test_hashing.py"), id="some"),
        pytest.param(("tests/unit", "tests/property"), id="all", marks=pytest.mark.long),
    ],
)
def test_the_tests_pass_against_the_installed_wheel(clean: Path, tmp_path: Path, what: tuple[str, ...]) -> None:
    """The suite's own tests, moved away from the sources, find everything they need in the wheel."""
    for folder in ("tests", "benchmarks"):  # some tests share a simulation with a benchmark
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    assert run([str(clean), "-c", WHERE, *PORTIONS], tmp_path) == "installed\n"
    report = run([str(clean), "-m", "pytest", "-m", "not long", *what], tmp_path)
    assert re.search(r"\d+ passed", report.splitlines()[-1]), report

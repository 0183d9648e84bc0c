"""What the images install is named by version and hash, is what unskew needs, and pip takes the files as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.dockerfile import read
from tools import requirements, sbom

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([a-z0-9-]+==[^\n]+?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
IMAGES = sorted(requirements.ROOTS)


def pins(image: str) -> list[tuple[Requirement, int]]:
    """Each pin of an image's file, and how many hashes it has."""
    text = (requirements.FOLDER / f"{image}.txt").read_text().partition("\n")[2]
    found = PIN.findall(text)
    assert PIN.sub("", text) == "", "there are lines that are no pin with hashes"
    return [(Requirement(line), hashes.count("sha256:")) for line, hashes in found]


@pytest.mark.parametrize("image", IMAGES)
def test_every_package_of_an_image_has_a_version_and_hashes(image: str) -> None:
    """For each Python that there are wheels for: the version of constraints.txt, once; nothing that unskew needs is
    missing."""
    for python in requirements.PYTHONS:
        at = requirements.environment(python)
        found = [one for one, _ in pins(image) if one.marker is None or one.marker.evaluate(at)]
        versions = {one.name: str(one.specifier).removeprefix("==") for one in found}
        assert len(versions) == len(found)
        constrained = requirements.pinned(python)
        assert {name: constrained.get(name) for name in versions} == versions
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    at = requirements.environment(here)
    listed = {one.name for one, _ in pins(image) if one.marker is None or one.marker.evaluate(at)}
    assert sbom.carried(requirements.ROOTS[image]) <= listed


def test_packages_with_machine_code_have_a_wheel_for_each_python_and_machine() -> None:
    """numpy, whose wheels are for one Python each: two machines for every Python that its pin is for."""
    for one, hashes in pins("service"):
        if one.name == "numpy":
            some = [python for python in requirements.PYTHONS
                    if one.marker is None or one.marker.evaluate(requirements.environment(python))]  # fmt: skip
            assert hashes == len(requirements.MACHINES) * len(some)


def test_the_images_install_nothing_else() -> None:
    """Each step of pip that may fetch something asks for hashes; ours comes without an index."""
    for stage in read(ROOT / "Dockerfile").stages.values():
        for step in stage.steps:
            for command in re.findall(r"pip install[^&]+", step.rest):
                assert "--require-hashes --requirement" in command or "--no-index" in command, command


@pytest.mark.parametrize("image", IMAGES)
def test_pip_takes_the_file_and_finds_it_installed_here(image: str) -> None:
    """Its syntax and its pins, with nothing to fetch: the environment of the tests has the same versions."""
    done = pip("install", "--dry-run", "--no-index", "--no-deps", "--require-hashes", "-r", f"requirements/{image}.txt")
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout


@pytest.mark.long
def test_pip_fetches_by_these_hashes_and_refuses_by_others(tmp_path: Path) -> None:
    """One small package, for this Python and machine."""
    text = (requirements.FOLDER / "service.txt").read_text()
    (one,) = re.findall(r"^annotated-types==.*\n(?:    --hash.*\n)+", text, re.MULTILINE)
    for name, lines in (("right", one), ("wrong", re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", one))):
        (tmp_path / name).write_text(lines)
    command = ["download", "--no-deps", "--no-cache-dir", "--require-hashes", "-d", str(tmp_path), "-r"]
    done = pip(*command, str(tmp_path / "right"))
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached from here")
    assert done.returncode == 0, done.stderr
    refused = pip(*command, str(tmp_path / "wrong"))
    assert (refused.returncode, "DO NOT MATCH THE HASHES" in refused.stderr) == (1, True)


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

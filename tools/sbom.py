"""What an installation of unskew carries: a CycloneDX list of it for each image, and the licences as a page.

    python tools/sbom.py            # dist/unskew-<version>-<image>.cdx.json, and docs/licences.md
    python tools/sbom.py --check    # is the page as it should be, and is every licence one that we allow?

Taken from the environment that runs it, which `make` installs by constraints.txt, as the images are. The page names no
versions: they differ from one Python to another, and constraints.txt has them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from unskew.core.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
# As the Dockerfile installs them; Spark and Python themselves come with the base images.
IMAGES = {"service": ("unskew[service,telemetry]",), "executor": ("unskew[fast]", "pandas")}
PERMISSIVE = ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "PSF-2.0", "Zlib"]
ALLOWED = frozenset([*PERMISSIVE, "MPL-2.0", "LLVM-exception"])  # MPL binds changes of its own files only
# Where metadata says it in words of its own.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
}
Json = dict[str, Any]


def carried(roots: tuple[str, ...]) -> set[str]:
    """The packages that these requirements bring, by canonical name, as installed here."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()

    def take(requirement: Requirement) -> None:
        name = canonicalize_name(requirement.name)
        try:
            wanted = [Requirement(line) for line in distribution(name).requires or ()]
        except PackageNotFoundError:
            sys.exit(f"sbom: {name} is not installed here; run it by `make sbom`")
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                for one in wanted:
                    if one.marker is None or one.marker.evaluate({"extra": extra}):
                        take(one)

    for root in roots:
        take(Requirement(root))
    return found - {"unskew"}


def everything() -> Json:
    """The list of all that is installed here, by cyclonedx-py."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "all.json"
        tool = Path(sys.executable).parent / "cyclonedx-py"
        command = [tool, "environment", "--output-reproducible", "--short-PURLs", "--of", "JSON", "-o", out]
        subprocess.run([*command, sys.executable], check=True, capture_output=True)
        found: Json = json.loads(out.read_text())
    return found


def of_image(whole: Json, packages: set[str]) -> Json:
    """The part of the list that an image carries, unskew itself as what it is about."""
    name = {one["bom-ref"]: canonicalize_name(one["name"]) for one in whole["components"]}
    kept = {ref for ref, package in name.items() if package in packages}
    (own,) = (dict(one) for one in whole["components"] if name[one["bom-ref"]] == "unskew")
    own.pop("externalReferences", None)  # where it lies on the machine that made the list
    depends = [
        {**one, "dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in kept]}
        for one in whole["dependencies"]
        if one["ref"] in kept or one["ref"] == own["bom-ref"]
    ]
    return {
        **whole,
        "metadata": {**whole["metadata"], "component": {**own, "type": "application"}},
        "components": [one for one in whole["components"] if one["bom-ref"] in kept],
        "dependencies": depends,
    }


def licence(component: Json) -> str:
    """As SPDX writes it; what metadata says where that is no SPDX."""
    for one in component.get("licenses", ()):
        said = one.get("expression") or one["license"].get("id") or one["license"].get("name", "")
        if said:
            return SPDX.get(said, said)
    said = distribution(component["name"]).metadata.get("License", "").strip().partition("\n")[0]
    return SPDX.get(said, said or "not said")


def licences(whole: Json) -> dict[str, str]:
    return {canonicalize_name(one["name"]): licence(one) for one in whole["components"]}


def refused(said: str) -> bool:
    return bool(set(re.findall(r"[A-Za-z0-9.-]+", said)) - {"AND", "OR", "WITH"} - ALLOWED)


def page(of: Mapping[str, str], images: Mapping[str, set[str]]) -> str:
    rows = [
        f"| {name} | {of[name]} | {' | '.join('x' if name in images[image] else '' for image in images)} |"
        for name in sorted(set().union(*images.values()))
    ]
    return "\n".join(
        [
            "# Licences of what unskew carries",
            "",
            "Made by `make sbom`, which also writes a CycloneDX list with versions for each image to `dist/`. unskew",
            "itself is [Apache-2.0](../LICENSE). Python and Spark come with the base images and bring their own.",
            "",
            f"| package | licence | {' | '.join(images)} |",
            f"|---|---|{'---|' * len(images)}",
            *rows,
            "",
        ]
    )


def wrong(of: Mapping[str, str], images: Mapping[str, set[str]], text: str) -> Iterator[str]:
    """A package that another Python brings may be on the page and not here, so only the other way is a fault."""
    listed = dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", text, re.MULTILINE))
    for name in sorted(set().union(*images.values())):
        if refused(of[name]):
            yield f"{name}: licence {of[name]!r} is not one of {', '.join(sorted(ALLOWED))}"
        if listed.get(name) != of[name]:
            yield f"{name}: {of[name]} here, {listed.get(name, 'missing')} in docs/licences.md; run `make sbom`"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python tools/sbom.py [--check]", file=sys.stderr)
        return 2
    whole, images = everything(), {image: carried(roots) for image, roots in IMAGES.items()}
    of = licences(whole)
    if not arguments:
        (ROOT / "dist").mkdir(exist_ok=True)
        for image, packages in images.items():
            out = ROOT / "dist" / f"unskew-{__version__}-{image}.cdx.json"
            out.write_text(json.dumps(of_image(whole, packages), indent=1) + "\n")
            print(f"{out.relative_to(ROOT)}: {len(packages)} packages")
        PAGE.write_text(page(of, images), "utf-8")
    found = list(wrong(of, images, PAGE.read_text("utf-8")))
    print("\n".join(found) or f"licences of {len(set().union(*images.values()))} packages are as they should be")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

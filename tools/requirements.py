"""Write requirements/*.txt: what each image installs, every package with its version and the hashes of its wheels.

    make hashes            # after a change of constraints.txt or of the dependencies

Versions are those of constraints.txt. Wheels are asked of pip, which knows where packages come from, for each Python
that we support and both kinds of machine; the files hold no address. The Dockerfile installs by ``--require-hashes``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.sbom import IMAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
OWN = "unskew"
ROOTS = {"build": ("hatchling",), **IMAGES}
PYTHONS, MACHINES = ("3.10", "3.11", "3.12", "3.13"), ("x86_64", "aarch64")
GLIBC = ("2_28", "2_27", "2_24", "2_17")  # of wheels that both bases take
HEADER = """\
# What the image `{image}` installs, with the hashes of all wheels of it. Made by `make hashes`; do not edit by hand.
"""


@dataclass(frozen=True)
class Wheel:
    """A wheel that pip would take: its hash, and what it requires."""

    sha256: str
    requires: tuple[str, ...]


def environment(python: str) -> dict[str, str]:
    """What markers are judged by on Linux with this Python."""
    cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    return {**cpython, **linux, "python_version": python, "python_full_version": f"{python}.99", "extra": ""}


def pinned(python: str) -> dict[str, str]:
    """The version of each package, by constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    found = [Requirement(line) for line in lines]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in found
        if one.marker is None or one.marker.evaluate(environment(python))
    }


def wheels(python: str, machine: str, versions: Mapping[str, str]) -> dict[str, Wheel]:
    """The wheel of each of these packages, asked of pip."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        kind = [f"--platform=manylinux_{glibc}_{machine}" for glibc in GLIBC] + [f"--platform=manylinux2014_{machine}"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
        command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--target={folder}"]
        asked = [f"{name}=={version}" for name, version in versions.items()]
        subprocess.run([*command, *kind, f"--report={report}", *asked], check=True)
        found = json.loads(report.read_text())["install"]
    return {
        canonicalize_name(one["metadata"]["name"]): Wheel(
            one["download_info"]["archive_info"]["hashes"]["sha256"], tuple(one["metadata"].get("requires_dist", ()))
        )
        for one in found
    }


def closure(python: str, roots: Sequence[str], known: dict[str, Wheel]) -> set[str]:
    """The packages that these requirements bring; ``known`` gets the wheels that were asked for."""
    versions, waiting = pinned(python), [Requirement(one) for one in roots]
    names: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while waiting:
        here = {canonicalize_name(one.name) for one in waiting}
        if missing := sorted(here - known.keys()):
            known |= wheels(python, MACHINES[0], {name: versions[name] for name in missing})
        names |= here
        waiting = list(_brought(waiting, known, seen, python))
    return names - {OWN}


def _brought(
    by: Iterable[Requirement], known: Mapping[str, Wheel], seen: set[tuple[str, str]], python: str
) -> Iterator[Requirement]:
    for one in by:
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                for need in map(Requirement, known[name].requires):
                    if need.marker is None or need.marker.evaluate(environment(python) | {"extra": extra}):
                        yield need


def lines(found: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]]) -> Iterator[str]:
    """``found``: by Python, of each package its version and hashes. A version that not all Pythons have is marked."""
    pythons: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    hashes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for python, packages in found.items():
        for name, (version, sums) in packages.items():
            pythons[name, version].append(python)
            hashes[name, version] |= sums
    for name, version in sorted(pythons):
        some = pythons[name, version]
        marked = "" if len(some) == len(found) else " ; " + " or ".join(f'python_version == "{one}"' for one in some)
        yield f"{name}=={version}{marked} \\"
        yield " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes[name, version]))


def main() -> int:
    found: dict[str, dict[str, dict[str, tuple[str, frozenset[str]]]]] = {image: {} for image in ROOTS}
    for python in PYTHONS:
        known = {OWN: Wheel("", tuple(distribution(OWN).requires or ()))}
        names = {image: closure(python, roots, known) for image, roots in ROOTS.items()}
        versions = {name: version for name, version in pinned(python).items() if name in known}
        others = [wheels(python, machine, versions) for machine in MACHINES[1:]]
        for image, packages in names.items():
            found[image][python] = {
                name: (versions[name], frozenset(one[name].sha256 for one in (known, *others))) for name in packages
            }
    FOLDER.mkdir(exist_ok=True)
    for image, by_python in found.items():
        written = list(lines(by_python))
        (FOLDER / f"{image}.txt").write_text(HEADER.format(image=image) + "\n".join(written) + "\n")
        print(f"requirements/{image}.txt: {sum('==' in line for line in written)} pins")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

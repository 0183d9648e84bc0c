"""The chart as the real helm renders it: each file of values once, whoever asks."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

__all__ = [
    "CHART",
    "NAMESPACE",
    "ROOT",
    "VALUES",
    "Document",
    "Rendered",
    "helm",
    "render",
    "secrets",
    "value_files",
]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "unskew"
VALUES = Path(__file__).with_name("values")
RELEASE, NAMESPACE = "unskew", "plans"
Document = dict[str, Any]


def helm(*arguments: str | Path, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """The binary that the package helm-binary put beside this Python. It sees no cluster but one that it is told of."""
    program = Path(sys.executable).with_name("helm")
    if not program.exists():
        pytest.fail(f"no {program}: run `make test`, which installs helm-binary")
    verb, *rest = map(str, arguments)
    named = [RELEASE] if verb != "lint" and "--name-template" not in rest else []
    charts = [] if verb in ("rollback", "uninstall") else [str(chart)]
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    return subprocess.run(
        [program, verb, *named, *charts, *rest], env=environment, capture_output=True, text=True, check=False
    )


@dataclass(frozen=True)
class Rendered:
    """The documents of a release."""

    documents: tuple[Document, ...]

    def all(self, kind: str) -> list[Document]:
        return [one for one in self.documents if one["kind"] == kind]

    def one(self, kind: str, suffix: str = "") -> Document:
        """The only one of this kind whose name is the release's, with this suffix."""
        found = [one for one in self.all(kind) if one["metadata"]["name"] == f"{self.fullname}{suffix}"]
        assert len(found) == 1, f"{kind} {self.fullname}{suffix}: {len(found)} of them"
        return found[0]

    @property
    def fullname(self) -> str:
        service = next(one for one in self.all("Service") if one["spec"].get("clusterIP") == "None")
        return str(service["metadata"]["name"]).removesuffix("-headless")

    @property
    def pod(self) -> Document:
        """The service's, as its Deployment has it."""
        template: Document = self.one("Deployment")["spec"]["template"]
        return template


def value_files() -> list[str]:
    return sorted(path.stem for path in VALUES.glob("*.yaml"))


@cache
def render(values: str, *more: str) -> Rendered:
    """``more`` are further arguments of ``helm template``."""
    done = helm("template", "--namespace", NAMESPACE, "--values", VALUES / f"{values}.yaml", *more)
    assert done.returncode == 0, done.stderr
    return Rendered(tuple(one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one))


def secrets(rendered: Rendered) -> Mapping[str, Mapping[str, bytes]]:
    """The Secrets that the chart makes, by name and key."""

    def pairs() -> Iterator[tuple[str, Mapping[str, bytes]]]:
        for one in rendered.all("Secret"):
            yield one["metadata"]["name"], {key: base64.b64decode(text) for key, text in one["data"].items()}

    return dict(pairs())

"""What the Dockerfile says, by a linter and by our own rules; and `make image` where it cannot build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.dockerfile import Stage, ignored, pairs, read, words
from unskew.core.version import __version__
from unskew.service.app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = read(ROOT / "Dockerfile")
SERVICE, EXECUTOR = DOCKERFILE.stages["service"], DOCKERFILE.stages["executor"]
ZEROS = "sha256:" + 64 * "0"


def linted(path: Path) -> subprocess.CompletedProcess[str]:
    """hadolint's own opinion, all its rules."""
    command = [str(Path(sys.executable).parent / "hadolint"), "--no-color", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hadolint_finds_nothing() -> None:
    """Not even a hint, and no rule is switched off."""
    done = linted(ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    assert not (ROOT / ".hadolint.yaml").exists()
    assert "hadolint ignore" not in (ROOT / "Dockerfile").read_text()


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    """A base without a tag and a shell as process 1 are told."""
    (tmp_path / "Dockerfile").write_text("FROM python\nCMD unskew serve\n")
    assert {"DL3006", "DL3025"} <= set(re.findall(r"DL\d{4}", linted(tmp_path / "Dockerfile").stdout))


def test_every_base_is_named_by_a_digest_that_the_builder_gives() -> None:
    """No stage stands on a tag alone, and no digest is written down that some day has holes."""
    for stage in DOCKERFILE.stages.values():
        assert re.fullmatch(r"\$\{(PYTHON|SPARK)_IMAGE\}@\$\{\1_DIGEST\}", stage.base), stage.name
    assert DOCKERFILE.arguments["PYTHON_DIGEST"] is None
    assert DOCKERFILE.arguments["SPARK_DIGEST"] == ZEROS
    assert ":" in str(DOCKERFILE.arguments["PYTHON_IMAGE"])
    assert ":" in str(DOCKERFILE.arguments["SPARK_IMAGE"])


def test_without_a_target_the_service_is_built() -> None:
    """The last stage is the service and nothing more."""
    assert (DOCKERFILE.default.base, DOCKERFILE.default.steps) == ("service", ())


def test_the_service_runs_as_the_chart_expects() -> None:
    """User and group by number, the ports of the settings, no shell between the engine and the program."""
    ports = {name: Settings.model_fields[name].default for name in ("http_port", "grpc_port", "metrics_port")}
    assert SERVICE.last("USER") == "10001:10001"
    assert SERVICE.last("EXPOSE").split() == [str(port) for port in ports.values()]
    assert (words(SERVICE.last("ENTRYPOINT")), words(SERVICE.last("CMD"))) == (["unskew"], ["serve"])
    assert words(SERVICE.last("HEALTHCHECK").partition("CMD ")[2])[:2] == ["python", "-m"]


def test_the_service_is_not_opened_to_everybody() -> None:
    """No setting of the service is in the image: who runs it says where it listens and who may call."""
    assert [step.rest for step in SERVICE.steps if "UNSKEW_" in step.rest] == []


@pytest.mark.parametrize(
    ("stage", "base", "checked"),
    [(SERVICE, "PYTHON", DOCKERFILE.stages["environment"]), (EXECUTOR, "SPARK", EXECUTOR)],
    ids=["service", "executor"],
)
def test_the_labels_say_what_it_is_and_what_it_stands_on(stage: Stage, base: str, checked: Stage) -> None:
    """Version, revision and base are the builder's words; the version is checked against the program in a step."""
    given = {"VERSION": __version__, "REVISION": "abc", f"{base}_IMAGE": "base:1", f"{base}_DIGEST": ZEROS}
    labels = {name.rpartition("image.")[2]: value for name, value in pairs(stage.last("LABEL"), given).items()}
    assert (labels["version"], labels["revision"], labels["licenses"]) == (__version__, "abc", "Apache-2.0")
    assert (labels["base.name"], labels["base.digest"]) == ("base:1", ZEROS)
    assert any(step.name == "RUN" and "${VERSION:?" in step.rest for step in checked.steps)


def test_the_executor_keeps_sparks_user_and_entrypoint() -> None:
    """Spark's own image is extended, not replaced: no second PySpark, its uid 185, its entrypoint."""
    assert EXECUTOR.last("USER") == "185"
    assert EXECUTOR.last("ENTRYPOINT") == EXECUTOR.last("CMD") == ""
    installs = [step.rest for step in EXECUTOR.steps if "pip install" in step.rest]
    assert len(installs) == 1
    assert "pyspark" not in installs[0]
    assert "[spark" not in installs[0]


def test_only_what_the_wheel_is_made_of_is_sent_to_the_engine() -> None:
    """The context has the roots, the hashes and three files: no history, test, secret or kernel of this machine."""
    kept, never = ignored(ROOT / ".dockerignore")
    roots = ["core", "simulate", "proto", "client", "service", "spark_integration", "cli"]
    assert kept == [*roots, "requirements", "pyproject.toml", "README.md", "LICENSE"]
    assert {"__pycache__", "*.nb[ic]"} <= set(never)


# -- make image ----------------------------------------------------------------------------------------------------


def image(path: str, target: str = "service", **given: str) -> subprocess.CompletedProcess[str]:
    """`make image` with these engines on PATH."""
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/"), **given}
    return subprocess.run(
        ["/bin/bash", str(ROOT / "tools" / "image.sh"), target], env=environment, capture_output=True, text=True
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with what the script needs, and no engine."""
    for name in ("bash", "dirname", "sed", "head", "git"):
        found = shutil.which(name)
        assert found is not None, name
        (tmp_path / name).symlink_to(found)
    return tmp_path


def engine(folder: Path, name: str, answers: bool = True) -> None:
    """An engine that writes down what it is asked to do; with or without its daemon."""
    script = folder / name
    script.write_text(f'#!/bin/bash\n[ "$1" = info ] && exit {0 if answers else 1}\nprintf "%s\\n" {name} "$@"\n')
    script.chmod(0o755)


def test_without_an_engine_one_line_says_so(tools: Path) -> None:
    """None at all, or docker's client without its daemon."""
    for _ in range(2):
        done = image(str(tools), PYTHON_DIGEST=ZEROS)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith("unskew: no docker, podman or buildah answers here")
        engine(tools, "docker", answers=False)


@pytest.mark.parametrize("digest", ["", "latest", "sha256:12", "sha256:" + 64 * "g"])
def test_without_a_digest_nothing_is_built(tools: Path, digest: str) -> None:
    """One line that says what is missing and how to look it up, for the base that is meant."""
    engine(tools, "docker")
    done = image(str(tools), PYTHON_DIGEST=digest)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"PYTHON_DIGEST is '{digest}'" in done.stderr
    assert str(DOCKERFILE.arguments["PYTHON_IMAGE"]) in done.stderr
    assert "SPARK_DIGEST" in image(str(tools), "executor", PYTHON_DIGEST=ZEROS).stderr


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_the_engine_that_is_there_is_told_everything(tools: Path, name: str) -> None:
    """Target, tag, version, revision, base and digest; OCI images of podman and buildah would lose the health check."""
    engine(tools, name)
    done = image(str(tools), PYTHON_DIGEST=ZEROS)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert told[:2] == [name, "build"]
    assert "docker" in told[told.index("--format") + 1] if "--format" in told else name == "docker"
    assert told[told.index("--target") + 1] == "service"
    assert told[told.index("--tag") + 1] == f"unskew:{__version__}"
    assert {f"VERSION={__version__}", f"PYTHON_DIGEST={ZEROS}"} <= set(told)
    assert f"PYTHON_IMAGE={DOCKERFILE.arguments['PYTHON_IMAGE']}" in told
    assert told[-1] == f"unskew:{__version__}"

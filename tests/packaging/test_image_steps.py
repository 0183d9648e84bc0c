"""The Dockerfile's steps done without an engine, and what they make run as in a pod: no root, nothing to write to.

The small dose takes the dependencies from the venv of the tests, where pip would fetch them; all else is as written.
This machine's Python stands in for that of both bases. Spark's own image has PySpark and a user, which are put there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.packaging.dockerfile import Stage, read, words
from tests.packaging.rootfs import PYTHON, ROOT, Rootfs, unable
from unskew.core.version import __version__

pytestmark = pytest.mark.xdist_group("image")

DOCKERFILE = read(ROOT / "Dockerfile")
SERVICE, EXECUTOR = DOCKERFILE.stages["service"], DOCKERFILE.stages["executor"]
GIVEN = {"PYTHON_DIGEST": "sha256:" + "a" * 64, "SPARK_DIGEST": "sha256:" + "b" * 64, "VERSION": __version__}
BORROWED, SPARK = "/mnt/packages", "/mnt/spark"
SPARKS_USER = "groupadd --system --gid 185 spark && useradd --system --uid 185 --gid 185 --home-dir /nonexistent spark"
SMALL, FULL = "the venv's dependencies", "all installed"


@pytest.fixture(scope="module", params=[SMALL, pytest.param(FULL, marks=pytest.mark.long)])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rootfs]:
    """The service's image, built as far as a machine without an engine can."""
    if why := unable(tmp_path_factory.mktemp("trial")):
        pytest.skip(why)
    machine = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    machine["HOME"] = str(Path.home())
    shown = borrowed(tmp_path_factory.mktemp("spark"), SPARK, lambda name: name.startswith(("pyspark", "py4j")))
    if request.param == SMALL:
        shown |= borrowed(tmp_path_factory.mktemp("packages"), BORROWED, _dependency)
        machine |= {"PIP_NO_DEPS": "1", "PYTHONPATH": BORROWED}
    rootfs = Rootfs(tmp_path_factory.mktemp("image"), GIVEN, machine, shown, {"executor": SPARKS_USER})
    try:
        rootfs.build(DOCKERFILE, "service")
        rootfs.locked("service")
        if request.param == SMALL:
            rootfs.environments["service"]["PYTHONPATH"] = BORROWED
        yield rootfs
    finally:
        rootfs.close()


def borrowed(folder: Path, where: str, wanted: Callable[[str], bool]) -> dict[str, Path]:
    """Packages of the tests' venv, to be seen there."""
    packages = Path(sysconfig.get_path("purelib"))
    folder.chmod(0o755)
    for one in packages.iterdir():
        if wanted(one.name.lower()):
            (folder / one.name).symlink_to(one)
    return {str(packages): packages, where: folder}


def _dependency(name: str) -> bool:
    """Neither what a new venv brings itself, nor ours, nor what only Spark's image has."""
    return not name.startswith(("pip", "setuptools", "_distutils", "unskew", "_editable", "pyspark", "py4j"))


def inside(image: Rootfs, *command: str, stage: Stage = SERVICE, **given: str) -> subprocess.CompletedProcess[str]:
    """A command in the image, as the image's user."""
    return subprocess.run(image.command(stage, command, given), capture_output=True, text=True, timeout=240)


def ports(run: subprocess.Popen[str], log: Path) -> dict[str, int]:
    """Where the service listens, once it logs that."""
    end = time.monotonic() + 120
    while '"serving"' not in (text := log.read_text()):
        assert run.poll() is None, text
        assert time.monotonic() < end, text
        time.sleep(0.02)
    (told,) = (json.loads(line) for line in text.splitlines() if line.startswith("{") and '"serving"' in line)
    return {name: told[name] for name in ("http", "grpc", "metrics")}


FREE = {"UNSKEW_HTTP_PORT": "0", "UNSKEW_GRPC_PORT": "0", "UNSKEW_METRICS_PORT": "0"}


def first_plan(http: int, policy: str) -> dict[str, Any]:
    """The first plan of a new stream over REST."""
    with httpx.Client(base_url=f"http://127.0.0.1:{http}/v1/streams", trust_env=False, timeout=60) as client:
        client.put("/clicks", json={"partitions": 4, "policy": policy}).raise_for_status()
        keys = {
            "source": "app/query",
            "batch": 1,
            "hashes": ["-6602768230544660556", "42", "7"],
            "counts": [900, 60, 40],
        }
        client.post("/clicks/histograms", json=keys).raise_for_status()
        answer: dict[str, Any] = client.post("/clicks/plans", json={"batch": 2}).raise_for_status().json()
        return answer


def test_only_the_service_is_added_to_its_base(image: Rootfs) -> None:
    """The layer has the environment, the user, and nothing of the build: no installer, compiler, test or header."""
    layer = image.layer("service")
    home = layer / "opt" / "unskew"
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    assert {path.name for path in layer.iterdir()} - {"mnt", PYTHON.parts[1], ROOT.parts[1]} == {"etc", "opt"}
    assert [path.name for path in (layer / "opt").iterdir()] == ["unskew"]
    assert (packages / "unskew" / "service" / "app" / "main.py").is_file()
    assert [path for path in packages.iterdir() if path.name.startswith(("pip", "setuptools"))] == []
    assert [path for path in home.rglob("*") if path.name in ("tests", "gcc", "pip", "pip3")] == []
    assert [
        path for path in home.rglob("*") if path.stat(follow_symlinks=False).st_mode & 0o002 and not path.is_symlink()
    ] == []
    assert "unskew:x:10001:10001:" in (layer / "etc" / "passwd").read_text()


def test_the_user_can_write_to_tmp_and_to_nothing_else(image: Rootfs) -> None:
    """User and group 10001 without a capability; the root, and the program in it, are read-only."""
    done = inside(image, "sh", "-c", "id -u; id -g; grep CapBnd /proc/self/status; touch /tmp/here")
    assert done.stdout.split() == ["10001", "10001", "CapBnd:", "0" * 16]
    assert done.returncode == 0
    for path in ("/new", "/opt/unskew/new", "/opt/unskew/share/unskew/kernels/new"):
        assert "Read-only file system" in inside(image, "touch", path).stderr


def test_it_serves_answers_its_health_check_and_ends_by_sigterm(image: Rootfs, tmp_path: Path) -> None:
    """The image's own entrypoint, health check and stop signal, as an engine uses them."""
    check = words(SERVICE.last("HEALTHCHECK").partition("CMD ")[2])
    with image.container(SERVICE, tmp_path / "log", **FREE) as run:
        http = ports(run, tmp_path / "log")["http"]
        assert inside(image, *check, UNSKEW_HTTP_PORT=str(http)).returncode == 0
        assert first_plan(http, "balanced")["outcome"] == "new"
        run.send_signal(getattr(signal, SERVICE.last("STOPSIGNAL")))
        assert run.wait(120) == 0
    gone = inside(image, *check, UNSKEW_HTTP_PORT=str(http))
    assert (gone.returncode, "does not answer" in gone.stderr) == (1, True)


@pytest.mark.parametrize(
    ("cpu", "compiles"),
    [pytest.param("generic", False, id="as built"), pytest.param("", True, id="for this CPU", marks=pytest.mark.long)],
)
def test_the_first_plan_compiles_nothing(image: Rootfs, tmp_path: Path, cpu: str, compiles: bool) -> None:
    """Dalton's planner, the only one with a compiled kernel, takes it from the image; numba itself tells. For another
    CPU than it was compiled for, which the second dose asks for, it is compiled anew."""
    more = {"NUMBA_DEBUG_CACHE": "1", "NUMBA_CPU_NAME": cpu}
    with image.container(SERVICE, tmp_path / "log", **FREE, **more) as run:
        first_plan(ports(run, tmp_path / "log")["http"], "dalton")
        run.send_signal(signal.SIGTERM)
        assert run.wait(120) == 0
    log = (tmp_path / "log").read_text()
    assert "/tmp/unskew-kernels" in log
    assert ("data saved to" in log) == compiles
    assert ("data loaded from" in log) != compiles


def test_it_does_not_open_itself_to_everybody(image: Rootfs) -> None:
    """On all addresses without credentials it does not start, and says what to set."""
    done = inside(image, *words(SERVICE.last("ENTRYPOINT")), *words(SERVICE.last("CMD")), UNSKEW_HOST="0.0.0.0")
    assert done.returncode == 2
    assert "--tokens-file" in done.stderr


# -- Spark's drivers and executors -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executor(image: Rootfs) -> Rootfs:
    """The executor's image beside the service's, of the same wheel."""
    image.build(DOCKERFILE, "executor")
    # As spark-submit and Spark's workers do, PySpark is put on the path; it is not where pip installs.
    path = [SPARK, *filter(None, [image.environments["service"].get("PYTHONPATH")])]
    image.environments["executor"]["PYTHONPATH"] = os.pathsep.join(path)
    return image


def python(image: Rootfs, *lines: str, **given: str) -> str:
    """What the executor's Python writes, and what numba tells beside it."""
    done = inside(image, "python3", "-c", "\n".join(lines), stage=EXECUTOR, **given)
    assert done.returncode == 0, done.stderr
    return done.stdout


FIRST_PLAN = (
    "import os, numpy as np",
    "from unskew.core import Histogram, make_planner",
    "histogram = Histogram.from_hashes(np.repeat(np.arange(1, 5, dtype=np.uint64) << np.uint64(56), [9, 5, 3, 1]))",
    "make_planner('dalton', partitions=4, seed=7).plan(histogram)",
    "print('as', os.getuid(), os.getgid())",
)


@pytest.mark.long
def test_the_executor_has_ours_beside_sparks_own(executor: Rootfs) -> None:
    """As Spark's user: the operators from the wheel, PySpark from the base, and nothing of the service's frameworks."""
    said = python(executor, "import pyspark, unskew.spark", "print(pyspark.__file__, unskew.spark.__file__)").split()
    assert said[0].startswith(SPARK)
    assert said[1].startswith(str(PYTHON.parent))
    layer = executor.layer("executor")
    installed = {path.name for path in layer.glob(f"{str(PYTHON.parent).lstrip('/')}/lib/python3*/site-packages/*")}
    assert "unskew" in installed
    assert {name for name in installed if name.startswith(("pyspark", "py4j", "fastapi", "uvicorn"))} == set()


@pytest.mark.long
@pytest.mark.parametrize(("cpu", "compiles"), [("generic", False), ("", True)], ids=["as built", "for this CPU"])
def test_the_executors_kernels_are_there_and_its_user_may_add_to_them(
    executor: Rootfs, cpu: str, compiles: bool
) -> None:
    """A first plan by Dalton compiles nothing; for another CPU than it was built for Spark's user compiles it anew, and
    keeps it."""
    said = python(executor, *FIRST_PLAN, NUMBA_DEBUG_CACHE="1", NUMBA_CPU_NAME=cpu)
    assert "as 185 185" in said
    assert ("data saved to '/opt/unskew/kernels" in said) == compiles
    assert ("data loaded from '/opt/unskew/kernels" in said) != compiles
    folder = executor.root("executor") / "opt" / "unskew" / "kernels"
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (folder, *folder.rglob("*"))} == {(185, 185)}

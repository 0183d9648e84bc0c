"""The health check of the image against the real service, over HTTP, HTTPS and with client certificates."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.processes import process
from unskew.service.app.kernels import seed
from unskew.service.app.probe import alive


@pytest.fixture
def papers(tmp_path: Path) -> dict[str, str]:
    """A certificate that names neither loopback nor this machine, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    made = ("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=unskew.data.svc")
    subprocess.run(["openssl", "req", "-x509", *key, *made], cwd=tmp_path, check=True, capture_output=True)
    return {"UNSKEW_TLS_CERT": str(tmp_path / "cert.pem"), "UNSKEW_TLS_KEY": str(tmp_path / "key.pem")}


def test_a_service_that_answers_is_alive(tmp_path: Path) -> None:
    """By the port in the environment; an address that stands for all is asked on loopback."""
    with process(tmp_path, UNSKEW_TOKENS="") as service:
        for host in ("", "127.0.0.1", "0.0.0.0", "localhost"):
            assert alive({"UNSKEW_HOST": host, "UNSKEW_HTTP_PORT": str(service.http)}) == ""
        wrong = alive({"UNSKEW_HTTP_PORT": str(service.metrics)})
        assert wrong == f"127.0.0.1:{service.metrics}/healthz answers 404"
        assert "does not answer" in alive({"UNSKEW_HTTP_PORT": str(service.http), "UNSKEW_TLS_CERT": "x"})


@pytest.mark.parametrize("asks", [False, True], ids=["https", "client certificates"])
def test_a_service_behind_tls_is_alive(tmp_path: Path, papers: dict[str, str], asks: bool) -> None:
    """Its certificate names the service and not loopback; where clients must show one, that it listens is enough."""
    more = {"UNSKEW_TLS_CLIENT_CA": papers["UNSKEW_TLS_CERT"]} if asks else {}
    with process(tmp_path, **papers, **more) as service:
        given = {**papers, **more, "UNSKEW_HTTP_PORT": str(service.http)}
        assert alive(given) == ""
        assert ("does not answer" in alive({"UNSKEW_HTTP_PORT": str(service.http)})) is True
    assert "does not answer" in alive(given)


def test_a_service_that_hangs_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that takes connections and says nothing: the answer comes within the probe's own time."""
    monkeypatch.setattr("unskew.service.app.probe._SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in alive({"UNSKEW_HTTP_PORT": str(silent.getsockname()[1])})


def test_as_a_command_it_is_cheap_and_tells_by_its_exit_code() -> None:
    """It loads nothing but Python's own library: an engine runs it every half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {**os.environ, "UNSKEW_HTTP_PORT": str(port)}
    command = [sys.executable, "-W", "error", "-m", "unskew.service.app.probe"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    code = "import sys, unskew.service.app.probe; print({'numpy', 'grpc', 'fastapi', 'typer'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_kernels_are_copied_to_where_numba_looks(tmp_path: Path) -> None:
    """Only where both are named and there; what cannot be written is no reason not to serve."""
    source, folder = tmp_path / "shipped", tmp_path / "cache"
    assert not seed({"NUMBA_CACHE_DIR": str(folder)}, source)
    (source / "core_1").mkdir(parents=True)
    (source / "core_1" / "a.nbi").write_bytes(b"index")
    assert not seed({}, source)
    for _ in range(2):  # a container that starts again finds its /tmp as it was
        assert seed({"NUMBA_CACHE_DIR": str(folder)}, source)
    assert (folder / "core_1" / "a.nbi").read_bytes() == b"index"
    (tmp_path / "file").write_text("")
    assert not seed({"NUMBA_CACHE_DIR": str(tmp_path / "file")}, source)

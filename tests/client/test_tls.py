"""TLS and mTLS: who is trusted, and who is let in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from tests.client.service_in_test import ServiceInTest
from unskew.client import Client, NoAnswerError, testing
from unskew.v1 import partitioner_pb2_grpc

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (ca), what it signed (server, job), and another authority (other)."""
    folder = tmp_path_factory.mktemp("papers")
    for name in ("ca", "other"):
        openssl(folder, "req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    for name in ("server", "job"):
        (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl(folder, "req", *KEY[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@pytest.fixture
def target(papers: Path) -> Iterator[str]:
    """A service that asks for a certificate of its authority."""
    pair = ((papers / "server.key").read_bytes(), (papers / "server.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (papers / "ca.pem").read_bytes(), require_client_auth=True)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    partitioner_pb2_grpc.add_PartitionerServiceServicer_to_server(ServiceInTest(), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"grpcs://localhost:{port}"
    server.stop(0).wait()


def test_who_shows_the_right_papers_is_served(papers: Path, target: str) -> None:
    """A token goes over TLS without more ado; ``ca`` alone means TLS too."""
    mine = {"ca": papers / "ca.pem", "certificate": papers / "job.pem", "key": papers / "job.key"}
    with Client(target, token="s3cret", **mine) as client:  # type: ignore[arg-type]
        assert client.get_scale("clicks").zone == 3
    with Client(target.removeprefix("grpcs://"), **mine) as client:  # type: ignore[arg-type]
        assert client.get_scale("clicks").zone == 3


def test_the_papers_may_be_in_the_environment(papers: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes gives them to driver and executors. They are for ``grpcs://`` alone: what is beside the process and
    speaks without TLS is still reached. What is given in code comes first."""
    for name, file in (("CA", "ca.pem"), ("CERTIFICATE", "job.pem"), ("KEY", "job.key")):
        monkeypatch.setenv(f"UNSKEW_{name}", str(papers / file))
    with Client(target, token="s3cret") as client:
        assert client.get_scale("clicks").zone == 3
        assert client.url == target
    with testing.embedded() as plain, plain.client() as client:
        assert list(client.list_streams()) == []
    with Client(target, ca=papers / "other.pem", timeout=2.0) as client, pytest.raises(NoAnswerError):
        client.get_scale("clicks")


@pytest.mark.parametrize("given", [{"ca": "ca"}, {"ca": "other", "certificate": "job"}, {"ca": "ca", "plain": "y"}])
def test_who_does_not_or_trusts_another_gets_nothing(papers: Path, target: str, given: dict[str, str]) -> None:
    """No certificate, another authority, no TLS at all: one clear error each."""
    if given.pop("plain", None):
        target, given = target.replace("grpcs", "grpc"), {}
    files = {name: papers / f"{file}.pem" for name, file in given.items()}
    if "certificate" in files:
        files["key"] = papers / "job.key"
    with Client(target, timeout=2.0, **files) as client, pytest.raises(NoAnswerError):  # type: ignore[arg-type]
        client.get_scale("clicks")

"""TLS attacked on all ports: older protocols, weak ciphers, plain text, nonsense; certificates that are expired, of
another authority, of another name; files that are half written or changed while they are read; all of it rotated under
load."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.attack.certificates import authority, certificate
from tests.attack.victim import VICTIM
from tests.doses import some_of
from tests.service.faces import digest_of
from tests.service.processes import Process, process
from unskew.service.app.settings import Settings
from unskew.service.app.tls import Tls
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

pytestmark = [
    pytest.mark.xdist_group("attack"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl"),
]

PORTS = ("http", "grpc", "metrics")
V = ssl.TLSVersion
_HTTP_1 = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # and empty settings


@dataclass
class Guarded:
    """A service that shows a certificate and wants one of its authority's; ``other`` is another authority's folder."""

    service: Process
    folder: Path
    other: Path

    def port(self, name: str) -> int:
        found: int = getattr(self.service, name)
        return found

    @property
    def log_lines(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder, other = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("other")
    for one in (folder, other):
        authority(one)
        for name in ("server", "job"):
            certificate(one, name)
    certificate(folder, "expired", dates=("20200101", "20200102"))
    certificate(folder, "not-yet", dates=("20490101", "20500101"))
    tokens = folder / "tokens"
    tokens.write_text(f"{digest_of(VICTIM)} somebody admin *\n")
    flags = "--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem"
    with process(folder, *flags, "--tokens-file", str(tokens)) as service:
        yield Guarded(service, folder, other)


def client_context(folder: Path, name: str = "", ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca or folder / "ca.pem"))
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def shaken(port: int, context: ssl.SSLContext) -> bool:
    """Whether the server lets this one in: with TLS 1.3 it says so only after the handshake, when it is asked."""
    context.set_alpn_protocols(["h2", "http/1.1"])
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 30) as plain:
        plain.settimeout(30)
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            tls.sendall(_HTTP_2 if tls.selected_alpn_protocol() == "h2" else _HTTP_1)
            return bool(tls.recv(100))
    return False


def _downgraded(most: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> Callable[[Path], ssl.SSLContext]:
    def context(folder: Path) -> ssl.SSLContext:
        found = client_context(folder, "job")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that these are old is the point
            found.minimum_version, found.maximum_version = min(most, V.TLSv1_2), most
        found.set_ciphers(ciphers)
        return found

    return context


WEAK = {
    "TLS 1.0": _downgraded(V.TLSv1),
    "TLS 1.1": _downgraded(V.TLSv1_1),
    "no encryption": _downgraded(V.TLSv1_2, "eNULL:@SECLEVEL=0"),
    "no authentication": _downgraded(V.TLSv1_2, "aNULL:@SECLEVEL=0"),
    "RSA key exchange": _downgraded(V.TLSv1_2, "kRSA:@SECLEVEL=0"),
    "CBC with SHA-1": _downgraded(V.TLSv1_2, "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"),
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("weak", WEAK)
def test_nothing_weaker_than_tls_1_2_with_good_ciphers_is_spoken(guarded: Guarded, weak: str, port: str) -> None:
    assert not shaken(guarded.port(port), WEAK[weak](guarded.folder))


@pytest.mark.parametrize("port", PORTS)
def test_only_certificates_of_ours_that_are_valid_now_are_let_in(guarded: Guarded, port: str) -> None:
    own, number = guarded.folder, guarded.port(port)
    assert shaken(number, client_context(own, "job"))
    assert not shaken(number, client_context(own))
    for name in ("expired", "not-yet"):
        assert not shaken(number, client_context(own, name)), name
    assert not shaken(number, client_context(guarded.other, "job", own / "ca.pem"))
    assert not shaken(number, client_context(own, "job", guarded.other / "ca.pem"))  # nor do we trust them


@pytest.mark.parametrize("port", PORTS)
def test_nonsense_in_place_of_a_handshake_fills_no_log_and_holds_up_nobody(guarded: Guarded, port: str) -> None:
    before = len(guarded.log_lines)
    nonsense = (
        b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(range(256)),
        b"\x16\x03\x01\x00\x05\x1b[31m\n", b"\x16\x03\x00\xff\xff" + bytes(1000), b"\x80\x2e\x01\x00\x02",
    )  # fmt: skip
    for number in range(120):
        with socket.create_connection(("127.0.0.1", guarded.port(port)), 30) as plain:
            plain.sendall(nonsense[number % len(nonsense)])
            plain.settimeout(0.01)
            with suppress(OSError):
                assert b"200" not in plain.recv(1 << 12)
    context = client_context(guarded.folder, "job")
    context.set_alpn_protocols(["spdy/1", "x" * 200])
    with suppress(OSError), socket.create_connection(("127.0.0.1", guarded.port(port)), 30) as plain:
        context.wrap_socket(plain, server_hostname="localhost").close()
    assert shaken(guarded.port(port), client_context(guarded.folder, "job"))
    lines = guarded.log_lines[before:]
    assert len(lines) < 60
    for line in lines:
        json.loads(line)  # gRPC's own library wrote past the log


# -- files ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("papers")
    authority(folder)
    for name in ("server", "renewed"):
        certificate(folder, name)
    second = authority(folder / "second", "ca")
    (folder / "both.pem").write_bytes((folder / "ca.pem").read_bytes() + second.read_bytes())
    return folder


@pytest.fixture
def tls(papers: Path, tmp_path: Path) -> Tls:
    for name in ("server.pem", "server.key", "both.pem"):
        shutil.copy(papers / name, tmp_path / name)
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "both.pem"}
    return Tls(Settings(**{name: str(tmp_path / file) for name, file in files.items()}))  # type: ignore[arg-type]


def authorities(tls: Tls) -> int:
    return tls._current.cert_store_stats()["x509_ca"]


def test_no_cut_of_the_authorities_is_taken(tls: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of two, cut within the second, OpenSSL takes the first and says nothing: whom the second signed is locked out. A
    file cut between two is a shorter list."""
    both = (tmp_path / "both.pem").read_bytes()
    between = both.index(b"-----BEGIN", 10)
    for size in [*range(0, len(both) - 1, 29), between + 5, between + 10, between + 11, len(both) - 2]:
        (tmp_path / "both.pem").write_bytes(both[:size])
        tls.refresh()
        assert authorities(tls) == 2 or between - 1 <= size <= between, size
        (tmp_path / "both.pem").write_bytes(both)
        tls.refresh()
    assert authorities(tls) == 2
    assert any("cut" in one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)


@pytest.mark.parametrize("swapped", ["server.pem", "server.key", "both.pem"])
def test_files_that_change_while_they_are_read_are_not_mixed(
    tls: Tls, papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """HTTP would have the old pair and gRPC the new certificate with the old key, until the next look."""
    given: list[Any] = []
    monkeypatch.setattr(grpc, "ssl_server_certificate_configuration", lambda pairs, ca: given.append((pairs, ca)))
    new = {"server.pem": "renewed.pem", "server.key": "renewed.key", "both.pem": "ca.pem"}[swapped]
    loaded = ssl.SSLContext.load_verify_locations

    def loading(context: ssl.SSLContext, *files: Any) -> None:
        loaded(context, *files)
        shutil.copy(papers / new, tmp_path / swapped)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", loading)
    (tmp_path / "server.pem").write_bytes((papers / "server.pem").read_bytes())  # looked at again
    tls.refresh()
    assert given == []
    monkeypatch.undo()


# -- rotation under load --------------------------------------------------------------------------------------


@dataclass
class Caller:
    """Calls on a new connection each time, over both faces; what failed."""

    guarded: Guarded
    failed: list[str]
    made: int = 0

    def run(self, over: threading.Event, pause: float) -> None:
        while not over.wait(pause):
            for call in (self._http, self._grpc):
                try:
                    call()
                except (httpx.HTTPError, grpc.RpcError) as why:
                    self.failed.append(repr(why)[:300])
                self.made += 1

    @property
    def _authorization(self) -> tuple[str, str]:
        return "authorization", f"Bearer {VICTIM}"

    def _http(self) -> None:
        context = client_context(self.guarded.folder, "job")
        with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
            url = f"https://localhost:{self.guarded.service.http}/v1/streams"
            client.get(url, headers=[self._authorization]).raise_for_status()

    def _grpc(self) -> None:
        files = (self.guarded.folder / name for name in ("ca.pem", "job.key", "job.pem"))
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        alone = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        with grpc.secure_channel(f"localhost:{self.guarded.service.grpc}", credentials, alone) as channel:
            stub = PartitionerServiceStub(channel)
            stub.ListStreams(pb.ListStreamsRequest(), metadata=(self._authorization,), timeout=60)


def rotate(guarded: Guarded, number: int) -> None:
    """As a person would: the key half, then whole, then the certificate; the list of tokens in two writes."""
    folder = guarded.folder
    certificate(folder, "next")
    key, cert = (folder / "next.key").read_bytes(), (folder / "next.pem").read_bytes()
    for half in (len(key) // 2, len(key)):
        (folder / "server.key").write_bytes(key[:half])
        time.sleep(0.02)
    (folder / "server.pem").write_bytes(cert)
    line, other = (f"{digest_of(token)} {who} admin *\n" for token, who in ((VICTIM, "somebody"), (str(number), "new")))
    (folder / "tokens").write_text(other + line[:-9])
    time.sleep(0.02)
    (folder / "tokens").write_text(other + line)


@pytest.mark.parametrize("seconds", some_of([5.0, 60.0], 5.0))
def test_rotated_under_load_no_call_fails(guarded: Guarded, seconds: float) -> None:
    long = seconds > 10
    over, caller = threading.Event(), Caller(guarded, [])
    threads = [threading.Thread(target=caller.run, args=(over, 0.02 if long else 0.2)) for _ in range(4 if long else 1)]
    for thread in threads:
        thread.start()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rotate(guarded, number := number + 1)
        time.sleep(0.5)
    over.set()
    for thread in threads:
        thread.join(120)
    assert caller.failed == []
    assert caller.made > 10
    assert any("certificates read again" in line for line in guarded.log_lines)

"""The service as a whole: the real engine behind both faces, as a process, from start to drain; the quickstart."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cli.command import environment, is_one_line
from tests.doses import some_of
from tests.service.faces import (
    SERVICE,
    FakeVerbs,
    digest_of,
    histogram,
    report,
    served,
    taken_port,
    web,
)
from tests.service.processes import FREE, logged, process, until_told
from unskew.core.stream_spec import Part
from unskew.service.app.main import _Ready
from unskew.service.app.settings import Settings
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms, plan_from_bytes, round_messages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quickstart-service.md"


def test_a_process_serves_the_same_plan_over_both_faces_and_drains(tmp_path: Path) -> None:
    """Started, filled over gRPC, read over REST to the bit; then SIGTERM in the middle of a wait and a watch: both end
    well, the process leaves with 0, and the log says what went on."""
    with process(tmp_path) as service, ThreadPoolExecutor(2) as pool:
        assert httpx.get(service.url("/healthz"), trust_env=False, timeout=60).status_code == 200
        with grpc.insecure_channel(f"127.0.0.1:{service.grpc}") as opened:
            health = health_pb2_grpc.HealthStub(opened)
            assert health.Check(health_pb2.HealthCheckRequest(service=SERVICE)).status == 1
            stub = PartitionerServiceStub(opened)
            stub.PutStream(pb.PutStreamRequest(stream="clicks", spec=pb.StreamSpec(partitions=3, policy="balanced")))
            stub.ReportHistogram(histograms.chunks(histogram(), "clicks", Part("q", 1)))
            built = stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=2))
            assert built.outcome == pb.PLAN_OUTCOME_NEW
            latest = httpx.get(
                service.url("/v1/streams/clicks/plans/latest"),
                headers={"accept": "application/x-protobuf"},
                trust_env=False,
                timeout=60,
            )
            assert latest.content == built.plan == stub.GetPlan(pb.GetPlanRequest(stream="clicks")).plan
            watch = stub.WatchPlans(pb.WatchPlansRequest(stream="clicks"))
            assert next(watch).plan == built.plan
            first, other = (round_messages.report_to_message(report(3, agent)) for agent in ("a1", "a2"))
            got = stub.Sync(pb.SyncRequest(stream="clicks", report=first, wait_seconds=10)).answer
            # The next round waits for the first agent, whose next report is seconds away.
            known = {"incarnation": got.incarnation, "epoch": got.epoch}
            asked = pb.SyncRequest(stream="clicks", report=other, wait_seconds=30, **known)
            wait = pool.submit(stub.Sync, asked, timeout=60)
            rest = pool.submit(lambda: list(watch))
            until_told(service, 'unskew_store_seconds_count{op="report"} 2.0')
            service.run.send_signal(signal.SIGTERM)
            assert rest.result(60) == []
            assert watch.code() is grpc.StatusCode.OK
            wait.result(60)  # an answer, or "not yet", and no error
        assert service.run.wait(60) == 0
        assert service.run.stdout is not None
        assert f"REST on http://127.0.0.1:{service.http}" in service.run.stdout.read()
    lines = logged(tmp_path)
    assert [line["message"] for line in lines if line["logger"] == "unskew.service"][-3:] == [
        "serving",
        "draining",
        "stopped",
    ]
    audits = [line for line in lines if line["logger"] == "unskew.audit"]
    assert [(line["identity"], line["stream"], line["message"]) for line in audits] == [
        ("anybody", "clicks", "PutStream created")
    ]


def test_the_module_says_its_ports_on_stdout(tmp_path: Path) -> None:
    """One line of JSON, for whoever starts it as a child; Ctrl-C ends it too."""
    with process(tmp_path, module="unskew.service", first="") as service:
        assert service.run.stdout is not None
        told = json.loads(service.run.stdout.readline())
        assert (told["http"], told["grpc"], told["metrics"]) == (service.http, service.grpc, service.metrics)
        service.run.send_signal(signal.SIGINT)
        assert service.run.wait(60) == 0


@pytest.mark.parametrize("port", some_of(["--http-port", "--grpc-port", "--metrics-port"], "--grpc-port"))
def test_a_taken_port_is_told_in_one_line(tmp_path: Path, port: str) -> None:
    """And the service does not run on the other two."""
    with taken_port() as taken:
        flags = [*FREE, port, str(taken.getsockname()[1])]
        done = subprocess.run(
            [sys.executable, "-m", "unskew.service", *flags],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert port in done.stderr


def test_a_slow_store_is_told_by_readiness_and_recovery_too() -> None:
    """The last answer holds for a second; the reason is in it."""

    async def run() -> list[str]:
        broken = True

        async def ping() -> None:
            if broken:
                raise ConnectionError("no route")

        ready = _Ready(ping)
        first = await ready.trouble()
        broken = False
        still = await ready.trouble()
        ready._until = 0.0
        return [first, still, await ready.trouble()]

    first, still, then = asyncio.run(run())
    assert first == still == "the store does not answer: no route"
    assert then == ""


def test_small_calls_do_not_wait_for_the_network(tmp_path: Path) -> None:
    """A body that follows its headers in a packet of its own is read at once (no Nagle, no delayed acknowledgement)."""

    def median(client: httpx.Client) -> float:
        took = []
        for _ in range(15):
            started = time.perf_counter()
            client.put("/v1/streams/x", json={"partitions": 2})
            took.append(time.perf_counter() - started)
        return statistics.median(took)

    with served(FakeVerbs()) as running, web(running) as client:
        # Each call that waits for an acknowledgement takes 0.04 s, however often it is tried; other work does not.
        assert any(median(client) < 0.03 for _ in range(20))


# -- certificates -------------------------------------------------------------------------------------------


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificate(folder: Path, name: str, san: str) -> None:
    """A key and a certificate of this name, signed by the folder's authority."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    if not (folder / "ca.pem").exists():
        openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "san").write_text(f"subjectAltName={san}\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with the openssl command")
def test_a_client_certificate_is_an_identity_on_both_faces(tmp_path: Path) -> None:
    """By a name in it; without one nobody gets a connection; another's role is another's."""
    certificate(tmp_path, "server", "DNS:localhost,IP:127.0.0.1")
    certificate(tmp_path, "etl", "URI:spiffe://jobs/etl")
    certificate(tmp_path, "eye", "URI:spiffe://jobs/eye")
    grants = "san=spiffe://jobs/etl etl admin *\nsan=spiffe://jobs/eye eye reader *\n"
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    settings = {name: str(tmp_path / file) for name, file in files.items()}
    with served(FakeVerbs(), tokens=grants, **settings) as running:
        base = running.base.replace("http:", "https:")
        for name, put, listed in (("etl", 201, "OK"), ("eye", 403, "OK"), ("", None, "UNAVAILABLE")):
            assert _over_https(tmp_path, base, name) == put
            assert _over_grpc(tmp_path, running.target, name) == listed
        certificate(tmp_path, "server", "DNS:localhost,IP:127.0.0.1,DNS:renewed")
        tls = running.running.tls
        assert tls is not None
        tls.refresh()
        assert "renewed" in _names(tmp_path, running.running.http_port, "etl")
        assert "renewed" in _names(tmp_path, running.running.grpc_port, "etl")
        (tmp_path / "server.key").write_text("nonsense")
        tls.refresh()
        assert "renewed" in _names(tmp_path, running.running.http_port, "etl")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with the openssl command")
def test_an_authority_that_was_taken_away_lets_nobody_in(tmp_path: Path) -> None:
    """On both faces, without a restart: whoever has its key could be anybody."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        certificate(folder, "server", "DNS:localhost,IP:127.0.0.1")
        certificate(folder, "etl", "URI:spiffe://jobs/etl")
    for name in ("server.pem", "server.key", "ca.pem"):
        shutil.copy(old / name, tmp_path / name)
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    settings = {name: str(tmp_path / file) for name, file in files.items()}
    with served(FakeVerbs(), tokens="san=spiffe://jobs/etl etl admin *\n", **settings) as running:
        base = running.base.replace("http:", "https:")
        assert (_over_https(old, base, "etl"), _over_grpc(old, running.target, "etl")) == (201, "OK")
        shutil.copy(new / "ca.pem", tmp_path / "ca.pem")
        tls = running.running.tls
        assert tls is not None
        tls.refresh()
        assert (_over_https(old, base, "etl"), _over_grpc(old, running.target, "etl")) == (None, "UNAVAILABLE")
        shutil.copy(new / "server.pem", tmp_path / "server.pem")
        shutil.copy(new / "server.key", tmp_path / "server.key")
        tls.refresh()
        assert (_over_https(new, base, "etl"), _over_grpc(new, running.target, "etl")) == (200, "OK")


def _over_https(folder: Path, base: str, name: str) -> int | None:
    import ssl

    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
        try:
            return client.put(f"{base}/v1/streams/{name or 'x'}", json={"partitions": 2}).status_code
        except httpx.TransportError:
            return None


def _over_grpc(folder: Path, target: str, name: str) -> str:
    def read(file: str) -> bytes | None:
        return (folder / file).read_bytes() if name else None

    credentials = grpc.ssl_channel_credentials(
        (folder / "ca.pem").read_bytes(), read(f"{name}.key"), read(f"{name}.pem")
    )
    with grpc.secure_channel(target, credentials) as opened:
        try:
            PartitionerServiceStub(opened).ListStreams(pb.ListStreamsRequest(), timeout=60)
        except grpc.RpcError as why:
            return str(why.code().name)
    return "OK"


def _names(folder: Path, port: int, name: str) -> set[str]:
    """The names in the certificate that the server shows now."""
    import ssl

    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as one,
    ):
        return {value for _, value in (one.getpeercert() or {})["subjectAltName"]}


# -- the quickstart -----------------------------------------------------------------------------------------

BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
CURLS = [block for block in BLOCKS if block.startswith("curl") and "localhost" in block]
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page is done with curl")
def test_the_quickstart_does_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every curl line and the Python program of the page, in order, against a service as the page starts it."""
    assert len(CURLS) == 4
    with served("engine") as running:
        at = {
            "8080": running.running.http_port,
            "8081": running.running.grpc_port,
            "8082": running.running.metrics_port,
        }

        def local(text: str) -> str:
            for port, real in at.items():
                text = text.replace(f"localhost:{port}", f"127.0.0.1:{real}")
            return text

        said = [_shell(tmp_path, local(block)) for block in CURLS]
        assert json.loads(said[0])["spec"]["partitions"] == 4
        assert json.loads(said[1]) == {"rows": 1000, "keys": 3, "repeated_report": False}
        built = json.loads(said[2])
        assert built["outcome"] == "new"
        (split,) = [key["split"] for key in built["plan"]["hot"] if key["rows"] == 900]
        assert {*split["first"], *split["second"]} == {0, 1, 2, 3}
        assert plan_from_bytes((tmp_path / "clicks.plan").read_bytes()).digest == built["digest"]
        assert '"status":"ready"' in said[3]
        (program,) = PYTHON
        exec(compile(local(program), str(PAGE), "exec"), {})
    counts = [int(number) for number in re.findall(r"\d+", capsys.readouterr().out)]
    assert sum(counts) == 100_000
    assert max(counts) < 26_000


def _shell(folder: Path, block: str) -> str:
    done = subprocess.run(["bash", "-euc", block], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_names_the_flags_and_roles_that_there_are() -> None:
    """No flag of `unskew serve` that the page tells is unknown, and its example of a token is a line that is taken."""
    from unskew.service.auth.credentials import read_credentials

    text = PAGE.read_text()
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields}
    told = {flag for block in (text, *BLOCKS) for flag in re.findall(r"`(--[a-z-]+)", block)}
    assert told <= flags
    rest = re.search(r"cut -d' ' -f1\) (.+)\" >> tokens", text)
    assert rest is not None
    (entry,) = read_credentials(f"{digest_of('t')} {rest.group(1)}", "tokens")
    assert entry.identity.may("ReportHistogram", "eu/x")

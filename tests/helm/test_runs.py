"""What is rendered runs: the container as a process with its command, environment, files and probes, the pod of
`helm test` against it, SIGTERM. The image's own part (user, read-only root) is in tests/packaging."""

from __future__ import annotations

import copy
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.helm.charts import Rendered, render, secrets, value_files
from tests.helm.kubelet import Container, FailedMountError, Started, bare, python, running
from tests.helm.papers import TOKEN, foreign_secrets
from tests.servers import free_ports, redis_program, wait_for
from unskew.service.app.main import check
from unskew.service.app.settings import load

pytestmark = [
    pytest.mark.xdist_group("helm"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with the openssl command"),
]
Foreign = Mapping[str, Mapping[str, bytes]]
# One second between two questions: a pod then leaves after two.
SOON = ("--set", "readinessProbe.periodSeconds=1")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return foreign_secrets(tmp_path_factory.mktemp("papers"))


def container(rendered: Rendered, pod: dict[str, object], foreign: Foreign, folder: Path) -> Container:
    configs = {one["metadata"]["name"]: one["data"] for one in rendered.all("ConfigMap")}
    folder.mkdir(exist_ok=True)
    return Container(pod, {**foreign, **secrets(rendered)}, configs, folder)


def tried(rendered: Rendered, service: Started, foreign: Foreign, folder: Path, **changed: str) -> tuple[int, str]:
    """The pod of `helm test`, with the addresses of this service; its exit code and what it said."""
    test = container(rendered, rendered.one("Pod", "-test"), foreign, folder)
    test.mount()
    given = test.environment()
    scheme = given["TRY_URL"].partition(":")[0]
    here = {
        "TRY_URL": f"{scheme}://localhost:{service.ports['http']}",
        "TRY_GRPC": f"localhost:{service.ports['grpc']}",
    }
    done = subprocess.run(
        python(test.command(given)),
        env={**bare(), **given, **here, **changed},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("values", value_files())
def test_the_service_takes_what_is_rendered(
    values: str, foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environment and files of the pod, as they are: `unskew config check` would say yes. The address too, for which it
    wants credentials."""
    rendered = render(values)
    one = container(rendered, rendered.pod, foreign, tmp_path / "pod")
    if values == "everything":  # its own volume, which the chart knows nothing of
        one = Container(one.pod, one.secrets, {**one.configs, "more": {}}, one.folder)
    one.mount()
    environment = one.environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert one.unreadable() == []
    settings = load()
    check(settings)
    assert settings.host in ("0.0.0.0", "::")
    assert settings.guarded is (values != "insecure")
    ports = {port["name"]: port["containerPort"] for port in one.spec["ports"]}
    assert ports == {"http": settings.http_port, "grpc": settings.grpc_port, "metrics": settings.metrics_port}
    assert one.spec["args"] == ["serve"]


@pytest.mark.parametrize("values", [values for values in value_files() if values != "existing-secrets"])
def test_the_pod_of_the_test_can_read_its_files(values: str, foreign: Foreign, tmp_path: Path) -> None:
    rendered = render(values)
    one = container(rendered, rendered.one("Pod", "-test"), foreign, tmp_path / "pod")
    one.mount()
    assert one.unreadable() == []


@pytest.mark.parametrize(
    ("values", "mode", "given"),
    [("minimal", 0o440, {"fsGroup": 10001}), ("bare", 0o444, {}), ("openshift", 0o444, {})],
)
def test_files_of_secrets_are_for_the_pods_group_or_for_everybody_in_it(
    values: str, mode: int, given: dict[str, int], foreign: Foreign, tmp_path: Path
) -> None:
    """Without an fsGroup they are root's, and the image's user is in no group of root's."""
    rendered = render(values)
    volumes = [volume["secret"] for volume in rendered.pod["spec"]["volumes"] if "secret" in volume]
    assert {volume["defaultMode"] for volume in volumes} == {mode}
    context = rendered.pod["spec"].get("securityContext", {})
    assert {name: value for name, value in context.items() if name == "fsGroup"} == given
    closed = copy.deepcopy(rendered.pod)
    closed["spec"]["securityContext"] = {"runAsUser": 10001, "runAsGroup": 10001}
    for volume in closed["spec"]["volumes"]:
        if "secret" in volume:
            volume["secret"]["defaultMode"] = 0o440
    # The check itself: what root's group alone may read is told.
    assert len(container(rendered, closed, foreign, tmp_path / "pod").unreadable()) >= len(volumes)


def test_an_install_with_nothing_said_serves_plans_and_leaves_in_peace(foreign: Foreign, tmp_path: Path) -> None:
    """Probes say yes, `helm test` passes with the generated token and not with another, Prometheus has its own; after
    SIGTERM the pod is not ready and still answers, and leaves with 0 within its time."""
    rendered = render("minimal", *SOON)
    made = secrets(rendered)["unskew-auth"]
    with running(container(rendered, rendered.pod, foreign, tmp_path / "pod")) as service:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert service.probe(name), name
        code, said = tried(rendered, service, foreign, tmp_path / "test")
        assert code == 0, said
        assert "key 42 goes to 4 partitions" in said
        code, said = tried(rendered, service, foreign, tmp_path / "test", TRY_TOKEN="another")
        assert code == 1
        assert "401" in said
        assert _scraped(service, made["metrics-token"]) == 200
        assert _scraped(service, b"another") == 401
        _drains(service)


def _scraped(service: Started, token: bytes) -> int:
    headers = {"authorization": f"Bearer {token.decode()}"}
    url = f"http://127.0.0.1:{service.ports['metrics']}/metrics"
    return httpx.get(url, headers=headers, trust_env=False, timeout=60).status_code


def _drains(service: Started) -> None:
    """While load balancers take note it answers, and says that it is not ready."""
    service.process.terminate()
    end = time.monotonic() + 30
    while service.probe("readinessProbe"):
        assert time.monotonic() < end
        time.sleep(0.02)  # the signal is on its way
    assert service.probe("livenessProbe")
    assert service.process.wait(service.container.pod["spec"]["terminationGracePeriodSeconds"]) == 0
    assert '"message": "stopped"' in service.log.read_text()


@contextmanager
def trial_redis(rendered: Rendered, folder: Path) -> Iterator[int]:
    """The chart's Redis for trials, as a process, on a free port."""
    pod = rendered.one("Deployment", "-redis")["spec"]["template"]
    one = container(rendered, pod, {}, folder)
    one.mount()
    (port,) = free_ports(1)
    program, *arguments = one.command(one.environment())
    assert program == "redis-server"
    command = [redis_program(), *arguments, "--port", str(port), "--bind", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder) as process:
        try:
            password = one.environment()["REDISCLI_AUTH"]
            with redis.Redis("127.0.0.1", port, password=password, protocol=2) as client:
                wait_for("the trial's Redis", lambda: bool(client.ping()))
            yield port
        finally:
            process.kill()


def test_two_replicas_with_certificates_share_a_trial_redis(foreign: Foreign, tmp_path: Path) -> None:
    """HTTPS probes, `helm test` by the authority of the Secret; what one pod is told the other knows."""
    rendered = render("trial-redis", "--set", "tls.existingSecret=unskew-tls", *SOON)
    assert rendered.one("Deployment")["spec"]["replicas"] == 2
    with trial_redis(rendered, tmp_path / "redis") as port:
        once = Retry(NoBackoff(), 0)
        with redis.Redis("127.0.0.1", port, protocol=2, retry=once) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.ping()
        told = secrets(rendered)["unskew-redis"]["url"].decode()
        store = told.replace("unskew-redis.plans.svc:6379", f"127.0.0.1:{port}")
        assert store != told
        with (
            running(container(rendered, rendered.pod, foreign, tmp_path / "one"), UNSKEW_STORE=store) as one,
            running(container(rendered, rendered.pod, foreign, tmp_path / "two"), UNSKEW_STORE=store) as two,
        ):
            assert one.probe("readinessProbe")
            assert two.probe("livenessProbe")
            code, said = tried(rendered, one, foreign, tmp_path / "test")
            assert code == 0, said
            # REST of one, gRPC of the other, as through the Services.
            code, said = tried(rendered, two, foreign, tmp_path / "test", TRY_GRPC=f"localhost:{one.ports['grpc']}")
            assert code == 0, said
            assert _put(one, rendered, foreign) == 201
            assert _put(two, rendered, foreign) == 200  # it is there already
            assert one.leave() >= 2.0


def _put(service: Started, rendered: Rendered, foreign: Foreign) -> int:
    headers = {"authorization": f"Bearer {secrets(rendered)['unskew-auth']['token'].decode()}"}
    with httpx.Client(verify=_trusting(foreign), headers=headers, trust_env=False, timeout=60) as client:
        url = f"https://localhost:{service.ports['http']}/v1/streams/clicks"
        return client.put(url, json={"partitions": 2}).status_code


def test_with_certificates_of_callers_the_test_shows_its_own(foreign: Foreign, tmp_path: Path) -> None:
    """Probes see that it listens, for a kubelet has none to show; `helm test` passes with its own, not without."""
    rendered = render("mtls", *SOON)
    with running(container(rendered, rendered.pod, foreign, tmp_path / "pod")) as service:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert service.probe(name), name
        code, said = tried(rendered, service, foreign, tmp_path / "test")
        assert code == 0, said
        with pytest.raises(httpx.TransportError):
            httpx.get(
                f"https://localhost:{service.ports['http']}/healthz",
                verify=_trusting(foreign),
                trust_env=False,
                timeout=60,
            )
        assert service.probe("livenessProbe")


def test_a_certificate_that_everybody_knows_needs_no_authority(foreign: Foreign, tmp_path: Path) -> None:
    """`tls.caKey: ""`, with a Secret as `kubectl create secret tls` makes it: REST and gRPC go by the system's
    authorities."""
    rendered = render("public-certificate", *SOON)
    (tmp_path / "authorities").write_bytes(foreign["client-ca"]["ca.crt"])
    with running(container(rendered, rendered.pod, foreign, tmp_path / "pod")) as service:
        known = {"SSL_CERT_FILE": str(tmp_path / "authorities")}
        code, said = tried(rendered, service, foreign, tmp_path / "test", **known)
        assert code == 0, said
        assert "ok   gRPC serves" in said


def test_a_secret_without_an_authority_is_named_by_the_test(foreign: Foreign, tmp_path: Path) -> None:
    """The pod starts and says what is missing, where it would have waited for its volume for ever."""
    rendered = render("tls")
    pod, without = copy.deepcopy(rendered.one("Pod", "-test")), {**foreign, "unskew-tls": foreign["unskew-public"]}
    test = container(rendered, pod, without, tmp_path)
    test.mount()
    given = test.environment()
    done = subprocess.run(
        python(test.command(given)), env={**bare(), **given}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no key as tls.caKey says" in done.stdout
    assert done.stderr == ""
    del pod["spec"]["volumes"][1]["secret"]["optional"]
    with pytest.raises(FailedMountError, match=r"ca\.crt"):
        test.mount()


def _trusting(foreign: Foreign) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=foreign["unskew-tls"]["ca.crt"].decode())


def test_tokens_of_ones_own_let_the_test_in(foreign: Foreign, tmp_path: Path) -> None:
    """A file of digests that somebody else keeps, a Redis elsewhere; the test has a token that it is told of."""
    rendered = render("ha", *SOON)
    with running(container(rendered, rendered.pod, foreign, tmp_path / "pod"), UNSKEW_STORE="memory") as service:
        code, said = tried(rendered, service, foreign, tmp_path / "test")
        assert code == 0, said
        assert TOKEN.decode() not in service.log.read_text() + said

"""What the chart promises whatever the values are: one version, hardened pods, Services that find the right pods, and
values, schema and README that say the same."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.charts import CHART, NAMESPACE, ROOT, VALUES, Document, helm, render, secrets, value_files
from tests.helm.kubelet import image_user
from unskew.core.version import __version__
from unskew.service.app.settings import Settings
from unskew.service.stores.address import read_address

pytestmark = pytest.mark.xdist_group("helm")
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
# what `helm create` of helm 3 and 4 puts into values.yaml
EVERYBODYS = {
    *("replicaCount", "image", "imagePullSecrets", "nameOverride", "fullnameOverride", "serviceAccount"),
    *("podAnnotations", "podLabels", "podSecurityContext", "securityContext", "service", "ingress", "httpRoute"),
    *("resources", "livenessProbe", "readinessProbe", "autoscaling", "volumes", "volumeMounts", "nodeSelector"),
    *("tolerations", "affinity"),
}
HARDENED = [values for values in value_files() if values != "bare"]


def pods(values: str) -> Iterator[Document]:
    """Every pod of a release: of Deployments, and the one of `helm test`."""
    rendered = render(values)
    yield from (one["spec"]["template"] for one in rendered.all("Deployment"))
    yield from rendered.all("Pod")


def test_the_version_has_one_place() -> None:
    """Chart and application are the project's version, as core says it."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert render("minimal").pod["spec"]["containers"][0]["image"] == f"unskew:{__version__}"


def test_the_table_of_values_is_up_to_date() -> None:
    """Every value has a comment, and the README has them all."""
    done = subprocess.run([sys.executable, ROOT / "tools/chart_readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_has_the_values_that_everybody_knows() -> None:
    assert EVERYBODYS - set(DEFAULTS) == set()


def _walk(values: Any, schema: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    yield path, values, schema
    if isinstance(values, dict) and "properties" in schema:
        for key, value in values.items():
            yield from _walk(value, schema["properties"].get(key), f"{path}.{key}".strip("."))


def test_the_schema_knows_every_value_and_no_other() -> None:
    """Each default is in the schema; what the schema lists has a default, but for what is another API's own."""
    unknown = [path for path, _, schema in _walk(DEFAULTS, SCHEMA) if schema is None]
    assert unknown == []
    opened, missing = [], []
    free = {
        "",
        "config",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "keda.scaleTargetRef",
        "keda.authenticationRef",
    }
    for path, value, schema in _walk(DEFAULTS, SCHEMA):
        if "properties" in schema:
            opened += [path] if schema.get("additionalProperties") is not False else []
            if path not in free and not path.endswith("resources"):
                missing += [f"{path}.{key}" for key in schema["properties"] if key not in value]
    assert opened == []
    assert missing == []
    assert set(SCHEMA["properties"]) - set(DEFAULTS) == {"global"}  # helm's own, for charts that have this one in them


def test_config_takes_every_setting_that_the_chart_does_not_set_itself() -> None:
    """By the bounds that the service has."""
    taken = SCHEMA["properties"]["config"]["properties"]
    own = {"host", "ports_file", "store", "drain_delay", "drain", "insecure"}
    own |= {name for name in Settings.model_fields if name.startswith(("tokens", "tls_")) or name.endswith("_port")}
    known = Settings.model_json_schema()["properties"]
    bounds = ("type", "enum", "minimum", "maximum", "exclusiveMinimum")
    expected = {
        re.sub("_(.)", lambda found: found[1].upper(), name): {key: told[key] for key in bounds if key in told}
        for name, told in known.items()
        if name not in own
    }
    assert taken == expected


@pytest.mark.parametrize("values", HARDENED)
def test_pods_are_hardened(values: str) -> None:
    """Not root, a read-only root, no capabilities, the default seccomp profile, no API token."""
    for pod in pods(values):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"].get("runAsUser", image_user()[0]) >= 999
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert not any("hostPath" in volume for volume in spec["volumes"])


@pytest.mark.parametrize("values", value_files())
def test_services_find_the_pods_of_their_component_only(values: str) -> None:
    """The pod of `helm test` and the trial Redis must not get calls that are for the service."""
    rendered = render(values)
    found = {
        one["metadata"]["name"]: [
            pod["metadata"]["labels"]["app.kubernetes.io/component"]
            for pod in pods(values)
            if one["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        for one in rendered.all("Service")
    }
    full = rendered.fullname
    trial = {f"{full}-redis": ["redis"]} if f"{full}-redis" in found else {}
    assert found == {full: ["service"], f"{full}-headless": ["service"], **trial}


@pytest.mark.parametrize("values", value_files())
def test_objects_have_the_common_labels(values: str) -> None:
    for one in render(values).documents:
        labels = one["metadata"]["labels"]
        assert {f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "managed-by")} <= set(labels)
        assert labels["helm.sh/chart"] == f"unskew-{__version__}"


@pytest.mark.parametrize("values", value_files())
def test_a_pod_has_the_time_that_it_takes_to_leave(values: str) -> None:
    """Two periods of the readiness probe, the calls in flight, and some more, before it is killed."""
    pod = render(values).pod["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    delay, drain = float(env["UNSKEW_DRAIN_DELAY"]), float(env["UNSKEW_DRAIN"])
    assert delay >= 2 * pod["containers"][0]["readinessProbe"].get("periodSeconds", 10)  # Kubernetes' own
    assert pod["terminationGracePeriodSeconds"] >= delay + drain + 5


def test_everything_has_its_say_in_the_time_to_leave() -> None:
    pod = render("everything").pod["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert (env["UNSKEW_DRAIN_DELAY"], env["UNSKEW_DRAIN"], pod["terminationGracePeriodSeconds"]) == ("25", "30", 60)


def test_grpc_clients_get_the_addresses_of_ready_pods() -> None:
    headless = render("ha").one("Service", "-headless")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is False
    assert [(port["name"], port["appProtocol"]) for port in headless["ports"]] == [("grpc", "https")]
    plain = render("minimal").one("Service", "-headless")["spec"]
    assert plain["ports"][0]["appProtocol"] == "kubernetes.io/h2c"


def test_generated_tokens_are_what_the_service_reads() -> None:
    """An admin's and a reader's for the metrics, by their digests; the pods see the digests only."""
    rendered = render("minimal")
    made = secrets(rendered)["unskew-auth"]
    digests = {
        role: hashlib.sha256(made[key]).hexdigest() for role, key in (("admin", "token"), ("reader", "metrics-token"))
    }
    expected = f"{digests['admin']} admin admin *\n{digests['reader']} metrics reader *\n"
    assert made["tokens"].decode() == expected
    assert len(made["token"]) >= 32
    volume = next(one for one in rendered.pod["spec"]["volumes"] if one["name"] == "auth")
    assert [item["key"] for item in volume["secret"]["items"]] == ["tokens"]


@pytest.mark.parametrize(("values", "kind"), [("keda", "single"), ("sentinel", "sentinel"), ("cluster", "cluster")])
def test_a_url_with_a_password_is_in_a_secret_only(values: str, kind: str) -> None:
    rendered = render(values)
    url = secrets(rendered)["unskew-redis"]["url"].decode()
    assert read_address(url).kind == kind
    rest = json.dumps([one for one in rendered.documents if one["kind"] != "Secret"])
    assert url not in rest
    assert "s3cret" not in rest


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ("minimal", []),
        ("keda", [6379, 26379, 6380]),
        ("sentinel", [6379, 26379, 26380]),
        ("cluster", [6379, 26379, 7000, 7001, 7002]),
        ("autoscaling", [6379, 26379]),
        ("own-probes", [443]),
        ("trial-redis", [6379]),
    ],
)
def test_the_network_policy_lets_out_what_the_service_calls(values: str, ports: list[int]) -> None:
    """DNS, and the ports of Redis and the collector, as far as there is one."""
    egress = render(values).one("NetworkPolicy")["spec"]["egress"]
    assert [port["port"] for rule in egress for port in rule["ports"]] == [53, 53, *ports]


def test_with_memory_one_pod_goes_before_the_next_comes() -> None:
    """Two at once would know different things; with Redis nobody notices an upgrade."""
    assert render("minimal").one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert render("ha").one("Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_prometheus_gets_a_token_that_reads_and_a_name_to_expect() -> None:
    endpoint = render("monitoring").one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["authorization"] == {"credentials": {"name": "unskew-auth", "key": "metrics-token"}}
    secured = render("everything").one("ServiceMonitor")["spec"]["endpoints"][0]
    assert secured["scheme"] == "https"
    assert secured["tlsConfig"]["serverName"] == f"unskew-plans.{NAMESPACE}.svc"
    assert secured["tlsConfig"]["ca"] == {"secret": {"name": "unskew-tls", "key": "ca.crt"}}


def test_without_an_authority_prometheus_goes_by_its_own() -> None:
    """`tls.caKey: ""`: a key that is not in the Secret would make the operator leave the target out."""
    endpoint = render("public-certificate").one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["tlsConfig"] == {"serverName": f"unskew.{NAMESPACE}.svc"}
    volumes = {volume["name"] for volume in render("public-certificate").one("Pod", "-test")["spec"]["volumes"]}
    assert volumes == {"script"}


def test_rules_and_dashboards_are_those_of_the_folders() -> None:
    """Rules are of this release; the dashboards are given to Grafana's sidecar to the letter."""
    rendered = render("monitoring")
    groups = rendered.one("PrometheusRule")["spec"]["groups"]
    own = f'namespace="{NAMESPACE}",job="unskew"'
    said = (
        (CHART / "rules" / "unskew.yaml").read_text().replace('job="unskew"', own).replace("RUNBOOKS", "docs/runbooks")
    )
    assert groups == yaml.safe_load(said)["groups"]
    assert own in json.dumps(groups).replace('\\"', '"')
    boards = {name: text for one in rendered.all("ConfigMap") for name, text in one["data"].items() if "json" in name}
    files = {path.name: path.read_text() for path in (CHART / "dashboards").glob("*.json")}
    assert {name: json.loads(text) for name, text in boards.items()} == {n: json.loads(t) for n, t in files.items()}
    assert all(
        one["metadata"]["labels"]["grafana_dashboard"] == "1"
        for one in rendered.all("ConfigMap")
        if "-test" not in one["metadata"]["name"]
    )


def notes(tmp_path: Path, *given: str | Path) -> str:
    """What a person reads after the install. helm shows it where there is a cluster, so here a template includes it."""
    chart = shutil.copytree(CHART, tmp_path / "unskew")
    shown = '{{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
    (chart / "templates" / "shown.yaml").write_text(f"kind: Notes\nmetadata: {{name: notes}}\ntext: {shown}\n")
    done = helm("template", "--namespace", NAMESPACE, "--show-only", "templates/shown.yaml", *given, chart=chart)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["text"])


@pytest.mark.parametrize(
    ("values", "said", "unsaid"),
    [
        (
            "minimal",
            ["get secret unskew-auth", "helm -n plans test", "in memory", "Nothing is encrypted"],
            "PRODUCTION",
        ),
        ("ha", ["grpcs://unskew-headless.plans.svc:8081", "Secret unskew-tokens", "helm -n plans test"], "encrypted"),
        ("trial-redis", ["NOT FOR PRODUCTION"], "in memory"),
        ("mtls", ["show a certificate that client-ca signs", "unskew-tokens"], "Nobody watches"),
        ("insecure", ["No credentials are asked for"], "get secret"),
        ("own-probes", ["deployment/planner"], "deployment/unskew"),
    ],
)
def test_the_notes_say_what_to_do_next(tmp_path: Path, values: str, said: list[str], unsaid: str) -> None:
    """How to see that it runs, to call it, and what is not yet as production wants it."""
    text = notes(tmp_path, "--values", VALUES / f"{values}.yaml")
    assert [one for one in said if one not in text] == []
    assert unsaid not in text
    assert "\n\n\n" not in text


def test_the_notes_say_why_there_is_no_test_pod(tmp_path: Path) -> None:
    assert "tests.tokenSecret.name" in notes(tmp_path, "--set", "auth.existingSecret=mine")
    assert render("minimal", "--set", "auth.existingSecret=mine").all("Pod") == []

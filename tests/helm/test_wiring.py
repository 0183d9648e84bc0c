"""The manifests of every file of values fit together, and what would not is seen."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from tests.helm.charts import ROOT, Document, render, value_files
from tests.helm.wiring import address_faults, faults

pytestmark = pytest.mark.xdist_group("helm")
GONE = object()
Path = tuple[str | int, ...]
CONTAINER: Path = ("spec", "template", "spec", "containers", 0)
TEST_ENV: Path = ("spec", "containers", 0, "env")
NOWHERE = {"matchLabels": {"app.kubernetes.io/component": "nothing"}}
REDIS = {"matchLabels": {"app.kubernetes.io/component": "redis"}}
HOOK: Path = ("metadata", "annotations")
SPREAD: Path = ("spec", "template", "spec", "topologySpreadConstraints")

# values, kind and suffix of the object, where in it, what is put there, and what is then said
BROKEN: list[tuple[str, str, str, Path, object, str]] = [
    # Services
    ("minimal", "Service", "", ("spec", "selector", "app.kubernetes.io/component"), "redis", "selects []"),
    ("trial-redis", "Service", "-redis", ("spec", "selector"), {"app.kubernetes.io/instance": "unskew"}, "selects ["),
    ("minimal", "Service", "", ("spec", "ports", 0, "targetPort"), "web", "targetPort web"),
    ("minimal", "Service", "-headless", ("spec", "ports", 0, "port"), 9090, "nothing forwards 9090"),
    ("minimal", "Deployment", "", (*CONTAINER, "ports", 1, "name"), "rpc", "targetPort grpc"),
    # what names a Service's port
    ("monitoring", "Service", "", ("spec", "ports", 2, "name"), "prom", "port metrics is of the Services []"),
    ("ingress", "Service", "", ("spec", "ports", 0, "name"), "web", "unskew:http is not the Service's http"),
    ("http-route", "Service", "", ("spec", "ports", 0, "port"), 80, "unskew:8080 is not the Service's http"),
    (
        "everything",
        "Ingress",
        "",
        ("spec", "rules", 0, "http", "paths", 0, "backend", "service", "name"),
        "x",
        "x:http",
    ),
    ("http-route", "HTTPRoute", "", ("spec", "rules", 0, "backendRefs", 0, "port"), 8081, "unskew:8081"),
    ("monitoring", "ServiceMonitor", "", ("spec", "endpoints", 0, "port"), "grpc", "['unskew', 'unskew-headless']"),
    ("monitoring", "ServiceMonitor", "", ("spec", "selector"), NOWHERE, "port metrics is of the Services []"),
    ("everything", "ServiceMonitor", "", ("spec", "endpoints", 0, "scheme"), "http", "not what the service speaks"),
    ("everything", "ServiceMonitor", "", ("spec", "endpoints", 0, "tlsConfig", "serverName"), "unskew", "serverName"),
    # what selects pods, or names what is scaled
    ("minimal", "PodDisruptionBudget", "", ("spec", "selector"), NOWHERE, "selects the pods of []"),
    ("trial-redis", "PodDisruptionBudget", "", ("spec", "selector"), REDIS, "selects the pods of ['redis']"),
    (
        "trial-redis",
        "Deployment",
        "",
        (*SPREAD, 0, "labelSelector"),
        REDIS,
        "not those that topology.kubernetes.io/zone",
    ),
    ("trial-redis", "Deployment", "", (*SPREAD, 1, "labelSelector"), GONE, "not those that kubernetes.io/hostname"),
    ("autoscaling", "HorizontalPodAutoscaler", "", ("spec", "scaleTargetRef", "name"), "plans", "which is not there"),
    ("autoscaling", "HorizontalPodAutoscaler", "", ("spec", "scaleTargetRef", "kind"), "StatefulSet", "not there"),
    ("autoscaling", "HorizontalPodAutoscaler", "", ("spec", "metrics"), None, "aims at nothing"),
    ("autoscaling", "Deployment", "", ("spec", "replicas"), 2, "both say how many replicas"),
    # KEDA and the test ask this release
    *(
        (
            "keda",
            "ScaledObject",
            "-keda",
            ("spec", "triggers", 0, "metadata", "scalerAddress"),
            address,
            "scalerAddress",
        )
        for address in (
            "unskew-grpc.plans.svc:8081",
            "elsewhere:9999",
            "unskew.other.svc:8081",
            "unskew.plans.svc:8080",
        )
    ),
    ("everything", "ScaledObject", "-keda", ("spec", "triggers", 0, "metadata", "enableTLS"), GONE, "enableTLS"),
    ("minimal", "Pod", "-test", (*TEST_ENV, 0, "value"), "http://elsewhere:8080", "TRY_URL"),
    ("minimal", "Pod", "-test", (*TEST_ENV, 0, "value"), "http://unskew.plans.svc:8081", "TRY_URL"),
    ("minimal", "Pod", "-test", (*TEST_ENV, 0, "value"), "https://unskew.plans.svc:8080", "not as the service speaks"),
    ("minimal", "Pod", "-test", (*TEST_ENV, 1, "value"), "unskew-headless.plans.svc:9090", "TRY_GRPC"),
    ("minimal", "Pod", "-test", (*HOOK, "helm.sh/hook"), "tests", "helm.sh/hook is tests"),
    ("minimal", "ConfigMap", "-test", (*HOOK, "helm.sh/hook"), GONE, "ConfigMap unskew-test: helm.sh/hook is None"),
    ("minimal", "ConfigMap", "-test", (*HOOK, "helm.sh/hook-weight"), "2", "come by"),
    ("minimal", "Pod", "-test", (*HOOK, "helm.sh/hook-delete-policy"), "hook-failed", "a second `helm test`"),
    ("minimal", "Pod", "-test", (*TEST_ENV, 2, "valueFrom", "secretKeyRef", "key"), "admin", "has no admin"),
    # pods
    ("minimal", "Deployment", "", (*CONTAINER, "readinessProbe", "httpGet", "port"), "https", "asks port https"),
    ("tls", "Deployment", "", (*CONTAINER, "livenessProbe", "httpGet", "scheme"), "HTTP", "asks by HTTP"),
    ("own-probes", "Deployment", "", (*CONTAINER, "livenessProbe", "tcpSocket", "port"), "rpc", "asks port rpc"),
    ("minimal", "Deployment", "", (*CONTAINER, "env", 1, "value"), "8090", "UNSKEW_HTTP_PORT is 8090"),
    ("minimal", "Deployment", "", ("spec", "template", "spec", "serviceAccountName"), "x", "no ServiceAccount x"),
    ("trial-redis", "Secret", "-redis", ("data", "password"), GONE, "unskew-redis has no password"),
    ("monitoring", "Secret", "-auth", ("data", "metrics-token"), GONE, "unskew-auth has no metrics-token"),
    # the NetworkPolicy
    ("minimal", "NetworkPolicy", "", ("spec", "podSelector"), NOWHERE, "NetworkPolicy unskew selects []"),
    ("minimal", "NetworkPolicy", "", ("spec", "ingress", 1, "ports", 0, "port"), "grcp", "port grcp is not there"),
    ("everything", "NetworkPolicy", "", ("spec", "ingress", 3, "from", 0, "podSelector"), NOWHERE, "nobody is"),
    ("everything", "NetworkPolicy", "", ("spec", "ingress", 3), GONE, "Pod unskew-plans-test is not let through"),
    ("trial-redis", "NetworkPolicy", "", ("spec", "egress", 1, "ports", 0, "port"), 6380, "port [6380] is not there"),
    ("trial-redis", "NetworkPolicy", "", ("spec", "egress", 1), GONE, "Deployment unskew is not let through"),
    (
        "trial-redis",
        "NetworkPolicy",
        "-redis",
        ("spec", "ingress", 0, "from", 0, "podSelector"),
        REDIS,
        "not let through",
    ),
    ("trial-redis", "Service", "-redis", ("spec", "ports", 0, "port"), 6380, "unskew-redis.plans.svc:6379 is no port"),
    ("own-probes", "NetworkPolicy", "", ("spec", "egress", 1, "ports", 0, "port"), 4318, "nothing goes out to"),
]


def without(document: Document, name: str) -> None:
    """Take a variable away from the service."""
    env = document["spec"]["template"]["spec"]["containers"][0]["env"]
    env[:] = [one for one in env if one["name"] != name]


@pytest.mark.parametrize("values", value_files())
def test_what_manifests_say_of_each_other_is_so(values: str) -> None:
    assert faults(render(values).documents) == []


@pytest.mark.parametrize(("values", "kind", "suffix", "path", "value", "said"), BROKEN)
def test_what_is_not_so_is_said(values: str, kind: str, suffix: str, path: Path, value: object, said: str) -> None:
    """The check itself: one thing broken in manifests that fit, and it is named."""
    documents = copy.deepcopy(render(values).documents)
    name = render(values).fullname + suffix
    (place,) = [one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    _put(place, path, value)
    found = faults(documents)
    assert [fault for fault in found if said in fault], found


def _put(place: Any, path: Path, value: object) -> None:
    for step in path[:-1]:
        place = place[step]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value


@pytest.mark.parametrize(
    ("name", "said"),
    [("POD_NAME", "names $(POD_NAME)"), ("OTEL_SERVICE_NAME", "is None"), ("OTEL_RESOURCE_ATTRIBUTES", "is None")],
)
def test_traces_without_a_name_are_seen(name: str, said: str) -> None:
    documents = copy.deepcopy(render("own-probes").documents)
    (place,) = [one for one in documents if one["kind"] == "Deployment"]
    without(place, name)
    assert [fault for fault in faults(documents) if said in fault]


def test_a_variable_that_is_declared_too_late_is_seen() -> None:
    """Kubernetes would leave $(POD_NAME) as it is."""
    documents = copy.deepcopy(render("own-probes").documents)
    (place,) = [one for one in documents if one["kind"] == "Deployment"]
    place["spec"]["template"]["spec"]["containers"][0]["env"].reverse()
    assert "Deployment planner: OTEL_RESOURCE_ATTRIBUTES names $(POD_NAME)" in faults(documents)


def pages() -> list[str]:
    return [(ROOT / "docs" / name).read_text() for name in ("kubernetes.md", "keda.md")]


def test_addresses_in_the_pages_are_those_of_a_release_there() -> None:
    """As the pages install it: release unskew in namespace plans. The certificate has every host of them."""
    documents = render("ha").documents
    texts = pages()
    addresses = [found for text in texts for found in re.findall(r"[a-z0-9.-]+\.svc[a-z.]*:\d+", text)]
    assert len(addresses) >= 3
    assert [fault for address in addresses for fault in address_faults(documents, address)] == []
    (names,) = re.findall(r"dnsNames: \[(.*)\]", texts[0])
    assert {address.partition(":")[0] for address in addresses} <= set(names.split(", "))


def test_the_policy_in_the_page_tells_a_gateway_of_the_service_and_its_name() -> None:
    """The BackendTLSPolicy of docs/kubernetes.md: without it the gateway would send HTTP to a port with TLS."""
    (block,) = re.findall(
        r"^```yaml\n(apiVersion: gateway\S+\nkind: BackendTLSPolicy\n.*?)^```", pages()[0], re.M | re.S
    )
    spec = yaml.safe_load(block)["spec"]
    (target,) = spec["targetRefs"]
    service = render("public-certificate").one("Service")
    assert (target["kind"], target["name"]) == ("Service", service["metadata"]["name"])
    port = next(port["port"] for port in service["spec"]["ports"] if port["name"] == target["sectionName"])
    assert address_faults(render("public-certificate").documents, f"{spec['validation']['hostname']}:{port}") == []
    route = render("public-certificate").one("HTTPRoute")["spec"]["rules"][0]["backendRefs"][0]
    assert (route["name"], route["port"]) == (target["name"], port)

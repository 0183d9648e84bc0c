"""Every file of values gives manifests that a cluster takes, from the oldest Kubernetes that is named to the newest."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helm.charts import CHART, ROOT, VALUES, Document, helm, render, value_files
from tests.helm.schemas import OLDEST, faults, versions
from tests.monitoring.prometheus import promtool

pytestmark = pytest.mark.xdist_group("helm")


def test_the_matrix_is_wide() -> None:
    """So many files of values, and so many versions of Kubernetes."""
    assert len(value_files()) >= 12
    assert versions()[0] == OLDEST
    assert len(versions()) >= 10


@pytest.mark.parametrize("values", value_files())
def test_helm_lints_it_strictly(values: str) -> None:
    done = helm("lint", "--strict", "--quiet", "--values", VALUES / f"{values}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", versions())
def test_every_manifest_is_valid(version: str) -> None:
    """By the strict schemas, in which a field that nobody knows is a fault."""
    documents = [document for values in value_files() for document in render(values).documents]
    kinds = {document["kind"] for document in documents}
    assert {"ServiceMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute", "NetworkPolicy", "Pod"} <= kinds
    assert [fault for document in documents for fault in faults(document, version)] == []


@pytest.mark.parametrize(
    ("values", "kind", "path", "value"),
    [
        ("minimal", "Deployment", ("spec", "template", "spec", "containers", 0, "readinesProbe"), {}),
        ("minimal", "Service", ("spec", "ports", 0, "port"), "http"),
        ("monitoring", "ServiceMonitor", ("spec", "endpoints", 0, "tlsconfig"), {}),
        ("monitoring", "PrometheusRule", ("spec", "groups", 0, "rules", 0, "alerts"), "X"),
        ("keda", "ScaledObject", ("spec", "triggers", 0, "metadata", "stage"), 1),
        ("http-route", "HTTPRoute", ("spec", "rules", 0, "backendRefs", 0, "port"), 0),
    ],
)
def test_a_fault_would_be_seen(values: str, kind: str, path: tuple[str | int, ...], value: object) -> None:
    """The check itself: a manifest with one thing wrong is refused, and the place is named."""
    document = copy.deepcopy(render(values).one(kind, "-keda" if kind == "ScaledObject" else ""))
    place = document
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]  # a path through parsed YAML
    place[path[-1]] = value  # type: ignore[index]  # the same
    found = faults(document, versions()[-1])
    assert any(str(path[-1]) in fault for fault in found), found


def checked(spec: Document, folder: Path) -> subprocess.CompletedProcess[str]:
    """What Prometheus would say of a PrometheusRule, which the operator gives it as a file."""
    (folder / "rules.json").write_text(json.dumps(spec))
    return promtool("check", "rules", "--lint=all", "--lint-fatal", folder / "rules.json")


@pytest.mark.parametrize("more", [(), ("--set", "fullnameOverride=other", "--set", "nameOverride=its-own")])
@pytest.mark.parametrize("values", ["monitoring", "everything"])
def test_prometheus_takes_the_rules_as_they_are_rendered(values: str, more: tuple[str, ...], tmp_path: Path) -> None:
    """With the release's own names in them."""
    (rule,) = render(values, *more).all("PrometheusRule")
    done = checked(rule["spec"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_prometheus_would_not_take_a_rule_with_a_fault(tmp_path: Path) -> None:
    spec = copy.deepcopy(render("monitoring").one("PrometheusRule")["spec"])
    spec["groups"][0]["rules"][0]["expr"] += " )"
    done = checked(spec, tmp_path)
    assert done.returncode != 0
    assert "parse error" in done.stderr


@pytest.mark.parametrize("values", value_files())
def test_what_a_manifest_names_is_there(values: str) -> None:
    """What no schema sees: mounts have volumes, ports that are named exist, nothing is named twice, Secrets are of the
    chart or of the values."""
    rendered = render(values)
    ids = [(one["kind"], one["metadata"]["name"]) for one in rendered.documents]
    assert len(ids) == len(set(ids))
    own = {name for kind, name in ids if kind == "Secret"}
    given = (VALUES / f"{values}.yaml").read_text()
    for pod in [*(one["spec"]["template"] for one in rendered.all("Deployment")), *rendered.all("Pod")]:
        (container,) = pod["spec"]["containers"]
        variables = [one["name"] for one in container["env"]]
        assert len(variables) == len(set(variables))
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert len(volumes) == len(set(volumes))
        ports = {port["name"] for port in container.get("ports", ())}
        handlers = [container.get(name, {}) for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        asked = {(one.get("httpGet") or one.get("tcpSocket") or {}).get("port") for one in handlers} - {None}
        assert asked <= ports
        named = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume]
        named += [one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "secretKeyRef" in str(one)]
        assert [name for name in named if name not in own and name not in given] == []


def test_the_longest_release_name_gives_names_that_are_allowed() -> None:
    """helm takes 53 characters, a Service's name has 63 at most, and so has a label."""
    longest = "r" * 53
    done = helm("template", "--name-template", longest, "--values", VALUES / "trial-redis.yaml")
    assert done.returncode == 0, done.stderr
    for one in (document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document):
        assert len(one["metadata"]["name"]) <= 63
        assert all(len(label) <= 63 for label in one["metadata"]["labels"].values())


def test_the_values_that_the_documentation_shows_are_taken(tmp_path: Path) -> None:
    """Each block of docs/kubernetes.md that begins so."""
    blocks = re.findall(r"^```yaml\n(# values: .*?)^```", (ROOT / "docs/kubernetes.md").read_text(), re.M | re.S)
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.yaml").write_text(block)
        done = helm("template", "--values", tmp_path / f"{number}.yaml")
        assert done.returncode == 0, done.stderr


def test_an_older_kubernetes_is_refused() -> None:
    """Chart.yaml names the oldest; each that is tested here is taken."""
    assert "kubeVersion" in helm("template", "--kube-version", "1.27").stderr
    for version in (versions()[0], versions()[-1]):
        assert helm("template", "--kube-version", version).returncode == 0
    assert f">={OLDEST}.0" in (CHART / "Chart.yaml").read_text()

"""Whether what the manifests of a release say of each other is so: selectors find pods, names of ports and hosts exist,
keys are in their Secrets, and who has to call somebody is let through.

No schema sees that. ``faults`` lists all that is wrong, each with its object.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.helm.charts import NAMESPACE, Document

__all__ = ["address_faults", "faults"]

Port = str | int
_COMPONENT = "app.kubernetes.io/component"
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_LISTENS = {"UNSKEW_HTTP_PORT": "http", "UNSKEW_GRPC_PORT": "grpc", "UNSKEW_METRICS_PORT": "metrics"}


def faults(documents: Iterable[Document]) -> list[str]:
    release = _Release(tuple(documents))
    checks = (_services, _pods, _tests, _budgets, _scalers, _monitors, _doors, _policies, _calls, _traces, _keys)
    return [fault for check in checks for fault in check(release)]


def address_faults(documents: Iterable[Document], address: str) -> list[str]:
    """Of an address that is written somewhere else, such as in a page."""
    release = _Release(tuple(documents))
    return [] if release.reached(address) else [f"{address} is no port of a Service"]


def _label(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def _matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """An empty selector takes all, and none at all takes nothing."""
    assert selector is None or not set(selector) - {"matchLabels"}, f"not known to this check: {selector}"
    return selector is not None and selector.get("matchLabels", {}).items() <= labels.items()


@dataclass(frozen=True)
class _Pod:
    """A pod, of a Deployment or its own."""

    owner: Document
    template: Document

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.template["metadata"]["labels"])

    @property
    def containers(self) -> Sequence[Document]:
        return list(self.template["spec"]["containers"])

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for one in self.containers for port in one.get("ports", ())}

    def port(self, named: Port) -> int | None:
        """By its name or number, where there is such a one."""
        return self.ports.get(named) if isinstance(named, str) else named if named in self.ports.values() else None

    @property
    def environment(self) -> dict[str, Document]:
        return {one["name"]: one for container in self.containers for one in container.get("env", ())}

    def value(self, name: str) -> str | None:
        found = self.environment.get(name, {}).get("value")
        return None if found is None else str(found)


@dataclass(frozen=True)
class _Release:
    documents: tuple[Document, ...]

    def all(self, *kinds: str) -> list[Document]:
        return [one for one in self.documents if one["kind"] in kinds]

    @property
    def pods(self) -> list[_Pod]:
        workloads = [_Pod(one, one["spec"]["template"]) for one in self.all("Deployment")]
        return workloads + [_Pod(one, one) for one in self.all("Pod")]

    def component(self, name: str) -> list[_Pod]:
        return [pod for pod in self.pods if pod.labels[_COMPONENT] == name]

    def selected(self, selector: Mapping[str, Any] | None) -> list[_Pod]:
        return [pod for pod in self.pods if _matches(selector, pod.labels)]

    def service(self, name: str) -> Document | None:
        return next((one for one in self.all("Service") if one["metadata"]["name"] == name), None)

    def reached(self, address: str) -> tuple[_Pod, int] | None:
        """The pod behind ``host:port`` and its own port; None where no Service has them."""
        host, _, port = address.rpartition(":")
        name, _, rest = host.partition(".")
        service = self.service(name)
        if service is None or rest not in (f"{NAMESPACE}.svc", f"{NAMESPACE}.svc.cluster.local"):
            return None
        target = next((one["targetPort"] for one in service["spec"]["ports"] if str(one["port"]) == port), None)
        pods = self.selected({"matchLabels": service["spec"]["selector"]})
        number = pods[0].port(target) if pods and target is not None else None
        return None if number is None else (pods[0], number)

    @property
    def secrets(self) -> dict[str, dict[str, str]]:
        return {one["metadata"]["name"]: one["data"] for one in self.all("Secret")}

    @property
    def encrypted(self) -> bool:
        return any(pod.value("UNSKEW_TLS_CERT") for pod in self.component("service"))


# -- who is found -------------------------------------------------------------------------------------------------


def _services(release: _Release) -> Iterator[str]:
    for one in release.all("Service"):
        pods = release.selected({"matchLabels": one["spec"]["selector"]})
        owners = [_label(pod.owner) for pod in pods]
        if len(owners) != 1 or pods[0].owner["kind"] != "Deployment":
            yield f"{_label(one)} selects {owners}, not one Deployment's pods"
        for port in one["spec"]["ports"]:
            numbers = [pod.port(port["targetPort"]) for pod in pods]
            if None in numbers:
                yield f"{_label(one)}: targetPort {port['targetPort']} is no port of {owners}"
            elif one["spec"].get("clusterIP") == "None" and numbers != [port["port"]]:
                yield f"{_label(one)}: nothing forwards {port['port']} to {numbers}, it is headless"


def _budgets(release: _Release) -> Iterator[str]:
    """What is for the service's pods selects them and no others."""
    for one in release.all("PodDisruptionBudget"):
        components = [pod.labels[_COMPONENT] for pod in release.selected(one["spec"]["selector"])]
        if components != ["service"]:
            yield f"{_label(one)} selects the pods of {components}"
    for pod in release.pods:
        for spread in pod.template["spec"].get("topologySpreadConstraints", ()):
            if not _matches(spread.get("labelSelector"), pod.labels):
                yield f"{_label(pod.owner)}: its pods are not those that {spread['topologyKey']} spreads"


def _scalers(release: _Release) -> Iterator[str]:
    deployments = {one["metadata"]["name"]: one for one in release.all("Deployment")}
    for one in release.all("HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]
        found = deployments.get(target["name"]) if target["kind"] == "Deployment" else None
        if found is None:
            yield f"{_label(one)} scales {target['kind']} {target['name']}, which is not there"
        elif "replicas" in found["spec"]:
            yield f"{_label(one)} and {_label(found)} both say how many replicas"
        if not one["spec"].get("metrics"):
            yield f"{_label(one)} aims at nothing"
    for one in release.all("ScaledObject"):
        for trigger in one["spec"]["triggers"]:
            metadata = trigger["metadata"]
            if not _is(release.reached(metadata["scalerAddress"]), "grpc"):
                yield f"{_label(one)}: scalerAddress {metadata['scalerAddress']} is no gRPC of the service"
            if (metadata.get("enableTLS") == "true") is not release.encrypted:
                yield f"{_label(one)}: enableTLS is not as the service speaks"


def _is(reached: tuple[_Pod, int] | None, port: str) -> bool:
    return reached is not None and reached[0].labels[_COMPONENT] == "service" and reached[0].ports[port] == reached[1]


def _monitors(release: _Release) -> Iterator[str]:
    """One Service has the port, so each pod is scraped once; its name is what the certificate is checked for."""
    for one in release.all("ServiceMonitor"):
        services = [
            service
            for service in release.all("Service")
            if _matches(one["spec"]["selector"], service["metadata"]["labels"])
        ]
        for endpoint in one["spec"]["endpoints"]:
            port = endpoint["port"]
            names = [its["metadata"]["name"] for its in services if port in [p["name"] for p in its["spec"]["ports"]]]
            if len(names) != 1:
                yield f"{_label(one)}: port {port} is of the Services {names}"
            if (endpoint["scheme"] == "https") is not release.encrypted:
                yield f"{_label(one)}: {endpoint['scheme']} is not what the service speaks"
            expected = endpoint.get("tlsConfig", {}).get("serverName")
            if expected and expected not in [f"{name}.{NAMESPACE}.svc" for name in names]:
                yield f"{_label(one)}: serverName {expected} is no Service's"


def _doors(release: _Release) -> Iterator[str]:
    backends: list[tuple[Document, str, Port]] = []
    for one in release.all("Ingress"):
        paths = [path for rule in one["spec"]["rules"] for path in rule["http"]["paths"]]
        services = [path["backend"]["service"] for path in paths]
        backends += [(one, its["name"], its["port"].get("name") or its["port"]["number"]) for its in services]
    for one in release.all("HTTPRoute"):
        backends += [(one, its["name"], its["port"]) for rule in one["spec"]["rules"] for its in rule["backendRefs"]]
    for one, name, port in backends:
        service = release.service(name)
        found = (
            [] if service is None else [its for its in service["spec"]["ports"] if port in (its["name"], its["port"])]
        )
        if [its["targetPort"] for its in found] != ["http"]:
            yield f"{_label(one)}: {name}:{port} is not the Service's http"


# -- what pods say of themselves -------------------------------------------------------------------------------------


def _pods(release: _Release) -> Iterator[str]:
    accounts = {one["metadata"]["name"] for one in release.all("ServiceAccount")}
    for pod in release.pods:
        what = _label(pod.owner)
        if accounts and pod.template["spec"]["serviceAccountName"] not in accounts:
            yield f"{what}: there is no ServiceAccount {pod.template['spec']['serviceAccountName']}"
        for container in pod.containers:
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.get(name, {})
                asked = next((probe[how]["port"] for how in ("httpGet", "tcpSocket", "grpc") if how in probe), None)
                if asked is not None and pod.port(asked) is None:
                    yield f"{what}: {name} asks port {asked}, which is not there"
                if "httpGet" in probe and (probe["httpGet"]["scheme"] == "HTTPS") is not release.encrypted:
                    yield f"{what}: {name} asks by {probe['httpGet']['scheme']}"
            yield from (f"{what}: {fault}" for fault in _unknown_variables(container))
    for pod in release.component("service"):
        for name, port in _LISTENS.items():
            if pod.value(name) != str(pod.ports.get(port)):
                yield f"{_label(pod.owner)}: {name} is {pod.value(name)}, and port {port} is {pod.ports.get(port)}"


def _unknown_variables(container: Document) -> Iterator[str]:
    """Kubernetes leaves a $(NAME) as it is where the variable is not declared, or is declared further down."""
    known: set[str] = set()
    for one in container.get("env", ()):
        yield from (
            f"{one['name']} names $({name})" for name in _VARIABLE.findall(one.get("value", "")) if name not in known
        )
        known.add(one["name"])
    for word in (*container.get("command", ()), *container.get("args", ())):
        yield from (f"{word} names $({name})" for name in _VARIABLE.findall(word) if name not in known)


def _tests(release: _Release) -> Iterator[str]:
    """What is for `helm test` is a hook, what its pod mounts comes before it, and it asks this release."""
    weights: dict[str, int] = {}
    for one in release.documents:
        notes = one["metadata"].get("annotations", {})
        of_test = one["metadata"]["labels"].get(_COMPONENT) == "test"
        if of_test is not (notes.get("helm.sh/hook") == "test"):
            yield f"{_label(one)}: helm.sh/hook is {notes.get('helm.sh/hook')}"
        if of_test and "before-hook-creation" not in notes.get("helm.sh/hook-delete-policy", ""):
            yield f"{_label(one)}: a second `helm test` would find it there"
        if of_test:
            weights[one["kind"]] = int(notes.get("helm.sh/hook-weight", "0"))
    if weights and not weights["ConfigMap"] < weights["Pod"]:
        yield f"ConfigMap and Pod of `helm test` come by {weights}"
    for pod in release.component("test"):
        url = urlsplit(pod.value("TRY_URL") or "")
        if not _is(release.reached(url.netloc), "http"):
            yield f"{_label(pod.owner)}: TRY_URL {pod.value('TRY_URL')} is no REST of the service"
        if (url.scheme == "https") is not release.encrypted:
            yield f"{_label(pod.owner)}: TRY_URL {pod.value('TRY_URL')} is not as the service speaks"
        if not _is(release.reached(pod.value("TRY_GRPC") or ""), "grpc"):
            yield f"{_label(pod.owner)}: TRY_GRPC {pod.value('TRY_GRPC')} is no gRPC of the service"


def _traces(release: _Release) -> Iterator[str]:
    """Traces say of which pod they are, and get out."""
    for pod in release.component("service"):
        endpoint = pod.value("OTEL_EXPORTER_OTLP_ENDPOINT")
        if endpoint is None:
            continue
        what = _label(pod.owner)
        if pod.value("OTEL_SERVICE_NAME") != pod.owner["metadata"]["name"]:
            yield f"{what}: OTEL_SERVICE_NAME is {pod.value('OTEL_SERVICE_NAME')}"
        if pod.value("OTEL_RESOURCE_ATTRIBUTES") != f"k8s.namespace.name={NAMESPACE},k8s.pod.name=$(POD_NAME)":
            yield f"{what}: OTEL_RESOURCE_ATTRIBUTES is {pod.value('OTEL_RESOURCE_ATTRIBUTES')}"
        if "metadata.name" not in str(pod.environment.get("POD_NAME")):
            yield f"{what}: POD_NAME is not the pod's name"
        url = urlsplit(endpoint)
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        for policy in _of(release, pod):
            if not any(port in _numbers(rule) for rule in policy["spec"]["egress"]):
                yield f"{_label(policy)}: nothing goes out to {endpoint}"


# -- who may call whom -----------------------------------------------------------------------------------------------


def _of(release: _Release, pod: _Pod) -> list[Document]:
    return [one for one in release.all("NetworkPolicy") if _matches(one["spec"]["podSelector"], pod.labels)]


def _numbers(rule: Document) -> list[Port]:
    return [port["port"] for port in rule.get("ports", ())]


def _peers(rule: Document, side: str, pods: Iterable[_Pod]) -> Iterator[tuple[Document, list[_Pod]]]:
    """The peers of a rule that are pods of this namespace, and who they are."""
    for peer in rule.get(side, ()):
        if "podSelector" in peer and "namespaceSelector" not in peer:
            yield peer, [pod for pod in pods if _matches(peer["podSelector"], pod.labels)]


def _policies(release: _Release) -> Iterator[str]:
    for one in release.all("NetworkPolicy"):
        selected = release.selected(one["spec"]["podSelector"])
        if len(selected) != 1:
            yield f"{_label(one)} selects {[_label(pod.owner) for pod in selected]}"
        for rule in one["spec"]["ingress"]:
            for port in _numbers(rule):
                yield from (f"{_label(one)}: port {port} is not there" for pod in selected if pod.port(port) is None)
            yield from (
                f"{_label(one)}: nobody is {peer}" for peer, pods in _peers(rule, "from", release.pods) if not pods
            )
        for rule in one["spec"]["egress"]:
            for peer, pods in _peers(rule, "to", release.pods):
                if not any(pod.port(port) for pod in pods for port in _numbers(rule)):
                    yield f"{_label(one)}: port {_numbers(rule)} is not there at {peer}"


def _calls(release: _Release) -> Iterator[str]:
    """The test asks the service, and the service its own Redis: both ends let it."""
    wanted: list[tuple[_Pod, str]] = []
    for pod in release.component("test"):
        wanted += [(pod, urlsplit(pod.value("TRY_URL") or "").netloc), (pod, pod.value("TRY_GRPC") or "")]
    for pod in release.component("service"):
        store = pod.environment.get("UNSKEW_STORE", {}).get("valueFrom", {}).get("secretKeyRef")
        if store and release.component("redis"):
            url = base64.b64decode(release.secrets[store["name"]][store["key"]]).decode()
            address = urlsplit(url).netloc.rpartition("@")[2]
            wanted.append((pod, address))
            if release.reached(address) is None:
                yield f"{_label(pod.owner)}: {address} is no port of the Redis"
    for caller, address in wanted:
        found = release.reached(address)
        if found is not None and not (
            _lets(release, found[0], found, caller) and _lets(release, caller, found, found[0])
        ):
            yield f"{_label(caller.owner)} is not let through to {address}"


def _lets(release: _Release, whose: _Pod, at: tuple[_Pod, int], other: _Pod) -> bool:
    """Whether the policies of one end take a call at this port from, or to, the other. Without any everything goes."""
    side, peers = ("ingress", "from") if whose is at[0] else ("egress", "to")
    policies = _of(release, whose)
    return not policies or any(
        at[1] in [at[0].port(port) for port in _numbers(rule)]
        and (peers not in rule or any(pods for _, pods in _peers(rule, peers, [other])))
        for policy in policies
        for rule in policy["spec"][side]
    )


def _keys(release: _Release) -> Iterator[str]:
    """Keys that are asked for of Secrets that the chart makes."""
    asked: list[tuple[Document, str, str]] = []
    for pod in release.pods:
        sources = [one["valueFrom"]["secretKeyRef"] for one in pod.environment.values() if "secretKeyRef" in str(one)]
        asked += [(pod.owner, its["name"], its["key"]) for its in sources]
        volumes = [one["secret"] for one in pod.template["spec"]["volumes"] if "secret" in one]
        asked += [(pod.owner, its["secretName"], item["key"]) for its in volumes for item in its.get("items", ())]
    for one in release.all("ServiceMonitor"):
        given = [
            endpoint["authorization"]["credentials"]
            for endpoint in one["spec"]["endpoints"]
            if "authorization" in endpoint
        ]
        asked += [(one, its["name"], its["key"]) for its in given]
    made = release.secrets
    yield from (
        f"{_label(one)}: {name} has no {key}" for one, name, key in asked if name in made and key not in made[name]
    )

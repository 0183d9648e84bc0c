"""What a cluster would say of a manifest: Kubernetes' own schemas of one version, strict, and those of foreign kinds
(``crds``). A schema is loaded once."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from referencing import Registry, Resource

__all__ = ["OLDEST", "faults", "versions"]

OLDEST = "1.28"  # also in Chart.yaml, as kubeVersion
_FOREIGN = {
    "monitoring.coreos.com/v1": {"ServiceMonitor", "PrometheusRule"},
    "keda.sh/v1alpha1": {"ScaledObject"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute"},
}
Document = dict[str, Any]


def versions() -> list[str]:
    """From the oldest that the chart takes to the newest at hand, by the names of the schemas' folders: every worker
    that collects tests asks, and only who validates should import jsonschema, which takes 2.5 s."""
    spec = find_spec("kubernetes_validate")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folders = (Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema").iterdir()
    found = {tuple(map(int, at.groups())) for at in (re.match(r"v(\d+)\.(\d+)\.", one.name) for one in folders) if at}
    named = [f"{major}.{minor}" for major, minor in sorted(found)]
    return named[named.index(OLDEST) :]


def faults(document: Document, version: str) -> list[str]:
    """All that is wrong, each with its place."""
    validator = _validator(document["apiVersion"], document["kind"], version)
    found = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
    where = f"{document['kind']} {document['metadata']['name']} on {version}"
    return [f"{where}: {'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


def _draft(schema: Document, **options: Any) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema, **options)


def _validator(api: str, kind: str, version: str) -> Any:
    return _foreign(kind) if kind in _FOREIGN.get(api, ()) else _native(api, kind, version)


def _contents(path: str, version: str) -> Any:
    from kubernetes_validate.utils import schema_contents

    return schema_contents(path, version)


@cache
def _native(api: str, kind: str, version: str) -> Any:
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)  # networking.k8s.io/v1 is networking-v1 there
    schema = _contents(f"{folder}/{kind.lower()}-{group}.json", version)
    return _draft(schema, registry=_definitions(folder, version))


@cache
def _definitions(folder: str, version: str) -> Any:
    found: Registry[Any] = Resource.from_contents(_contents(f"{folder}/_definitions.json", version)) @ Registry()
    return found


@cache
def _foreign(kind: str) -> Any:
    text = (Path(__file__).with_name("crds") / f"{kind.lower()}.json").read_text()
    schema = json.loads(text)
    # An API server drops what it does not know, without a word; here it is a fault.
    return _draft(_closed(schema) | {"properties": _with_metadata(schema)})


def _with_metadata(schema: Document) -> Document:
    """The object's metadata is Kubernetes' own, and open there."""
    return {name: _closed(part) for name, part in schema["properties"].items()} | {"metadata": {"type": "object"}}


def _closed(schema: Any) -> Any:
    """The same, nothing allowed beyond the properties that are named."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found["properties"] = {name: _closed(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.setdefault("additionalProperties", False)
    return found

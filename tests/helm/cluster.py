"""As much of an API server as helm needs to install, upgrade, roll back and uninstall.

Objects are made, changed, listed by label and deleted, helm's own releases among them; a patch is merged, lists whole.
Nothing acts on them: no pod starts, nothing is validated (``schemas.py`` does that), nobody waits.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.helm.charts import CHART, NAMESPACE, Document, helm

__all__ = ["Cluster", "cluster"]

_GROUPS = {
    "v1": {"secrets": "Secret", "services": "Service", "serviceaccounts": "ServiceAccount"},
    "apps/v1": {"deployments": "Deployment"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}
_PLACE = re.compile(r"/(?:api|apis)/(?P<api>v1|[^/]+/v1)/namespaces/[^/]+/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?")


class Cluster:
    """What is there, by kind and name; and what was done to it, as method, kind and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.done: list[tuple[str, str, str]] = []
        self.address = ""

    def helm(self, verb: str, *arguments: str | Path, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
        """A verb of helm's that speaks to this cluster."""
        return helm(verb, *arguments, "--kube-apiserver", self.address, "--namespace", NAMESPACE, chart=chart)

    # -- what helm asks ------------------------------------------------------------------------------------------

    def answer(self, method: str, url: str, sent: Any) -> tuple[int, object]:
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        if (known := _discovery(path)) is not None:
            return 200, known
        place = _PLACE.fullmatch(path)
        if place is None:
            return _no(404, "NotFound")
        kind, name = place["kind"], unquote(place["name"] or "")
        if method == "GET" and not name:
            wanted = dict(pair.split("=") for pair in query.get("labelSelector", [""])[0].split(",") if pair)
            return 200, self._listed(place["api"], kind, wanted)
        return self._one(method, kind, name or sent["metadata"]["name"], sent)

    def _listed(self, api: str, kind: str, wanted: dict[str, str]) -> Document:
        found = [one for (its, _), one in self.objects.items() if its == kind]
        chosen = [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]
        return {"kind": f"{_GROUPS[api][kind]}List", "apiVersion": api, "metadata": {}, "items": chosen}

    def _one(self, method: str, kind: str, name: str, sent: Any) -> tuple[int, object]:
        there = self.objects.get((kind, name))
        if method == "POST" and there is not None:
            return _no(409, "AlreadyExists")
        if method != "POST" and there is None:
            return _no(404, "NotFound")
        if method != "GET":
            self.done.append((method, kind, name))
        if method == "DELETE":
            return 200, self.objects.pop((kind, name))
        if method in ("POST", "PUT"):
            self.objects[kind, name] = sent
        elif method == "PATCH":
            self.objects[kind, name] = _merged(there, sent)
        return 201 if method == "POST" else 200, self.objects[kind, name]


def _merged(there: Any, patch: Any) -> Any:
    if not (isinstance(there, dict) and isinstance(patch, dict)):
        return patch
    found = dict(there)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif not key.startswith("$"):  # how lists would be merged
            found[key] = _merged(found.get(key), value)
    return found


def _no(code: int, reason: str) -> tuple[int, object]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}


def _discovery(path: str) -> object:
    """What there is in this cluster, which helm asks first; None for any other path."""
    if path == "/version":
        return {"major": "1", "minor": "30", "gitVersion": "v1.30.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    named = [api for api in _GROUPS if "/" in api]
    if path == "/apis":
        groups = [
            {"name": api.partition("/")[0], "versions": [version], "preferredVersion": version}
            for api in named
            for version in [{"groupVersion": api, "version": "v1"}]
        ]
        return {"kind": "APIGroupList", "groups": groups}
    for api, kinds in _GROUPS.items():
        if path == f"/{'apis' if '/' in api else 'api'}/{api}":
            verbs = ["get", "list", "create", "update", "patch", "delete"]
            resources = [
                {"name": name, "kind": kind, "namespaced": True, "verbs": verbs} for name, kind in kinds.items()
            ]
            return {"kind": "APIResourceList", "groupVersion": api, "resources": resources}
    return _openapi(path)


def _openapi(path: str) -> object:
    """That the server itself says which fields are wrong: helm then leaves that to it."""
    if path == "/openapi/v3":
        return {"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}}
    if path == "/openapi/v3/api/v1":
        known = {"group": "", "version": "v1", "kind": "Secret"}
        patch = {"x-kubernetes-group-version-kind": known, "parameters": [{"name": "fieldValidation", "in": "query"}]}
        return {"openapi": "3.0.0", "paths": {"/api/v1/namespaces/{namespace}/secrets/{name}": {"patch": patch}}}
    return None


def _read(sent: bytes) -> Any:
    """JSON; or helm's own Secrets, its releases, which come as Kubernetes' protobuf."""
    if not sent.startswith(b"k8s\0"):
        return json.loads(sent) if sent else None
    secret = _fields(_fields(sent[4:])[2][0])
    metadata = _fields(secret[1][0])
    labels = {key.decode(): value.decode() for key, value in map(_entry, metadata.get(11, ()))}
    data = {key.decode(): base64.b64encode(value).decode() for key, value in map(_entry, secret.get(2, ()))}
    name, kind = metadata[1][0].decode(), secret[3][0].decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "labels": labels},
        "data": data,
    }


def _entry(message: bytes) -> tuple[bytes, bytes]:
    """One of a map."""
    found = _fields(message)
    return found[1][0], found[2][0]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where what follows begins."""
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a message that have a length: texts, bytes and messages."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(message[at : at + value])
            at += value
    return found


@contextmanager
def cluster() -> Iterator[Cluster]:
    """One that nothing is in yet."""
    found, lock = Cluster(), threading.Lock()

    class Api(BaseHTTPRequestHandler):
        def _do(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            with lock:
                code, said = found.answer(self.command, self.path, None if self.command == "DELETE" else _read(sent))
            body = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815  # http.server's names

        def log_message(self, *said: object) -> None:
            """Nothing: what matters is what helm makes of it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""What an upgrade finds in the cluster stays: generated tokens and the trial Redis' password.

The chart asks the API for them (`lookup`), so here is as much of an API as that takes.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tests.helm.charts import NAMESPACE, VALUES, Document, helm

pytestmark = pytest.mark.xdist_group("helm")
_RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [{"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get", "list"]}],
}


@contextmanager
def cluster(*there: Document) -> Iterator[str]:
    """An API server that knows these Secrets; its address."""
    answers: dict[str, object] = {
        "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/api/v1": _RESOURCES,
    }
    for one in there:
        answers[f"/api/v1/namespaces/{NAMESPACE}/secrets/{one['metadata']['name']}"] = one

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            none = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(none if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            """Nothing: what matters is what helm makes of it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def made(*there: Document) -> dict[str, Document]:
    """The Secrets that a release with two replicas on a trial Redis has, in a cluster that has these."""
    values = VALUES / "trial-redis.yaml"
    with cluster(*there) as address:
        done = helm(
            *("template", "--dry-run=server", "--kube-apiserver", address, "--namespace", NAMESPACE, "--values", values)
        )
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return {one["metadata"]["name"]: one for one in documents if one and one["kind"] == "Secret"}


def test_generated_secrets_are_kept_over_upgrades() -> None:
    """Jobs keep their tokens; Redis and the service keep the password they agreed on."""
    first = made()
    assert set(first) == {"unskew-auth", "unskew-redis"}
    assert {name: one["data"] for name, one in made(*first.values()).items()} == {
        name: one["data"] for name, one in first.items()
    }


def test_a_token_that_is_taken_away_is_made_anew() -> None:
    """The way to rotate one: delete its key and upgrade. The other stays."""
    first = made()["unskew-auth"]
    kept = {**first, "data": {"token": first["data"]["token"], "tokens": first["data"]["tokens"]}}
    then = made(kept)["unskew-auth"]["data"]
    assert then["token"] == first["data"]["token"]
    assert then["metrics-token"] != first["data"]["metrics-token"]
    digests = [line.split()[0] for line in base64.b64decode(then["tokens"]).decode().splitlines()]
    assert len(set(digests)) == 2
    assert base64.b64decode(then["tokens"]) != base64.b64decode(first["data"]["tokens"])

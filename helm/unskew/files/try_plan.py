"""What `helm test` runs: is the service there, and does it make a plan?

A stream of its own is put, filled, planned, read back and deleted, over REST; gRPC answers for its health. It exits
with 1 and one line where something is not as it should be. TRY_URL and TRY_GRPC say where; TRY_TOKEN, TRY_CA, TRY_CERT
and TRY_KEY how; without TRY_CA the authorities of the system are trusted. It needs what the image has anyway.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

STREAM = "helm-test"
SERVICE = "unskew.v1.PartitionerService"
PATIENCE = 60.0  # seconds for a pod that has just been made ready to be in the Service
HOT = 42  # the key that has most of the rows


class WrongError(Exception):
    """What was found, and what should be."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def authority() -> str | None:
    """The file of TRY_CA; None where none is given."""
    path = os.environ.get("TRY_CA")
    if path and not Path(path).is_file():
        raise WrongError(
            "the Secret of tls.existingSecret has no key as tls.caKey says: add it, or set tls.caKey to ''"
        )
    return path or None


class Rest:
    """Requests with JSON, and the credentials of the environment."""

    def __init__(self) -> None:
        self.base = os.environ["TRY_URL"]
        context = ssl.create_default_context(cafile=authority())
        if os.environ.get("TRY_CERT"):
            context.load_cert_chain(os.environ["TRY_CERT"], os.environ["TRY_KEY"])
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        self.opener = urllib.request.build_opener(*handlers)
        token = os.environ.get("TRY_TOKEN")
        self.headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}

    def __call__(self, method: str, path: str, body: object = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self.headers, method=method)
        try:
            with self.opener.open(request, timeout=10) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as refused:
            raise WrongError(
                f"{method} {path}: {refused.code} {refused.read().decode(errors='replace')[:500]}"
            ) from None


def until(what: str, ask: Callable[[], bool]) -> None:
    """Until it is so; the last trouble is told where it never is."""
    end, trouble = time.monotonic() + PATIENCE, "no"
    while time.monotonic() < end:
        try:
            if ask():
                say(f"ok   {what}")
                return
        except (WrongError, OSError, grpc.RpcError) as why:
            trouble = str(why)
        time.sleep(0.5)  # a pod that is not there yet is not there in a moment either
    raise WrongError(f"{what}: not within {PATIENCE:.0f} s; the last answer was: {trouble}")


def healthy() -> bool:
    """gRPC's own health check, through the headless Service."""

    def read(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    target = os.environ["TRY_GRPC"]
    if os.environ["TRY_URL"].startswith("https:"):
        # gRPC has a list of its own, which would not be what REST goes by.
        trusted = read(authority() or ssl.get_default_verify_paths().cafile)
        key, chain = read(os.environ.get("TRY_KEY")), read(os.environ.get("TRY_CERT"))
        credentials = grpc.ssl_channel_credentials(trusted, key, chain)
        channel = grpc.secure_channel(target, credentials)
    else:
        channel = grpc.insecure_channel(target)
    with channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def plan(rest: Rest) -> None:
    """A key with 90 % of the rows must be split, and the plan must be the one that is read back."""
    path = f"/v1/streams/{STREAM}"
    rest("PUT", path, {"partitions": 4, "policy": "balanced"})
    try:
        counts = {"hashes": [str(HOT), "7", "8"], "counts": [900, 60, 40]}
        rest("POST", f"{path}/histograms", {"source": "helm-test", "batch": 1, **counts})
        built = rest("POST", f"{path}/plans", {"batch": 2})
        latest = rest("GET", f"{path}/plans/latest")
        told = rest("GET", f"{path}/explain?hash={HOT}")
        if built["version"] != latest["version"]:
            raise WrongError(f"built plan {built['version']}, and read back {latest['version']}")
        if len(told["fragments"]) < 2:
            raise WrongError(f"plan {latest['version']} leaves the hot key in one partition: {told['reason']}")
        say(f"ok   plan {latest['version']}: key {HOT} goes to {len(told['fragments'])} partitions")
    finally:
        rest("DELETE", path)


def main() -> int:
    try:
        rest = Rest()
        until("alive", lambda: rest("GET", "/healthz") is not None)
        until("ready", lambda: rest("GET", "/readyz") is not None)
        until("gRPC serves", healthy)
        plan(rest)
    except (WrongError, OSError, KeyError, ValueError) as why:
        say(f"FAILED {type(why).__name__}: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether the service in this container is alive: exit code 0 or 1, for HEALTHCHECK of container engines.

Kubernetes probes over HTTP itself and does not need this. It is configured by the environment alone, as a container is,
and imports only Python's own library, because it runs every half a minute. ``/healthz`` needs no token.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from collections.abc import Mapping

__all__ = ["alive"]

_SECONDS = 3.0
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def alive(environment: Mapping[str, str]) -> str:
    """What is wrong; empty where nothing is."""
    host = environment.get("UNSKEW_HOST", "").strip("[]")
    host, port = _ANY.get(host, host), int(environment.get("UNSKEW_HTTP_PORT") or 8080)
    try:
        if environment.get("UNSKEW_TLS_CLIENT_CA"):  # it answers only with a client certificate: check that it listens
            socket.create_connection((host, port), _SECONDS).close()
            return ""
        status = _status(host, port, tls=bool(environment.get("UNSKEW_TLS_CERT")))
    except (OSError, http.client.HTTPException) as why:
        return f"{host}:{port} does not answer: {str(why) or type(why).__name__}"
    return "" if status == http.client.OK else f"{host}:{port}/healthz answers {status}"


def _status(host: str, port: int, *, tls: bool) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if tls:
        # Our own process on our own loopback: its certificate names the service, not 127.0.0.1.
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=unchecked)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    trouble = alive(os.environ)
    if trouble:
        sys.exit(f"unskew: {trouble}")

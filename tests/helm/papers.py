"""What somebody else puts into a cluster: certificates, tokens, the URL of a Redis."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

__all__ = ["TOKEN", "authority", "foreign_secrets", "pair"]

TOKEN = b"an admin's token for tests"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SERVICE = "DNS:unskew.plans.svc,DNS:unskew-headless.plans.svc,DNS:localhost,IP:127.0.0.1"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def authority(folder: Path) -> bytes:
    _openssl(folder, "req", "-x509", *_KEY, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    return (folder / "ca.crt").read_bytes()


def pair(folder: Path, name: str, san: str) -> dict[str, bytes]:
    """A certificate of the authority in this folder, as a Secret of type kubernetes.io/tls."""
    _openssl(folder, "req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "san").write_text(f"subjectAltName={san}\n")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    return {"tls.crt": (folder / f"{name}.crt").read_bytes(), "tls.key": (folder / f"{name}.key").read_bytes()}


def foreign_secrets(folder: Path) -> dict[str, dict[str, bytes]]:
    """Every Secret that the files of values name and the chart does not make."""
    ca = authority(folder)
    server = pair(folder, "server", _SERVICE)
    client = pair(folder, "client", "URI:spiffe://plans/helm-test")
    digest = hashlib.sha256(TOKEN).hexdigest()
    tokens = f"{digest} test admin helm-test\nsan=spiffe://plans/helm-test test admin helm-test\n"
    return {
        "unskew-tls": {**server, "ca.crt": ca},
        "unskew-public": server,
        "corporate": {"server.pem": server["tls.crt"], "server.key": server["tls.key"], "ca.pem": ca},
        "client-ca": {"ca.crt": ca},
        "test-client": client,
        "unskew-tokens": {"tokens": tokens.encode()},
        "unskew-admin": {"token": TOKEN},
        "unskew-store": {"uri": b"redis://store.data:6379/0", "url": b"rediss://store.data:6379/0"},
        "redis-tls": {**client, "ca.crt": ca},
    }

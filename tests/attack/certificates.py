"""Certificates as an attacker would like to have them, made with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["authority", "certificate"]

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CA = """[ca]
default_ca = own
[own]
dir = .
database = index
new_certs_dir = .
serial = serial
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def authority(folder: Path, name: str = "ca") -> Path:
    """Its certificate; the key is beside it."""
    folder.mkdir(exist_ok=True)
    _openssl(folder, "req", "-x509", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    (folder / "index").touch()
    (folder / "serial").write_text("01\n")
    (folder / "ca.cnf").write_text(_CA)
    return folder / f"{name}.pem"


def certificate(
    folder: Path, name: str, san: str = "DNS:localhost,IP:127.0.0.1", dates: tuple[str, str] = ("20200101", "20500101")
) -> tuple[Path, Path]:
    """A certificate of the authority in this folder, valid between these days, and its key."""
    _openssl(folder, "req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "san").write_text(f"subjectAltName={san}\n")
    begin, end = (f"{date}000000Z" for date in dates)
    of_ca = ("ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-extfile", "san")
    _openssl(folder, *of_ca, "-startdate", begin, "-enddate", end, "-in", f"{name}.csr", "-out", f"{name}.pem")
    return folder / f"{name}.pem", folder / f"{name}.key"

"""Runs a rendered container as a process, as a kubelet would: its command, its environment with values from Secrets,
its volumes as files, its probes, SIGTERM.

What is not as it is rendered: mounts are folders below one of the test's, the address is loopback, ports are free ones.
A pod has its own file system, network and user; a process of a test has not. So who may read a mounted file is worked
out (``unreadable``), from its mode, the pod's groups and the image's user.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.helm.charts import ROOT, Document

__all__ = ["Container", "FailedMountError", "Started", "entrypoint", "image_user", "running"]

Secrets = Mapping[str, Mapping[str, bytes]]
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_PROGRAMS = {"unskew": ("-m", "unskew.cli.entry"), "python": ()}


def entrypoint() -> list[str]:
    """Of the image, as the Dockerfile has it: what runs where a container names no command."""
    found = re.findall(r"^ENTRYPOINT (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(found) == 1
    return list(json.loads(found[0]))


def image_user() -> tuple[int, int]:
    """User and group of the service's image."""
    found = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(found) == 1
    return int(found[0][0]), int(found[0][1])


class FailedMountError(Exception):
    """What a kubelet would say again and again, while the pod does not start."""


@dataclass(frozen=True)
class File:
    """One of a volume, as the kubelet leaves it: root's, of this group."""

    content: bytes
    mode: int
    group: int


@dataclass(frozen=True)
class Container:
    """One container of a pod, with what the cluster knows, its mounts below ``folder``."""

    pod: Document
    secrets: Secrets
    configs: Mapping[str, Mapping[str, str]]
    folder: Path

    @property
    def spec(self) -> Document:
        (only,) = self.pod["spec"]["containers"]
        return dict(only)

    def mount(self) -> None:
        """Write what its volumes have."""
        for mount in self.spec["volumeMounts"]:
            self.local(mount["mountPath"]).mkdir(parents=True, exist_ok=True)
        for path, file in self._files().items():
            self.local(path).unlink(missing_ok=True)
            self.local(path).write_bytes(file.content)
            self.local(path).chmod(file.mode)

    def unreadable(self) -> list[str]:
        """Mounted files that the container's user could not read."""
        user, groups = self._who()
        found = []
        for path, file in self._files().items():
            allowed = 0o040 if file.group in groups else 0o004
            found += [] if user == 0 or file.mode & allowed else [path]
        return found

    def _who(self) -> tuple[int, set[int]]:
        """The user, and all groups that it is in. A user whom the image does not know is in root's group."""
        pod = self.pod["spec"].get("securityContext", {})
        context = {**pod, **self.spec.get("securityContext", {})}
        ours, own = image_user()
        user = context.get("runAsUser", ours)
        group = context.get("runAsGroup", own if user == ours else 0)
        return user, {group, *pod.get("supplementalGroups", ()), *([pod["fsGroup"]] if "fsGroup" in pod else ())}

    def _files(self) -> dict[str, File]:
        """What its volumes have, by the path in the container."""
        volumes = {volume["name"]: volume for volume in self.pod["spec"]["volumes"]}
        return {
            f"{mount['mountPath']}/{name}": file
            for mount in self.spec["volumeMounts"]
            for name, file in self._content(volumes[mount["name"]]).items()
        }

    def _content(self, volume: Document) -> Mapping[str, File]:
        if "emptyDir" in volume:
            return {}
        kind, name, there = (
            ("secret", "secretName", self.secrets) if "secret" in volume else ("configMap", "name", self._configs)
        )
        source: Document = volume[kind]
        keys = there[source[name]]
        items = source.get("items") or [{"key": key, "path": key} for key in keys]
        missing = [item["key"] for item in items if item["key"] not in keys]
        if missing and not source.get("optional"):
            raise FailedMountError(f"references non-existent {kind} key: {', '.join(missing)}")
        mode = source.get("defaultMode", 0o644)
        return {
            item["path"]: self._file(keys[item["key"]], item.get("mode", mode)) for item in items if item["key"] in keys
        }

    @property
    def _configs(self) -> Secrets:
        return {name: {key: text.encode() for key, text in texts.items()} for name, texts in self.configs.items()}

    def _file(self, content: bytes, mode: int) -> File:
        """With an fsGroup the file is that group's, which may read it."""
        group = self.pod["spec"].get("securityContext", {}).get("fsGroup")
        return File(content, mode, 0) if group is None else File(content, mode | 0o440, group)

    def local(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def placed(self, text: str) -> str:
        """A value in which paths of mounts are those of the test."""
        for mount in self.spec["volumeMounts"]:
            if text == mount["mountPath"] or mount["mountPath"] + "/" in text:
                text = text.replace(mount["mountPath"], str(self.local(mount["mountPath"])), 1)
        return text

    def environment(self) -> dict[str, str]:
        """As Kubernetes would put it together: in order, ``$(NAME)`` from those before."""
        found: dict[str, str] = {}
        for one in self.spec.get("env", ()):
            text = one.get("value") if "value" in one else self._from(one["valueFrom"])
            found[one["name"]] = self.placed(_expanded(str(text), found))
        return found

    def _from(self, source: Document) -> str:
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return self.secrets[reference["name"]][reference["key"]].decode()
        return {"metadata.name": "unskew-0", "spec.nodeName": "node-0"}[source["fieldRef"]["fieldPath"]]

    def command(self, environment: Mapping[str, str]) -> list[str]:
        words = [*self.spec.get("command", entrypoint()), *self.spec.get("args", ())]
        return [self.placed(_expanded(word, environment)) for word in words]


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: known.get(found[1], found[0]), text)


def python(command: list[str]) -> list[str]:
    """The same with this Python: the image has its programs on PATH."""
    return [sys.executable, "-W", "error", *_PROGRAMS[command[0]], *command[1:]]


def bare() -> dict[str, str]:
    """What a process needs to find this Python's packages. A container has no more of this machine."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path}


@dataclass
class Started:
    """The service's container while it runs."""

    container: Container
    process: subprocess.Popen[str]
    ports: Mapping[str, int]
    log: Path = field(repr=False)

    def probe(self, name: str) -> bool:
        """As a kubelet asks: by its address and port, whatever the certificate says; 200 to 399 is a yes."""
        probe = self.container.spec[name]
        if "tcpSocket" in probe:
            with socket.create_connection(("127.0.0.1", self.ports[probe["tcpSocket"]["port"]]), 60.0):
                return True
        get = probe["httpGet"]
        url = f"{get['scheme'].lower()}://127.0.0.1:{self.ports[get['port']]}{get['path']}"
        with httpx.Client(verify=_unchecked(), trust_env=False, timeout=60.0) as client:
            return 200 <= client.get(url).status_code < 400

    def leave(self) -> float:
        """SIGTERM; the seconds until it is gone, with 0, within the time that the pod has."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(self.container.pod["spec"]["terminationGracePeriodSeconds"])
        assert code == 0, self.log.read_text()
        return time.monotonic() - started


def _unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextmanager
def running(container: Container, **changed: str) -> Iterator[Started]:
    """The service's container, once its ports are open. ``changed``: of its environment, beyond address and ports."""
    container.mount()
    told, log = container.folder / "ports.json", container.folder / "log"
    free = {f"UNSKEW_{name}_PORT": "0" for name in ("HTTP", "GRPC", "METRICS")}
    given = container.environment()
    environment = {**bare(), **given, **free, **changed, "UNSKEW_HOST": "127.0.0.1", "UNSKEW_PORTS_FILE": str(told)}
    with (
        log.open("w") as written,
        subprocess.Popen(
            python(container.command(given)),
            cwd=container.folder,
            env=environment,
            stdout=written,
            stderr=written,
            text=True,
        ) as process,
    ):
        try:
            end = time.monotonic() + 120
            while not told.exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, "no ports after 120 s"
                time.sleep(0.02)  # its start has no other sign
            yield Started(container, process, _rendered(json.loads(told.read_text())), log)
        finally:
            if process.poll() is None:
                process.kill()


def _rendered(told: Mapping[str, Any]) -> dict[str, int]:
    """By the names that the container's ports have."""
    return {name: told[name] for name in ("http", "grpc", "metrics")}

"""Does what a Dockerfile says in mounts of its own: this machine's files are the base, each stage is a layer over them.

A stage is an overlay whose lower side is `/` and whose upper side, in memory, is what its steps add. Steps run in a
chroot there, under the paths, users and shell that an engine would take. What stands in for the base image is this
machine with its own Python, and no layer is packed: both need an engine and a registry.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.packaging.dockerfile import Dockerfile, Stage, Step, argument, expanded, ignored, pairs, words

__all__ = ["PYTHON", "ROOT", "Rootfs", "unable"]

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("unshare", "nsenter", "chroot", "setpriv", "mount")
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = Path(sys.base_prefix, "bin")  # as in the image, python3 is on PATH for everybody
TRIAL = (
    "mount -t tmpfs none {0} && mkdir {0}/u {0}/w {0}/r"
    " && mount -t overlay none -o lowerdir=/,upperdir={0}/u,workdir={0}/w {0}/r"
)


def unable(folder: Path) -> str:
    """Why this machine cannot do it; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the steps of an image run in mounts of their own, which needs Linux and root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (util-linux and coreutils have them)"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", TRIAL.format(folder)], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"no overlay can be mounted here: {done.stderr.strip()}"


class Rootfs:
    """Stages built in one mount namespace, which is gone with all of them when this is closed."""

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, str],
        machine: Mapping[str, str],
        shown: Mapping[str, Path],
        lacking: Mapping[str, str],
    ) -> None:
        """``given`` are build arguments. ``machine`` is in the environment of each step, as an engine passes on the
        settings of a proxy. The checkout is hidden from the steps; folders ``shown`` are mounted where they say.
        ``lacking`` is done before a stage's own steps: what its base has, and this machine has not."""
        self._folder, self._given, self._machine, self._shown = folder, given, machine, shown
        self._lacking = lacking
        self.environments: dict[str, dict[str, str]] = {}
        # The namespace lives as long as this process, which ends with its standard input.
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {folder} && echo up && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"

    def close(self) -> None:
        self._holder.communicate()

    def root(self, stage: str) -> Path:
        """The file system of this stage, as it is seen from outside."""
        return self._seen(f"{stage}/root")

    def layer(self, stage: str) -> Path:
        """What the steps of this stage added to the base."""
        return self._seen(f"{stage}/upper")

    def _seen(self, name: str) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self._folder}/{name}")

    # -- building ------------------------------------------------------------------------------------------------

    def build(self, dockerfile: Dockerfile, target: str) -> None:
        """Do the steps of this stage, after those of the stages that it copies from."""
        stage = dockerfile.stages[target]
        defaults = {name: default for name, default in dockerfile.arguments.items() if default is not None}
        given = {**defaults, **self._given}
        base = expanded(stage.base, given)
        assert "@sha256:" in base, f"{target} is built from {base}, which has no digest"
        for step in stage.steps:
            source = _from(step)
            if source and source not in self.environments:
                self.build(dockerfile, source)
        self._mount(target)
        if target in self._lacking:
            self._run(target, "/", self._lacking[target], {"PATH": SYSTEM})
        self._steps(stage, given)

    def _steps(self, stage: Stage, given: Mapping[str, str]) -> None:
        arguments: dict[str, str] = {}
        environment, where = {"PATH": f"{PYTHON}:{SYSTEM}"}, "/"
        for step in stage.steps:
            if step.name == "ARG":
                name, default = argument(step.rest)
                arguments[name] = given.get(name, default or "")
            elif step.name == "ENV":
                environment |= pairs(step.rest, {**arguments, **environment})
            elif step.name == "WORKDIR":
                where = step.rest
                self._under(stage.name, where).mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                self._copy(stage.name, where, step)
            elif step.name == "RUN":
                self._run(stage.name, where, step.rest, {**self._machine, **arguments, **environment})
        self.environments[stage.name] = environment

    def _mount(self, stage: str) -> None:
        at = f"{self._folder}/{stage}"
        lines = [
            f"mkdir -p {at}/upper {at}/work {at}/root",
            f"mount -t overlay none -o lowerdir=/,upperdir={at}/upper,workdir={at}/work {at}/root",
            f"mount --rbind /dev {at}/root/dev",
            f"mount -t proc none {at}/root/proc",
            f"mount -t tmpfs none {at}/root{ROOT}",
            # This machine's own folders may be for root alone.
            *(f"chmod o+rx {at}/root{folder}" for folder in (*PYTHON.parents, *ROOT.parents)),
        ]
        self._inside("sh", "-ec", "\n".join([*lines, *self._showing(f"{at}/root", "/")]))

    def _showing(self, root: str, below: str) -> list[str]:
        shown = {where: folder for where, folder in self._shown.items() if where.startswith(below)}
        return [
            line
            for where, folder in shown.items()
            for line in (f"mkdir -p {root}{where}", f"mount --bind -o ro {folder} {root}{where}")
        ]

    def _copy(self, stage: str, where: str, step: Step) -> None:
        source = _from(step)
        *names, to = (word for word in step.rest.split() if not word.startswith("--"))
        target = self._under(stage, to if to.startswith("/") else f"{where}/{to}")
        for name in names:
            origin = self._under(source, name) if source else _sent(name)
            if origin.is_dir():
                shutil.copytree(origin, target, symlinks=True, dirs_exist_ok=True, ignore=None if source else _never)
            else:
                target.mkdir(parents=True, exist_ok=True) if to.endswith("/") else None
                shutil.copy2(origin, target)

    def _run(self, stage: str, where: str, command: str, environment: Mapping[str, str]) -> None:
        told = [f"{name}={value}" for name, value in environment.items()]
        shell = ["env", "-i", f"--chdir={where}", *told, "/bin/sh", "-c", command]
        self._inside("chroot", f"{self._folder}/{stage}/root", *shell)

    def _under(self, stage: str, path: str) -> Path:
        return self.root(stage) / path.lstrip("/")

    def _inside(self, *command: str) -> str:
        done = subprocess.run([*self._enter(), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def _enter(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]

    # -- running -------------------------------------------------------------------------------------------------

    def locked(self, stage: str) -> None:
        """From now on as in a pod: the root read-only, /tmp empty and the only place that can be written to."""
        root = f"{self._folder}/{stage}/root"
        # A checkout may lie in /tmp, and what is shown of it with it.
        lines = [f"mount -t tmpfs -o mode=1777 none {root}/tmp", *self._showing(root, "/tmp/")]
        self._inside("sh", "-ec", "\n".join([*lines, f"mount -o remount,ro {root}"]))

    def command(self, stage: Stage, arguments: Sequence[str], given: Mapping[str, str]) -> list[str]:
        """This command as a process of the image: its user, environment and root, no capability, none to be had."""
        user, _, group = stage.last("USER").partition(":")
        group = group or self._group(stage.name, user)
        environment = {**self.environments[stage.name], **given}
        less = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--clear-groups"]
        return [
            *(*self._enter(), "chroot", f"{self._folder}/{stage.name}/root"),
            *("setpriv", f"--reuid={user}", f"--regid={group}", *less),
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items()), *arguments),
        ]

    def _group(self, stage: str, user: str) -> str:
        """Whose group an image does not say: that of its passwd, and root's for a user who is not in it."""
        users = [line.split(":") for line in self._under(stage, "/etc/passwd").read_text().splitlines()]
        return next((group for _, _, number, group, *_ in users if number == user), "0")

    @contextmanager
    def container(self, stage: Stage, log: Path, **given: str) -> Iterator[subprocess.Popen[str]]:
        """The image run with its own entrypoint and command; ended by its pid whatever happens."""
        arguments = [*words(stage.last("ENTRYPOINT")), *words(stage.last("CMD"))]
        with (
            log.open("w") as out,
            subprocess.Popen(self.command(stage, arguments, given), stdout=out, stderr=out, text=True) as run,
        ):
            try:
                yield run
            finally:
                if run.poll() is None:
                    run.kill()


def _from(step: Step) -> str:
    """The stage that a COPY takes from; empty for the context."""
    if step.name != "COPY":
        return ""
    options = [word for word in step.rest.split() if word.startswith("--")]
    assert all(option.startswith("--from=") for option in options), options
    return options[0].partition("=")[2] if options else ""


def _sent(name: str) -> Path:
    """A file or folder of the context, if `.dockerignore` lets it be sent."""
    kept, _ = ignored(ROOT / ".dockerignore")
    assert {name.rstrip("/"), name.partition("/")[0]} & set(kept), f"COPY {name}: .dockerignore keeps it away"
    return ROOT / name


def _never(_folder: str, names: list[str]) -> set[str]:
    _, patterns = ignored(ROOT / ".dockerignore")
    return {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}

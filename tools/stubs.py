"""Generate the committed protobuf stubs from proto/**/*.proto, or `--check` that they are what is committed.

Made with the oldest grpcio-tools supported (pinned in constraints.txt), so that every newer protobuf runtime
can load them. A service's gRPC stub gets its types, which protoc does not write, from mypy-protobuf. A file that
protoc would not produce any more (its .proto is gone) counts as a difference too.
"""

from __future__ import annotations

import difflib
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "proto"
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
# A service gets gRPC stubs too; a file of messages only would get an empty one.
SERVICE = re.compile(r"^\s*service\s+\w+", re.MULTILINE)


def generate(root: Path, out: Path) -> None:
    """Run protoc over every .proto under `root`: the stubs of `unskew/v1/x.proto` go to `out/unskew/v1/`."""
    protos = sorted(root.rglob("*.proto"))
    if not protos:
        return
    _protoc(root, protos, f"--python_out={out}", f"--pyi_out={out}")
    services = [proto for proto in protos if SERVICE.search(proto.read_text())]
    if services:
        _protoc(root, services, f"--grpc_python_out={out}", f"--plugin={_typist()}", f"--mypy_grpc_out=quiet:{out}")


def _typist() -> str:
    """mypy-protobuf's plugin, from the environment that runs this and no other."""
    plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy_grpc"
    if not plugin.is_file():
        raise SystemExit("mypy-protobuf is not installed beside this Python: run `make venv`")
    return f"{plugin.name}={plugin}"


def _protoc(root: Path, protos: list[Path], *outs: str) -> None:
    # protoc's own google/protobuf/*.proto come with grpcio-tools.
    wellknown = resources.files("grpc_tools") / "_proto"
    names = [proto.relative_to(root).as_posix() for proto in protos]
    run: Callable[[list[str]], int] = protoc.main
    status = run(["protoc", f"-I{root}", f"-I{wellknown}", *outs, *names])
    if status != 0:
        raise SystemExit(f"protoc failed with status {status} on {', '.join(names)}")


def stubs(folder: Path) -> dict[str, str]:
    """Every stub under a folder, by its path there."""
    return {p.relative_to(folder).as_posix(): p.read_text() for glob in STUBS for p in folder.rglob(glob)}


def differences(root: Path) -> list[str]:
    """A unified diff, committed against fresh; empty when the committed stubs are up to date."""
    with tempfile.TemporaryDirectory() as folder:
        generate(root, Path(folder))
        fresh, committed = stubs(Path(folder)), stubs(root)
    lines: list[str] = []
    for name in sorted(fresh.keys() | committed.keys()):
        old, new = committed.get(name, "").splitlines(), fresh.get(name, "").splitlines()
        lines += difflib.unified_diff(old, new, f"committed/{name}", f"fresh/{name}", n=1, lineterm="")
    return lines


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = differences(ROOT)
        if found:
            print("\n".join(found[:60]))
            print("the committed stubs are not what proto/**/*.proto gives: run `make stubs`, then commit")
            return 1
        print(f"{len(stubs(ROOT))} generated stubs are up to date")
        return 0
    if arguments:
        print("usage: python tools/stubs.py [--check]", file=sys.stderr)
        return 2
    for name in stubs(ROOT):
        (ROOT / name).unlink()
    generate(ROOT, ROOT)
    print(f"generated {len(stubs(ROOT))} stubs under proto/")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

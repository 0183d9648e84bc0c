"""How long the README takes to a plan in the browser, on a machine with nothing but Python: venv, pip, service, job.

Mark: 5 minutes. Ports are free ones, so that it runs beside anything else; all else is as the README has it.

Run: ``python -m benchmarks.newcomer``.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = 300.0


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        began, home = time.monotonic(), Path(name) / "unskew"

        def told(what: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

        subprocess.run(["git", "clone", "-q", str(ROOT), str(home)], check=True)
        subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=home, check=True)
        told("cloned, venv made")
        subprocess.run([".venv/bin/pip", "install", "-q", ".[service]"], cwd=home, check=True)
        told("installed")
        http, grpc, metrics = ports(3)
        command = [".venv/bin/unskew", "serve", "--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
        with subprocess.Popen(command, cwd=home, stderr=subprocess.DEVNULL) as service:
            try:
                job = [".venv/bin/python", "examples/live_stream.py", "3", f"grpc://127.0.0.1:{grpc}", "0.1"]
                subprocess.run(job, cwd=home, check=True, stdout=subprocess.DEVNULL)
                page = f"http://127.0.0.1:{http}"
                assert b"<title>unskew</title>" in urllib.request.urlopen(page).read()
                shown = json.load(urllib.request.urlopen(f"{page}/v1/streams/clicks/overview"))
                took = time.monotonic() - began
                told(f"the page shows plan {shown['stream']['version'].partition('.')[2]} (mark {MARK:.0f} s)")
            finally:
                service.terminate()
        assert took < MARK, f"{took:.0f} s"


def ports(many: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    found = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found


if __name__ == "__main__":
    main()

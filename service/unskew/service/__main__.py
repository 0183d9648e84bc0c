"""``python -m unskew.service``: serve, and say on stdout, in one line of JSON, on which ports."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from unskew.core.errors import UnskewError
from unskew.service.app.logs import mute_grpc

if TYPE_CHECKING:
    from unskew.service.app.main import Running


def _announce(running: Running) -> None:
    sys.stdout.write(json.dumps({"host": running.host, **running.ports, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()


mute_grpc()
try:
    from unskew.service.app.main import main

    main(sys.argv[1:], "python -m unskew.service", _announce)
except UnskewError as why:
    sys.stderr.write(f"unskew: {' '.join(str(why).split())}\n")
    sys.exit(2)

#!/bin/bash
# One clear line when this Python cannot carry the project; silent when it can.
set -euo pipefail
python="${1:-python3}"

stop() { echo "unskew: $1" >&2; exit 1; }

command -v "$python" >/dev/null ||
    stop "no '$python' found: install Python 3.10 or newer, or name one: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "$python is $("$python" -V 2>&1), 3.10 or newer is needed; name another: make PYTHON=python3.12"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    stop "$python has no venv module: apt-get install python3-venv (or name another: make PYTHON=python3.12)"

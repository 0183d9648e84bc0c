"""Write the dashboards of the chart to helm/unskew/dashboards; with ``--check`` say which are not as they should be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.dashboards.grafana import dashboard
from tools.dashboards.service import SERVICE
from tools.dashboards.store import REDIS
from tools.dashboards.stream import STREAM

FOLDER = Path(__file__).resolve().parents[2] / "helm" / "unskew" / "dashboards"
BOARDS = (SERVICE, STREAM, REDIS)


def pages() -> dict[str, str]:
    """The files by their names."""
    return {f"{board.uid}.json": json.dumps(dashboard(board), indent=1, ensure_ascii=False) + "\n" for board in BOARDS}


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    """Write the dashboards; with ``--check`` only say which are not as they should be."""
    wanted = pages()
    if arguments != ["--check"]:
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in wanted.items():
            (folder / name).write_text(page, "utf-8")
        return 0
    there = {path.name: path.read_text("utf-8") for path in folder.glob("*.json")}
    wrong = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    if wrong:
        print(f"not as tools/dashboards says: {', '.join(wrong)}; run: python -m tools.dashboards")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

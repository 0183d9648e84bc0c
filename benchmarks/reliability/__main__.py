"""Take the fifteen figures: ``python -m benchmarks.reliability [--figures 1,2,...] [--quick] [--json FILE] [--page]``

Prints a line for each: its mark, what was measured, whether that is met, seconds, and the command that takes it again.
All of them take hours; ``--quick`` takes fewer inputs and runs and says so in what it prints. Ends with 1 if any figure
is missed or could not be taken. ``JAVA_HOME`` and ``REDIS_SERVER`` as for the tests: ``make reliability`` sets them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks.reliability import record
from benchmarks.reliability.figures import FIGURES
from benchmarks.reliability.taken import Dose, Figure, Taken


def measured(figure: Figure, dose: Dose) -> Taken:
    """A figure that cannot be taken is told as such, and the others are taken all the same."""
    try:
        return figure.take(dose)
    except Exception as why:  # noqa: BLE001 - told as the figure's outcome
        traceback.print_exc()
        return Taken(f"could not be taken: {type(why).__name__}", None)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figures", default=",".join(str(number) for number in FIGURES), help="their numbers")
    parser.add_argument("--quick", action="store_true", help="fewer inputs, runs and seconds")
    parser.add_argument("--soak", type=float, default=3600.0, help="seconds of figure 13")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs of figure 9")
    parser.add_argument("--json", type=Path, help="write there what was taken; other figures in the file stay")
    parser.add_argument("--page", action="store_true", help=f"write the table of {record.PAGE.name} from its file")
    return parser.parse_args()


def main() -> int:
    asked = options()
    if asked.page:
        page = record.PAGE.read_text("utf-8")
        record.PAGE.write_text(record.with_table(page, record.read()), "utf-8")
        return 0
    met = True
    for number in [int(one) for one in asked.figures.split(",")]:
        figure, began = FIGURES[number], time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            dose = Dose(Path(folder), asked.quick, asked.soak, asked.inputs)
            taken = measured(figure, dose)
        found = record.entry(figure, taken, dose, time.monotonic() - began)
        print(line(found), flush=True)
        met = met and taken.met is True
        if asked.json:
            record.write({**record.read(asked.json), number: found}, asked.json)
    return 0 if met else 1


def line(found: dict[str, object]) -> str:
    verdict = {True: "met", False: "MISSED", None: "-"}[found["met"]]  # type: ignore[index]  # of three values
    return (
        f"{found['number']:>2}  {found['figure']}\n    mark {found['mark']}; measured {found['measured']}; {verdict}; "
        f"{found['seconds']} s; {found['command']}"
    )


if __name__ == "__main__":
    raise SystemExit(main())

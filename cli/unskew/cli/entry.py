"""Where the ``unskew`` command starts. Works with the base install too: it then says which extra is missing.

Results go to stdout; an error is one line on stderr and exit code 2, without a traceback. A traceback means a bug.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

__all__ = ["main"]

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code."""
    if sys.stderr is None:  # `2>&-`: print would take stdout instead, and the next file opened would be stream 2
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        sys.exit(_fail("standard output is closed; send it to a file, a pipe or a terminal"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a key must not end the run
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left: `unskew ... | head`
        _mute(sys.stdout)
        code = 1
    except OSError as why:  # a full disk; errors with input files are InputError by now
        _mute(sys.stdout)
        code = _fail(f"{why.filename or 'standard output'}: {why.strerror or why}; no file was written")
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        import rich  # noqa: F401 - for tables and progress bars; check now, not after the work
        import typer
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        return _fail(
            f"the command needs {missing.name}, not installed; pip install 'unskew[cli]', or '.[cli]' in a clone"
        )

    from unskew.cli.app import app
    from unskew.core.errors import UnskewError

    usage: type[Exception] = typer.BadParameter.__mro__[2]  # ClickException, of click or of typer's own copy
    try:
        return int(app(args=arguments, prog_name="unskew", standalone_mode=False) or 0)
    except UnskewError as why:
        return _fail(str(why))
    except typer.Abort:
        return _fail("stopped")
    except usage as why:
        return _fail(_usage_message(why))


def _usage_message(why: BaseException) -> str:
    """A usage error, with the commands that there are or the command that shows the options."""
    context = getattr(why, "ctx", None)
    message = str(getattr(why, "format_message", why.__str__)()).rstrip(".")
    commands = getattr(getattr(context, "command", None), "commands", None)
    if commands:
        return f"{message}; use one of {', '.join(commands)}"
    return f"{message}; see {context.command_path if context else 'unskew'} --help"


def _fail(message: str) -> int:
    try:
        print("unskew:", " ".join(message.split()), file=sys.stderr, flush=True)
    except OSError:
        _mute(sys.stderr)
    return USAGE


def _mute(stream: TextIO) -> None:
    """Discard what Python still writes at exit, which would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()

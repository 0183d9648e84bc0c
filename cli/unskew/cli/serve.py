"""``unskew serve`` and ``unskew config check``: the service's own settings, from the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unskew.cli.errors import MissingExtraError

if TYPE_CHECKING:
    from unskew.service.app.main import Running

__all__ = ["checked", "run"]

_OURS = "unskew"


def run(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    try:
        from unskew.service.app.main import main
    except ModuleNotFoundError as missing:
        raise _extra("unskew serve", missing) from None
    main(arguments, "unskew serve", _announce)


def _announce(running: Running) -> None:
    guard = "https" if running.settings.tls_cert else "http"
    host = running.host
    print(f"unskew serves REST on {guard}://{host}:{running.http_port}, gRPC on {host}:{running.grpc_port}", flush=True)
    print(f"metrics on {guard}://{host}:{running.metrics_port}/metrics; Ctrl-C or SIGTERM ends it", flush=True)


def checked(arguments: Sequence[str]) -> str:
    """The settings that the service would have, one a line, or as JSON; secrets are masked."""
    try:
        from unskew.service.app.main import check
        from unskew.service.app.settings import described, parse
    except ModuleNotFoundError as missing:
        raise _extra("unskew config check", missing) from None
    as_json = "--json" in arguments
    settings = parse([argument for argument in arguments if argument != "--json"], "unskew config check")
    check(settings)
    shown = described(settings)
    if as_json:
        return json.dumps(shown, indent=2)
    wide = max(map(len, shown))
    return "\n".join(f"{name:<{wide}}  {_shown(value)}" for name, value in shown.items())


def _shown(value: object) -> str:
    return "-" if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


def _extra(command: str, missing: ModuleNotFoundError) -> MissingExtraError:
    name = (missing.name or "").partition(".")[0]
    if name == _OURS:
        raise missing
    told = f"{command} needs {name}, not installed; pip install 'unskew[service]', or '.[service]' in a clone"
    return MissingExtraError(told)

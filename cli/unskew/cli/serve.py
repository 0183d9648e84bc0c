"""``unskew serve`` and ``unskew config check``: run the service, and show its settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unskew.cli.errors import MissingExtraError

if TYPE_CHECKING:
    from unskew.service.app.main import Running

__all__ = ["run", "settings_text"]


def run(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    try:
        from unskew.service.app.logs import mute_grpc

        mute_grpc()
        from unskew.service.app.main import main
    except ModuleNotFoundError as missing:
        raise _extra("unskew serve", missing) from None
    main(arguments, "unskew serve", _announce)


def _announce(running: Running) -> None:
    guard = "https" if running.settings.tls_cert else "http"
    host = running.host
    print(f"unskew serves REST on {guard}://{host}:{running.http_port}, gRPC on {host}:{running.grpc_port}", flush=True)
    print(f"metrics on {guard}://{host}:{running.metrics_port}/metrics; Ctrl-C or SIGTERM ends it", flush=True)


def settings_text(arguments: Sequence[str]) -> str:
    """The settings that the service would have, one a line, or as JSON; secrets are masked."""
    try:
        from unskew.service.app.main import check
        from unskew.service.app.settings import described, parse
    except ModuleNotFoundError as missing:
        raise _extra("unskew config check", missing) from None
    settings = parse([argument for argument in arguments if argument != "--json"], "unskew config check")
    check(settings)
    texts = described(settings)
    if "--json" in arguments:
        return json.dumps(texts, indent=2)
    width = max(map(len, texts))
    return "\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in texts.items())


def _shown(value: object) -> str:
    return "-" if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


def _extra(command: str, missing: ModuleNotFoundError) -> MissingExtraError:
    name = (missing.name or "").partition(".")[0]
    if name == "unskew":  # a fault of ours, not a missing package
        raise missing
    message = f"{command} needs {name}, not installed; pip install 'unskew[service]', or '.[service]' in a clone"
    return MissingExtraError(message)

"""Certificates for all ports, read again when their files change.

A new pair serves new connections. One that cannot be used leaves the old one in place, and an error in the log: a
certificate and its key are rarely replaced in the same instant.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import grpc

from unskew.core.errors import ConfigError
from unskew.service.app.settings import Settings

__all__ = ["Tls"]

_log = logging.getLogger("unskew.service")


class Tls:
    """The files of the settings, as an ``SSLContext`` and as credentials of a gRPC server."""

    def __init__(self, settings: Settings) -> None:
        self._cert, self._key, self._ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
        self._read_stamps = self._stamps()
        self.context = self._current = self._checked()
        self.context.sni_callback = self._set_context
        self._config = self._grpc_config()
        self._given = self._config

    def refresh(self) -> None:
        """Read the files again if they changed."""
        try:
            stamps = self._stamps()
            if stamps == self._read_stamps:
                return
            current = self._checked()  # a new context: an old one keeps authorities that were removed from their file
            self._config, self._current, self._read_stamps = self._grpc_config(), current, stamps
        except (OSError, ConfigError) as why:
            _log.error("certificates not taken, those before stay: %s", why)
        else:
            _log.info("certificates read again")

    def grpc_credentials(self) -> Any:
        return grpc.dynamic_ssl_server_credentials(self._config, self._fetch, bool(self._ca))

    def _set_context(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by Python at each handshake, whether the client names a server or not."""
        connection.context = self._current

    def _fetch(self) -> Any:
        """Called by gRPC at each handshake; None: nothing new."""
        if self._config is self._given:
            return None
        self._given = self._config
        return self._config

    def _grpc_config(self) -> Any:
        pair = (Path(self._key).read_bytes(), Path(self._cert).read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], Path(self._ca).read_bytes() if self._ca else None)

    def _checked(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._ca:
            context.verify_mode = ssl.CERT_REQUIRED
            # A client that comes back shows its certificate again: it may not be valid any more.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        try:
            context.load_cert_chain(self._cert, self._key)
            if self._ca:
                context.load_verify_locations(self._ca)
        except (OSError, ssl.SSLError) as why:
            files = ", ".join(file for file in (self._cert, self._key, self._ca) if file)
            raise ConfigError(
                "--tls-cert, --tls-key, --tls-client-ca", files, f"PEM files that fit together ({why})"
            ) from None
        return context

    def _stamps(self) -> list[tuple[int, int]]:
        try:
            stats = [Path(file).stat() for file in (self._cert, self._key, self._ca) if file]
        except OSError as why:
            raise ConfigError(
                "--tls-cert, --tls-key, --tls-client-ca", why.filename, "files that can be read"
            ) from None
        return [(stat.st_mtime_ns, stat.st_ino) for stat in stats]

"""Certificates for all ports, read again when their files change.

A new pair serves new connections. One that cannot be used leaves the old one in place, and an error in the log: a
certificate and its key are rarely replaced in the same instant. So do files that changed while they were read, and a
file whose last certificate is cut: OpenSSL would take the whole ones before it, and miss an authority.
"""

from __future__ import annotations

import logging
import re
import ssl
from pathlib import Path
from typing import Any

import grpc

from unskew.core.errors import ConfigError
from unskew.service.app.settings import Settings

__all__ = ["Tls"]

_log = logging.getLogger("unskew.service")
_ENDS = re.compile(rb"-----END [A-Z0-9 ]+-----")


class Tls:
    """The files of the settings, as an ``SSLContext`` and as credentials of a gRPC server."""

    def __init__(self, settings: Settings) -> None:
        self._cert, self._key, self._ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
        self._read_stamps = self._stamps()
        self.context, self._config = self._checked()
        self._current, self._given = self.context, self._config
        self.context.sni_callback = self._set_context

    def refresh(self) -> None:
        """Read the files again if they changed."""
        try:
            stamps = self._stamps()
            if stamps == self._read_stamps:
                return
            # A new context: an old one keeps authorities that were removed from their file.
            self._current, self._config = self._checked()
            self._read_stamps = stamps
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

    def _checked(self) -> tuple[ssl.SSLContext, Any]:
        """The same bytes for both faces: OpenSSL reads files by itself, so they are read before and after it."""
        read = self._bytes()
        context = self._context()
        if self._bytes() != read:
            raise self._refusal("they changed while they were read")
        key, cert, *ca = read
        if not all(map(_is_whole, read)):
            raise self._refusal("one is cut: a BEGIN without its END")
        return context, grpc.ssl_server_certificate_configuration([(key, cert)], ca[0] if ca else None)

    def _bytes(self) -> list[bytes]:
        try:
            return [Path(file).read_bytes() for file in (self._key, self._cert, self._ca) if file]
        except OSError as why:
            raise self._refusal(str(why)) from None

    def _refusal(self, why: str) -> ConfigError:
        files = ", ".join(file for file in (self._cert, self._key, self._ca) if file)
        return ConfigError("--tls-cert, --tls-key, --tls-client-ca", files, f"PEM files that fit together ({why})")

    def _context(self) -> ssl.SSLContext:
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
            raise self._refusal(str(why)) from None
        return context

    def _stamps(self) -> list[tuple[int, int]]:
        try:
            stats = [Path(file).stat() for file in (self._cert, self._key, self._ca) if file]
        except OSError as why:
            raise ConfigError(
                "--tls-cert, --tls-key, --tls-client-ca", why.filename, "files that can be read"
            ) from None
        return [(stat.st_mtime_ns, stat.st_ino) for stat in stats]


def _is_whole(pem: bytes) -> bool:
    *_, rest = _ENDS.split(pem)
    return pem.count(b"-----BEGIN ") == len(_ENDS.findall(pem)) and b"-" not in rest

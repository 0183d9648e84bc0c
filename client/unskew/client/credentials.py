"""How a client authenticates: a bearer token, TLS, mTLS. Nothing here is ever logged.

A token is taken from ``token``, else ``token_file``, else ``UNSKEW_TOKEN``, else ``UNSKEW_TOKEN_FILE``; the PEM files
from ``ca``, ``certificate`` and ``key``, else ``UNSKEW_CA``, ``UNSKEW_CERTIFICATE`` and ``UNSKEW_KEY``. A token's file
is read again when it changes (Kubernetes renews projected tokens in place). Without TLS a token is sent to loopback
only, unless ``insecure`` says, in code, that the network is trusted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from unskew.core.errors import ConfigError

__all__ = ["Credentials"]


@dataclass
class Credentials:
    """Paths are of PEM files. ``ca``: whom to trust (the system's if none); ``certificate`` and ``key``: for mTLS."""

    token: str | None = field(default=None, repr=False)
    token_file: str | os.PathLike[str] | None = None
    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    insecure: bool = False
    tls: bool = field(default=False, init=False)  # a certificate in code: TLS for any target
    _file: Path | None = field(default=None, init=False, repr=False)
    _read: tuple[tuple[int, ...], str] = field(default=((), ""), init=False, repr=False)

    def __post_init__(self) -> None:
        self.tls = self.ca is not None or self.certificate is not None
        if self.token is not None and self.token_file is not None:
            raise ConfigError("token_file", str(self.token_file), "a token or a token file, not both")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("certificate, key", str(self.certificate or self.key), "both (mTLS) or neither")
        if self.token_file is not None:
            self._file = Path(self.token_file)
        elif self.token is not None:
            _checked(self.token, "token")

    @classmethod
    def of(cls, environment: Mapping[str, str], **arguments: Any) -> Credentials:
        """From the arguments, and from the environment where they are left out. The environment's certificates are used
        for ``grpcs://`` targets only: a process may also call a local service without TLS."""
        in_code = arguments.get("ca") is not None or arguments.get("certificate") is not None
        if arguments.get("token") is None and arguments.get("token_file") is None:
            arguments["token"] = environment.get("UNSKEW_TOKEN") or None
            if arguments["token"] is None:
                arguments["token_file"] = environment.get("UNSKEW_TOKEN_FILE") or None
        if arguments.get("ca") is None:
            arguments["ca"] = environment.get("UNSKEW_CA") or None
        if arguments.get("certificate") is None and arguments.get("key") is None:
            arguments["certificate"] = environment.get("UNSKEW_CERTIFICATE") or None
            arguments["key"] = environment.get("UNSKEW_KEY") or None
        credentials = cls(**arguments)
        credentials.tls = in_code
        return credentials

    @property
    def has_token(self) -> bool:
        """Whether a token is sent."""
        return self._file is not None or bool(self.token)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers of each call."""
        token = self.token if self._file is None else self._from_file(self._file)
        return (("authorization", f"Bearer {token}"),) if token else ()

    def channel(self) -> Any:
        """grpc's credentials for a channel with TLS."""
        return grpc.ssl_channel_credentials(
            _content(self.ca, "ca"), _content(self.key, "key"), _content(self.certificate, "certificate")
        )

    def _from_file(self, path: Path) -> str:
        try:
            stat = path.stat()
            identity = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if identity != self._read[0]:
                self._read = (identity, _checked(path.read_text(encoding="utf-8").strip(), "token_file"))
        except (OSError, UnicodeDecodeError, ConfigError) as why:  # it may be half written
            if not self._read[1]:
                if isinstance(why, ConfigError):
                    raise
                raise ConfigError("token_file", str(path), f"a readable file with the token ({_reason(why)})") from None
        return self._read[1]


def _checked(token: str, name: str) -> str:
    """The token, if it can be sent in a header. The error does not show it."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(name, "***", "one line of printable ASCII without spaces")
    return token


def _content(path: str | os.PathLike[str] | None, name: str) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as why:
        raise ConfigError(name, str(path), f"a readable PEM file ({_reason(why)})") from None


def _reason(why: OSError | UnicodeDecodeError) -> str:
    return why.strerror or type(why).__name__ if isinstance(why, OSError) else "it is not text"

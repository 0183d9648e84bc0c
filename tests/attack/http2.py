"""HTTP/2 by hand, as an attacker writes it: streams that are opened and not finished, within the windows of the server.

A client of gRPC would neither declare more than it sends nor stop in the middle of a message.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass, field

__all__ = ["Attacker", "Stream"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_MOST_STREAMS, _FIRST_WINDOW, _FRAME_SIZE = 3, 4, 5


@dataclass
class Stream:
    """``declared`` is the length that the message says it has; ``size`` is what is sent of it."""

    declared: int
    size: int
    window: int
    sent: int = 0
    ended: str = ""


@dataclass
class Attacker:
    """One connection. ``closed`` says how the server ended it, if it did."""

    port: int
    streams: dict[int, Stream] = field(default_factory=dict)
    sent: int = 0
    closed: str = ""
    most_streams: int = 2**31

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._window = self._first_window = 65_535
        self._frame_size = 16_384
        self._read = b""
        self._next = 1
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0))
        self.push(0.2)

    def open(self, path: str, declared: int, size: int, token: str = "") -> Stream:
        """Begin a call with a message of ``declared`` bytes, of which ``size`` are sent by ``push``."""
        number, self._next = self._next, self._next + 2
        stream = self.streams[number] = Stream(declared, size, self._first_window)
        self._send(_frame(_HEADERS, _END_HEADERS, number, _head(path, token)))
        return stream

    def ask(self, path: str, message: bytes, token: str = "") -> None:
        """A whole call. What comes of it is read, and no window is opened for more."""
        number, self._next = self._next, self._next + 2
        self.streams[number] = Stream(len(message), 0, 0)
        head = b"\0" + struct.pack(">I", len(message))
        self._send(_frame(_HEADERS, _END_HEADERS, number, _head(path, token)))
        self._send(_frame(_DATA, _END_STREAM, number, head + message))

    def push(self, seconds: float) -> None:
        """Send what the windows allow, and take what comes, for so long."""
        end = time.monotonic() + seconds
        while not self.closed and time.monotonic() < end:
            wrote = sum(self._push_one(number, stream) for number, stream in list(self.streams.items()))
            readable, _, _ = select.select([self._socket], [], [], 0 if wrote else 0.02)
            if readable:
                self._take()

    def open_streams(self) -> list[Stream]:
        return [stream for stream in self.streams.values() if not stream.ended]

    def close(self) -> None:
        self._socket.close()

    def _push_one(self, number: int, stream: Stream) -> int:
        size = min(stream.window, stream.size - stream.sent, self._window, self._frame_size)
        if stream.ended or size < 6:
            return 0
        head = b"" if stream.sent else b"\0" + struct.pack(">I", stream.declared)
        self._send(_frame(_DATA, 0, number, head + bytes(size - len(head))))
        stream.sent += size
        stream.window -= size
        self._window -= size
        self.sent += size
        return size

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as why:
            self.closed = self.closed or str(why)

    def _take(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except OSError as why:
            self.closed = self.closed or str(why)
            return
        if not data:
            self.closed = self.closed or "closed"
        self._read += data
        while len(self._read) >= 9 and len(self._read) >= 9 + (size := int.from_bytes(self._read[:3], "big")):
            kind, flags = self._read[3], self._read[4]
            number = int.from_bytes(self._read[5:9], "big") & 0x7FFFFFFF
            payload, self._read = self._read[9 : 9 + size], self._read[9 + size :]
            self._on_frame(kind, flags, number, payload)

    def _on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if kind == _SETTINGS and not flags & _ACK:
            self._on_settings(payload)
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW:
            added = int.from_bytes(payload, "big")
            if stream is not None:
                stream.window += added
            elif number == 0:
                self._window += added
        elif kind == _GOAWAY:
            self.closed = f"goaway {payload[8:].decode('latin-1')}"
        elif stream is not None and (kind == _RESET or (kind == _HEADERS and flags & _END_STREAM)):
            stream.ended = stream.ended or ("reset" if kind == _RESET else "answered")

    def _on_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = struct.unpack(">HI", payload[at : at + 6])
            if name == _FIRST_WINDOW:
                for stream in self.streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
            elif name == _FRAME_SIZE:
                self._frame_size = value
            elif name == _MOST_STREAMS:
                self.most_streams = value
        self._send(_frame(_SETTINGS, _ACK, 0))


def _frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", number) + payload


def _head(path: str, token: str) -> bytes:
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x",
        "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    if token:
        fields["authorization"] = f"Bearer {token}"
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())


def _text(value: str) -> bytes:
    """A literal of HPACK, without Huffman's code."""
    data = value.encode()
    assert len(data) < 127
    return bytes((len(data),)) + data

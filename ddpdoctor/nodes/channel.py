"""A connection between the commands on two hosts: whole messages, and signs of life in between.

What comes over it is JSON and bytes, bounded, and never code.
"""

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ALIVE_SECONDS = 0.5
"""Between two signs of life."""
SILENT_SECONDS = 6.0
"""Without one: the host is gone, or its link is cut. A machine that is busy is late by a second or two."""
LARGEST_VALUES = 64 << 20
LARGEST_BODY = 512 << 20
_MAGIC = b"ddpdoctor-1\n"
_HEAD = struct.Struct("!12sIQ")
_CHUNK = 1 << 18
_ALIVE, _BYE = "alive", "bye"
ENDED = "it has ended"
"""Of a side that said so; it is not lost."""


@dataclass(frozen=True)
class Message:
    """What one command tells another."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


class NoMessage(Exception):
    """What came over a connection is not what a command of ours sends."""


class Channel:
    """One connection; ``status`` is asked what to tell with each sign of life."""

    def __init__(self, connection: socket.socket, status: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._connection, self._status_here = connection, status
        connection.settimeout(SILENT_SECONDS)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._inbox: deque[Message] = deque()
        self.heard = time.monotonic()
        """When the other side was last heard of."""
        self._ended: str | None = None
        self._closing = threading.Event()
        self.status: Mapping[str, Any] = {}
        """What the other side told with its last sign of life."""
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._read_messages, self._tell_alive)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        """Of this side, by which the other one is reached."""
        return str(self._connection.getsockname()[0])

    @property
    def lost(self) -> str | None:
        """Why the other side is taken for gone, in a clause; None while it is there."""
        if self._ended:
            return self._ended
        silent = time.monotonic() - self.heard
        return f"it has not answered for {silent:.0f} s" if silent > SILENT_SECONDS else None

    def send(self, message: Message) -> None:
        """Send a message; that the other side is gone is not told here."""
        if self.lost:
            return  # a connection that was cut takes seconds to refuse what is sent over it
        try:
            with self._sending:
                for chunk in _encoded(message):
                    self._connection.sendall(chunk)
        except OSError:
            self._end("its connection broke")

    def receive(self, kind: str, deadline: float) -> Message | None:
        """The next message of a kind; None where the other side is gone, or the deadline has passed."""
        while True:
            with self._changed:
                for message in self._inbox:
                    if message.kind == kind:
                        self._inbox.remove(message)
                        return message
                if self.lost or time.monotonic() > deadline:
                    return None
                self._changed.wait(0.1)

    def close(self) -> None:
        """Say that all is done, and close."""
        listens = not self.lost
        self._closing.set()
        self.send(Message(_BYE))
        self._end(ENDED)
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        if listens:  # what the other side still says is not for us, and its end is soon there
            self._threads[0].join(1.0)
        self._connection.close()

    # -- threads ------------------------------------------------------------------------------------------

    def _tell_alive(self) -> None:
        while not self._closing.wait(ALIVE_SECONDS) and not self._ended:
            self.send(Message(_ALIVE, self._status_here()))

    def _read_messages(self) -> None:
        try:
            while True:
                self._take(read_message(self._read))
        except NoMessage as wrong:
            self._end(str(wrong))
        except (OSError, ValueError):
            self._end("its connection closed")

    def _take(self, message: Message) -> None:
        if message.kind == _ALIVE:
            self.status = message.values
        elif message.kind == _BYE:
            self._end(ENDED)
        else:
            with self._changed:
                self._inbox.append(message)
                self._changed.notify_all()

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._connection.recv(min(_CHUNK, count - len(parts)))
            except TimeoutError:
                continue  # how long it was silent is told by `lost`
            if not part:
                raise ConnectionError
            parts += part
            self.heard = time.monotonic()
        return bytes(parts)

    def _end(self, why: str) -> None:
        with self._changed:
            # Who is told goodbye may close before this thread goes on: that is no loss.
            self._ended = self._ended or (ENDED if self._closing.is_set() else why)
            self._changed.notify_all()


def _encoded(message: Message) -> list[bytes]:
    values = json.dumps({"kind": message.kind, **message.values}).encode()
    chunks = [_HEAD.pack(_MAGIC, len(values), len(message.body)) + values]
    return [*chunks, *(message.body[at : at + _CHUNK] for at in range(0, len(message.body), _CHUNK))]


def read_message(read: Callable[[int], bytes]) -> Message:
    """A message, of a function that reads so many bytes. Raises NoMessage where it is none, or too large."""
    magic, values, body = _HEAD.unpack(read(_HEAD.size))
    if magic != _MAGIC:
        raise NoMessage("it is no ddpdoctor of this version")
    if values > LARGEST_VALUES or body > LARGEST_BODY:
        raise NoMessage("what it sends is too large")
    plain = json.loads(read(values))
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise NoMessage("what it sends cannot be read")
    return Message(plain.pop("kind"), plain, read(body))

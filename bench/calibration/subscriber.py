"""Listens to an engine's KV events, and asks for them again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import zmq

from bench.calibration.events import Batch, decode

END_OF_REPLAY = -1
CONNECT_MS = 10_000
SUBSCRIBE_S = 0.3
QUIET_MS = 1000
REPLAY_TIMEOUT_S = 10.0


class StreamError(Exception):
    """The stream has a hole, or the replay has no end."""


@dataclass(slots=True)
class Numbered:
    """Payloads by their number in the stream."""

    payloads: list[bytes] = field(default_factory=list)

    def add(self, number: int, payload: bytes) -> None:
        if number != len(self.payloads):
            raise StreamError(f"batch {number} follows batch {len(self.payloads) - 1}")
        self.payloads.append(payload)

    def batches(self) -> list[Batch]:
        return [decode(payload) for payload in self.payloads]


class Subscriber:
    """Subscribed when it is made; ZeroMQ keeps what comes until it is read."""

    def __init__(self, port: int) -> None:
        """Raises StreamError when nobody is there."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set_hwm(0)
        self._socket.linger = 0
        self._socket.subscribe(b"")
        monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        connected = monitor.poll(CONNECT_MS)
        self._socket.disable_monitor()
        if not connected:
            self.close()
            raise StreamError(f"nobody publishes KV events on port {port}")
        time.sleep(SUBSCRIBE_S)  # nothing tells that the publisher has read the subscription

    def received(self) -> Numbered:
        """Everything so far, once nothing has come for a while. Raises StreamError."""
        numbered = Numbered()
        while self._socket.poll(QUIET_MS):
            _, number, payload = self._socket.recv_multipart()
            numbered.add(int.from_bytes(number, "big"), payload)
        return numbered

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def replayed(port: int) -> Numbered:
    """Everything that the replay socket still has. Raises StreamError."""
    numbered = Numbered()
    deadline = time.monotonic() + REPLAY_TIMEOUT_S
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.send_multipart((b"", (0).to_bytes(8, "big")))
        while time.monotonic() < deadline:
            if not socket.poll(1000):
                continue
            *_, number, payload = socket.recv_multipart()
            if int.from_bytes(number, "big", signed=True) == END_OF_REPLAY:
                return numbered
            numbered.add(int.from_bytes(number, "big"), payload)
    raise StreamError("the replay did not end")

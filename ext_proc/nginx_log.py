"""What became of requests behind NGINX: its access log, a datagram a line (`access_log syslog:server=...`).

A line is syslog's header and then one JSON object (the format `homing_outcome` of nginx/http.conf.j2). Lines that are
something else are counted and passed over; lines that get lost cost the outcome, and the slot until it is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec

from homing.core.config import Address
from homing.core.placement.decision import Ref
from homing.ext_proc.events import ResponseHeadersReceived
from homing.ext_proc.exchange import Learner
from homing.ext_proc.learning import CLOSED_SESSION, NEW_SESSION
from homing.ext_proc.outcomes import Outcome

BUFFER_BYTES = 4 << 20
"""Asked of the kernel, which gives no more than net.core.rmem_max."""


class Line(msgspec.Struct):
    """One request, in NGINX's words: of several attempts the times and statuses stand with commas between.

    `learn`: what the picker wanted to learn from the answer; `learned`: the id of the response, `new_session` and
    `closed_session`: of the session that the engine named."""

    request: str
    pool: str
    replica: str
    status: int
    decision: str
    ref: str
    first_byte_s: str
    duration_s: float
    upstream: str
    learn: str = ""
    learned: str = ""
    new_session: str = ""
    closed_session: str = ""


_decoder = msgspec.json.Decoder(Line)


def parse(datagram: bytes) -> Line | None:
    """None for what is no line of ours."""
    start = datagram.find(b"{")
    try:
        return _decoder.decode(datagram[start:]) if start >= 0 else None
    except msgspec.DecodeError:
        return None


def _served(line: Line) -> str:
    """Who: where an address is a name, NGINX does not say; it is who was told, if one attempt was enough."""
    if line.replica or "," in line.upstream or " : " in line.upstream:
        return line.replica
    ref = Ref.decode(line.ref)
    return ref.told if ref is not None and line.upstream else ""


def outcome(line: Line) -> Outcome:
    attempts = line.upstream.replace(" : ", ", ").split(", ")
    last = line.first_byte_s.replace(" : ", ", ").split(", ")[-1]
    return Outcome(
        pool_id=line.pool,
        replica_id=_served(line),
        status=line.status,
        ttft_s=float(last) if last.replace(".", "", 1).isdigit() else None,
        duration_s=line.duration_s,
        attempts=len(attempts),
        decision=line.decision,
        ref=line.ref,
    )


class Learns(Protocol):
    """Who learns from answers."""

    def learn(self, answer: ResponseHeadersReceived) -> Learner | None: ...


def learn(line: Line, learns: Learns) -> None:
    """What the answer told, as far as it went."""
    told = {NEW_SESSION: line.new_session, CLOSED_SESSION: line.closed_session, ":status": str(line.status)}
    headers = {name: value.encode() for name, value in told.items() if value}
    learner = learns.learn(ResponseHeadersReceived(headers, line.learn, line.pool, _served(line)))
    if learner is not None and line.learned:
        learner.hear(b'"id":"%b"' % line.learned.encode())


class _Lines(asyncio.DatagramProtocol):
    def __init__(self, ended: Callable[[Line], None]) -> None:
        self._ended = ended

    def datagram_received(self, data: bytes, _: object) -> None:
        if (line := parse(data)) is not None:
            self._ended(line)


@contextlib.asynccontextmanager
async def listening(address: Address, ended: Callable[[Line], None]) -> AsyncIterator[None]:
    """Raises OSError when the address cannot be had. Not a Unix socket: Linux queues 10 datagrams for one, and NGINX
    throws the others away."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    try:
        receiver.bind((address.host, address.port))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        receiver.setblocking(False)
    except OSError as error:
        receiver.close()
        raise OSError(f"cannot listen on {address}: {error.strerror}") from error
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Lines(ended), sock=receiver)
    try:
        yield
    finally:
        transport.close()

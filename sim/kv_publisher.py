"""KV events over ZeroMQ: a PUB socket, and a ROUTER socket that replays."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import zmq
import zmq.asyncio

from homing.sim.kv_events import END_OF_REPLAY, EventLog, KvEventsConfig
from homing.sim.prefix_cache import CacheEvent

log = logging.getLogger(__name__)

PublisherError = zmq.ZMQError


class KvPublisher:
    """Sends never wait: past the high-water mark ZeroMQ drops, as with vLLM's publisher. Needs a running loop."""

    def __init__(self, config: KvEventsConfig, event_log: EventLog) -> None:
        """Raises PublisherError when an endpoint cannot be had."""
        self._log = event_log
        self._topic = config.topic.encode()
        self._context = zmq.asyncio.Context()
        # The loop's own socket class would give futures; publishing never blocks, so a plain one will do.
        self._publish = zmq.Socket(self._context, zmq.PUB)
        self._publish.set_hwm(config.hwm)
        self._publish.linger = 0
        self._replay = self._context.socket(zmq.ROUTER)
        self._replay.linger = 0
        try:
            if _binds(config.endpoint):
                self._publish.bind(config.endpoint)
            else:
                self._publish.connect(config.endpoint)
            if config.replay_endpoint is not None:
                self._replay.bind(config.replay_endpoint)
        except zmq.ZMQError:
            self._close_sockets()
            raise
        self._task = asyncio.create_task(self._serve_replays()) if config.replay_endpoint is not None else None

    def publish(self, events: Sequence[CacheEvent]) -> None:
        self._publish.send_multipart((self._topic, *self._log.add(events, time.time())))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._close_sockets()

    def _close_sockets(self) -> None:
        """Each by itself: ending a context waits for sockets it does not know of."""
        self._publish.close()
        self._replay.close()
        self._context.term()

    async def _serve_replays(self) -> None:
        while True:
            frames = await self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                log.warning("a replay request of %d frames was ignored", len(frames))
                continue
            client, _, start = frames
            for batch in self._log.since(int.from_bytes(start, "big")):
                await self._replay.send_multipart((client, b"", self._topic, *batch))
            await self._replay.send_multipart((client, b"", self._topic, END_OF_REPLAY, b""))


def _binds(endpoint: str) -> bool:
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))

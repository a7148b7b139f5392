"""What a peer can do to a transport, to either of them: nothing leaks, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from h2_client import Client, Frames
from picker_serving import LIMIT_S, Serving, body, headers, told, until

from homing.ext_proc.framing import framed

FIRST, BODY = framed(headers(x_session_id="s")), framed(body(b"abc"))
POINTS = ["opened", "half a message", "asked", "answered", "half a body", "body asked", "body answered", "half closed"]


@pytest.fixture
async def client(serving: Serving) -> AsyncIterator[Client]:
    made = await Client.connect(serving.path)
    yield made
    await made.close()


def reversed_body(message: bytes) -> bytes:
    return bytes(ProcessingResponse.FromString(message).request_body.response.body_mutation.body)


async def is_served(serving: Serving) -> None:
    """Another client, from the beginning to the end."""
    call = serving.process()
    await told(call, headers())
    answer = await told(call, body(b"abc"))
    assert answer.request_body.response.body_mutation.body == b"cba"
    await call.done_writing()
    await call.code()


async def go_to(client: Client, point: str) -> int:
    """A stream that has come to `point`."""
    stream, way = client.open(), POINTS.index(point)
    if way == 1:
        client.h2.send_data(stream, FIRST[: len(FIRST) // 2])
    if way >= 2:
        client.h2.send_data(stream, FIRST)
    if way >= 3:
        await client.until_messages(stream)
    if way == 4:
        client.h2.send_data(stream, BODY[:7])
    if way >= 5:
        client.h2.send_data(stream, BODY)
    if way >= 6:
        await client.until_messages(stream, 2)
    if way >= 7:
        client.h2.end_stream(stream)
    await client.flush()
    return stream


@pytest.mark.parametrize("point", POINTS)
async def test_a_reset_at_any_point_gives_the_slot_back_and_ends_no_other_stream(
    serving: Serving, client: Client, point: str
):
    other = await go_to(client, "answered")
    stream = await go_to(client, point)
    client.h2.reset_stream(stream)
    await client.flush()
    client.h2.send_data(other, BODY)
    assert reversed_body((await client.until_messages(other, 2))[1]) == b"cba"
    await until(lambda: serving.router.held == 1)
    client.h2.reset_stream(other)
    await client.flush()
    await until(lambda: serving.router.held == 0)


async def test_a_connection_cut_at_any_byte_gives_the_slot_back(serving: Serving):
    frames = Frames()
    stream = frames.open()
    frames.h2.send_data(stream, FIRST)
    frames.h2.send_data(stream, BODY)
    said = frames.said()
    for cut in range(len(said)):
        _, writer = await asyncio.open_unix_connection(str(serving.path))
        writer.write(said[:cut])
        writer.close()
    await is_served(serving)
    await until(lambda: serving.router.held == 0)


@pytest.mark.parametrize("pause", [False, True])
async def test_messages_split_at_every_byte(serving: Serving, pause: bool):
    """The stream's bytes cut in two, wherever; and gRPC's messages over two DATA frames, wherever."""
    for cut in range(1, len(FIRST)):
        client = await Client.connect(serving.path)
        stream = client.open()
        client.h2.send_data(stream, FIRST[:cut])
        if pause:
            await client.flush()
        client.h2.send_data(stream, FIRST[cut:])
        said = client.said()
        client.writer.write(said[: len(said) // 2 + cut % 9])
        await asyncio.sleep(0)
        client.writer.write(said[len(said) // 2 + cut % 9 :])
        assert len(await client.until_messages(stream)) == 1
        await client.close()
    await until(lambda: serving.router.held == 0)
    assert {request.headers["x-session-id"] for request in serving.router.requests} == {b"s"}


async def test_a_byte_at_a_time(serving: Serving, client: Client):
    stream = client.open()
    client.h2.send_data(stream, FIRST)
    client.h2.send_data(stream, BODY)
    for byte in client.said():
        client.writer.write(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert reversed_body((await client.until_messages(stream, 2))[1]) == b"cba"


async def test_garbage_on_the_socket_costs_its_own_connection_only(serving: Serving):
    """Random bytes from the first one on, and bytes changed at random in what would be right."""
    chance = random.Random(6)
    frames = Frames()
    for _ in range(4):
        stream = frames.open()
        frames.h2.send_data(stream, FIRST)
        frames.h2.send_data(stream, BODY, end_stream=True)
    said = frames.said()
    for number in range(300):
        garbage = bytearray(said)
        if number % 3 == 0:
            garbage = bytearray(chance.randbytes(chance.randrange(1, 4_000)))
        elif number % 3 == 1:
            garbage[24:] = chance.randbytes(chance.randrange(1, 4_000))  # after the preface
        else:
            for _ in range(chance.randrange(1, 8)):
                garbage[chance.randrange(len(garbage))] = chance.randrange(256)
        _, writer = await asyncio.open_unix_connection(str(serving.path))
        writer.write(bytes(garbage))
        await asyncio.sleep(0)
        writer.close()
    await is_served(serving)
    await until(lambda: serving.router.held == 0)


@pytest.mark.slow
async def test_100_000_resets_on_one_connection(serving: Serving, client: Client):
    """Envoy resets each stream that it is done with: what elsewhere is an attack is a minute's work here."""
    kept = await go_to(client, "answered")
    for _ in range(1_000):
        streams = [client.open() for _ in range(100)]
        for stream in streams:
            client.h2.send_data(stream, FIRST)
        client.writer.write(client.said())
        for stream in streams:
            client.h2.reset_stream(stream)
        client.writer.write(client.said())
        await client.writer.drain()
    client.h2.send_data(kept, BODY)
    assert reversed_body((await client.until_messages(kept, 2))[1]) == b"cba"
    await until(lambda: serving.router.held == 1)


async def test_resets_after_the_answer_are_no_flood(serving: Serving, client: Client):
    for _ in range(40):
        streams = [client.open() for _ in range(100)]
        for stream in streams:
            client.h2.send_data(stream, FIRST)
        await client.until_messages(streams[-1])
        for stream in streams:
            client.h2.reset_stream(stream)
        await client.flush()
    await until(lambda: serving.router.held == 0)
    assert len(serving.router.requests) == 4_000
    await is_served(serving)


async def test_a_reader_that_does_not_read_is_not_answered_without_end(serving: Serving, client: Client):
    """It may send no more than some windows' worth until it reads; others are served, and it gets all once it does."""
    content = b"x" * 1_000_000
    streams = [client.open() for _ in range(100)]
    for stream in streams:
        client.h2.send_data(stream, FIRST)
        client.h2.send_data(stream, framed(body(content)))
    client.writer.write(client.said())  # as far as the windows go
    await is_served(serving)
    answers = [await client.until_messages(stream, 2) for stream in streams]
    assert {reversed_body(answer[1]) for answer in answers} == {content}


async def test_a_message_over_the_limit_ends_its_stream_only(serving: Serving, client: Client):
    other = await go_to(client, "answered")
    stream = client.open()
    client.h2.send_data(stream, b"\0" + (100 << 20).to_bytes(4) + b"x" * 100)
    client.h2.send_data(other, BODY)
    await client.until_messages(other, 2)
    async with asyncio.timeout(LIMIT_S):
        while stream not in client.statuses:
            client.hear(await client.reader.read(1 << 20))
    assert client.statuses[stream] == b"8"


async def test_metadata_over_the_limit_ends_its_stream_only(serving: Serving, client: Client):
    other = await go_to(client, "answered")
    stream = client.open(x_homing_key="k" * 60_000, x_more="m" * 60_000, x_most="n" * 60_000)
    client.h2.send_data(other, BODY)
    assert reversed_body((await client.until_messages(other, 2))[1]) == b"cba"
    async with asyncio.timeout(LIMIT_S):
        while stream not in client.closed and stream not in client.statuses:
            client.hear(await client.reader.read(1 << 20))
    assert serving.router.held == 1


async def test_a_compressed_message_is_refused(serving: Serving, client: Client):
    stream = client.open()
    client.h2.send_data(stream, b"\1" + FIRST[1:])
    await client.flush()
    async with asyncio.timeout(LIMIT_S):
        while stream not in client.statuses:
            client.hear(await client.reader.read(1 << 20))
    assert client.statuses[stream] in (b"12", b"13")  # gRPC's own server says INTERNAL

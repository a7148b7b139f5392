"""Two pickers over real HTTP: what one knows, the other hears; and who has no token hears and says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from sharers import HISTORY, NEXT, PROMPT, Sharer, until

from homing.control.http_server import HttpServer, listening
from homing.core.chains import Served as ServedPrompt
from homing.core.config.secret import SecretRef
from homing.core.journal import Word
from homing.core.placement.load import Vector
from homing.core.placement.underway import FirstToken
from homing.ext_proc.http import app
from homing.ext_proc.pins.counts import Peer, Why
from homing.ext_proc.pins.message import MAX_BYTES, MAX_WORDS, Message, decode, encode
from homing.ext_proc.pins.routes import routes
from homing.ext_proc.pins.secret import SharedSecret
from homing.ext_proc.pins.sharing import Sharing, SharingError
from homing.ext_proc.pins.siblings import JOURNAL_PATH, TABLE_PATH, WORDS_PATH, Sibling, soonest_s

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
SECRET = SharedSecret.of(None, Path("homing.yaml"), {"HOMING_SECRET": "sixteen bytes or more"})
TOKEN = SECRET.token()


@pytest.fixture
def directory() -> Iterator[Path]:
    """pytest's own are too long for Unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="homing-siblings-"))
    yield path
    shutil.rmtree(path)


@dataclass
class Served:
    """A picker that serves its siblings."""

    sharer: Sharer
    address: str

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        more = routes(self.sharer.knowledge, self.sharer.counts, TOKEN)
        server = HttpServer(app(CollectorRegistry(), lambda: None, more))
        with listening(self.address) as listener:
            task = asyncio.create_task(server.serve([listener]))
            try:
                yield
            finally:
                server.should_exit = True
                await task

    def sibling_of(self, speaker: Sharer, token: str = TOKEN) -> Sibling:
        return Sibling(self.address, token, speaker.knowledge, speaker.counts)


@pytest.fixture
async def served(directory: Path) -> AsyncIterator[Served]:
    served = Served(Sharer("listener"), f"unix:{directory}/http.sock")
    async with served.serving():
        yield served


async def test_changes_and_load_are_heard(served: Served):
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker)
    speaker.put(A, "r1")
    speaker.load.begin(("pool", "r1"))
    assert await sibling.tell()
    assert served.sharer.home(A) == "r1"
    assert served.sharer.load.others(("pool", "r1")).in_flight == 1
    assert (speaker.counts.told[Peer.SIBLING], served.sharer.counts.heard[Peer.SIBLING]) == (1, 1)
    await sibling.close()


async def test_a_conversation_without_an_id_is_known_to_the_sibling_once_it_hears(directory: Path):
    served = Served(Sharer("listener"), f"unix:{directory}/http.sock")
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker)
    speaker.serve(HISTORY, "r1")
    assert not await sibling.tell()
    async with served.serving():
        await sibling.flush()
        assert served.sharer.served(NEXT) == ("r1",)
        await sibling.close()


async def test_the_sibling_knows_where_a_prompt_was_sent_once_it_hears(directory: Path):
    served = Served(Sharer("listener"), f"unix:{directory}/http.sock")
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker)
    speaker.send(PROMPT, "r1")
    assert not await sibling.tell()
    async with served.serving():
        await sibling.flush()
        assert served.sharer.holders(PROMPT) == {"r1"}
        await sibling.close()


async def test_the_first_token_of_a_siblings_request_corrects_its_queue(served: Served):
    """The access log came to another picker."""
    speaker, load, place = Sharer("speaker"), served.sharer.load, ("pool", "r1")
    sibling = served.sibling_of(speaker)
    begun = time.time()
    marks = [load.begin(place, 80_000.0, begun) for _ in range(2)]
    load.underway.add(A, 80_000, load.meter(place), marks[0], begun)
    speaker.load.underway.first_token(A, 80_000, 0.001, begun + 1.0)
    assert await sibling.tell()
    assert load.meter(place).queue.waiting(begun + 1.0, 8000.0) == pytest.approx(80_000.0 - 0.999 * 8000.0)
    await sibling.close()


async def test_what_is_urgent_does_not_wait_for_the_next_word(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("homing.ext_proc.pins.siblings.INTERVAL_S", 3600.0)
    speaker, place = Sharer("speaker"), ("pool", "r1")
    sibling = served.sibling_of(speaker)
    speaking = asyncio.create_task(sibling.run())
    try:
        for tokens in (300.0, 9000.0):
            speaker.load.begin(place, tokens, time.time())
            speaker.load.begun(tokens)
        await until(lambda: served.sharer.load.others(place).in_flight == 2)
        speaker.load.begin(place, 9000.0, time.time())
        speaker.load.begun(9000.0)
        await until(lambda: served.sharer.load.others(place).in_flight == 3)
    finally:
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        await sibling.close()


@pytest.mark.parametrize(("replicas", "seconds"), [(0, 0.02), (8, 0.0216), (400, 0.1), (10_000, 0.1)])
def test_the_more_there_is_to_read_the_longer_a_sibling_is_left_in_peace(replicas: int, seconds: float):
    assert soonest_s(replicas) == pytest.approx(seconds)


async def test_what_was_not_heard_is_told_again(directory: Path):
    served = Served(Sharer("listener"), f"unix:{directory}/http.sock")
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker)
    speaker.put(A, "r1")
    assert not await sibling.tell()
    assert speaker.counts.failed == {(Peer.SIBLING, Why.AWAY): 1}
    async with served.serving():
        assert await sibling.tell()
        assert served.sharer.home(A) == "r1"
        await sibling.close()


async def test_a_whole_table_is_pulled_in_the_order_of_use(served: Served):
    count = 2 * MAX_WORDS + 1
    for i in range(count):
        served.sharer.homes.put(b"%16d" % i, "r1", served.sharer.knowledge.clock() - (count - i) / 10)
    served.sharer.serve(HISTORY, "r2")
    served.sharer.serve(HISTORY, "r3")
    hearer = Sharer("hearer", max_sessions=count - 1)
    sibling = served.sibling_of(hearer)
    assert await sibling.pull()
    assert len(hearer.homes) == count - 1
    assert (hearer.home(b"%16d" % 0), hearer.home(b"%16d" % 1)) == (None, "r1")  # the longest idle had to leave
    assert hearer.served(NEXT) == ("r3", "r2")
    await sibling.close()


async def test_a_sibling_that_is_asked_tells_what_it_knows_of_these(served: Served):
    served.sharer.put(A, "r1")
    served.sharer.put(C, "r3")
    asking = Sharer("asking")
    sibling = served.sibling_of(asking)
    assert await sibling.ask([A, B]) == {A}
    assert [asking.home(digest) for digest in (A, B, C)] == ["r1", None, None]
    assert asking.counts.heard[Peer.SIBLING] == 1
    await sibling.close()


async def test_a_closed_session_is_not_found_at_a_sibling(served: Served):
    served.sharer.homes.journal()
    served.sharer.put(A, "r1")
    served.sharer.homes.forget(A, served.sharer.knowledge.clock())
    sibling = served.sibling_of(Sharer("asking"))
    assert await sibling.ask([A]) == set()
    await sibling.close()


@pytest.mark.parametrize("parted", [True, False])
async def test_siblings_are_asked_only_where_sessions_are_shared_out_among_them(served: Served, parted: bool):
    served.sharer.put(A, "r1")
    one = Sharer("one")
    dead = str(Path(served.address).with_name("nobody.sock"))
    sharing = Sharing([served.address, dead], SECRET, one.knowledge, parted=parted)
    read = sharing.first_sight_of_anyones
    assert sharing.first_sight is None, "a session of this picker's is nobody else's"
    assert (read is not None) is parted
    if read is not None:
        task = asyncio.create_task(sharing.run())
        wait = read(A)
        assert wait is not None
        await wait
        await until(lambda: one.home(A) == "r1")
        task.cancel()
        await asyncio.wait([task])


async def test_flushing_tells_all_that_is_left(served: Served):
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker)
    for i in range(MAX_WORDS + 5):
        speaker.put(b"%16d" % i, "r1")
    await sibling.flush()
    assert len(served.sharer.homes) == MAX_WORDS + 5
    await sibling.close()


@pytest.mark.parametrize("token", ["wrong", "toke", "tokens"])
async def test_without_the_token_nothing_is_heard_and_nothing_is_given(served: Served, token: str):
    served.sharer.put(A, "r1")
    speaker = Sharer("speaker")
    sibling = served.sibling_of(speaker, token)
    speaker.put(B, "r2")
    assert [await sibling.tell(), await sibling.pull()] == [False, False]
    assert (served.sharer.home(B), speaker.home(A)) == (None, None)
    assert speaker.counts.failed == {(Peer.SIBLING, Why.REFUSED): 2}
    await sibling.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"\xc1nonsense", 400),
        (msgspec.msgpack.encode(["x", [[b"short", "r", "", 0.0, 0.0]], []]), 400),
        (b"x" * (MAX_BYTES + 1), 413),
        (encode(["x", [], [["pool", "r1", Vector(in_flight=1)]]]), 204),
    ],
)
async def test_what_is_no_message_is_refused(served: Served, body: bytes, status: int):
    transport = httpx.AsyncHTTPTransport(uds=served.address.removeprefix("unix:"))
    async with httpx.AsyncClient(transport=transport, headers={"authorization": f"Bearer {TOKEN}"}) as client:
        answer = await client.post(f"http://sibling{JOURNAL_PATH}", content=body)
        assert answer.status_code == status
        assert (await client.get(f"http://sibling{TABLE_PATH}")).content == bytes(8)


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        (TOKEN, encode([A]), 200),
        (TOKEN, b"", 400),
        (TOKEN, encode([A[:15]]), 400),
        (TOKEN, encode([A] * (MAX_WORDS + 1)), 400),
        (TOKEN, b"x" * (MAX_BYTES + 1), 413),
        ("wrong", encode([A]), 401),
    ],
)
async def test_what_is_no_question_is_refused(served: Served, token: str, body: bytes, status: int):
    transport = httpx.AsyncHTTPTransport(uds=served.address.removeprefix("unix:"))
    async with httpx.AsyncClient(transport=transport, headers={"authorization": f"Bearer {token}"}) as client:
        answer = await client.post(f"http://sibling{WORDS_PATH}", content=body)
        assert answer.status_code == status


class FormerVector(msgspec.Struct, array_like=True):
    pending_tokens: float
    in_flight: int


class Former(msgspec.Struct, array_like=True):
    """The message before first tokens were told, and a vector of then."""

    sender: str
    words: list[Word]
    load: list[tuple[str, str, FormerVector]]
    served: list[ServedPrompt] = []  # msgspec copies it


def test_a_picker_of_a_former_version_understands_and_is_understood():
    message = Message("x", [], [("pool", "r1", Vector(5.0, 1))], [], [], [FirstToken(A, 1, 0.5)])
    former = msgspec.msgpack.decode(encode(message), type=Former)
    assert (former.sender, former.load) == ("x", [("pool", "r1", FormerVector(5.0, 1))])
    assert decode(encode(former)) == Message("x", [], [("pool", "r1", Vector(5.0, 1))])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 1e12])
def test_a_load_that_cannot_be_is_not_added_up(bad: float):
    good = Vector(5.0, 1, 1, 100.0)
    message = Message("x", [], [("pool", "r1", Vector(pending_tokens=bad)), ("pool", "r2", good)])
    assert decode(encode(message)).vectors() == {("pool", "r2"): good}


def test_one_secret_makes_three_things_of_which_none_tells_another(tmp_path: Path):
    (tmp_path / "secret").write_text("sixteen bytes or more\n")
    secret = SharedSecret.of(SecretRef("file", "secret"), tmp_path / "homing.yaml", {})
    same = SharedSecret.of(None, tmp_path / "homing.yaml", {"HOMING_SECRET": "sixteen bytes or more"})
    alone = SharedSecret.of(None, tmp_path / "homing.yaml", {})
    assert (secret, secret.shared, alone.shared) == (same, True, False)
    assert len({secret.sessions().hex(), secret.token(), secret.namespace(), alone.token()}) == 4
    assert len(secret.sessions()) == 64  # as much as a key of blake2b may have
    assert "sixteen" not in repr(secret)


def test_siblings_without_a_secret_are_refused():
    sharer = Sharer("one")
    with pytest.raises(SharingError, match=r"sessions\.secret in the file, or HOMING_SECRET"):
        Sharing(["unix:/a"], SharedSecret(False, b""), sharer.knowledge)

import asyncio
import logging
from random import Random

import pytest

from homing.control.discovery import sources as module
from homing.control.discovery.source import Found, SourceError
from homing.control.discovery.sources import Health, Sources
from homing.control.membership import Membership
from homing.core.config import parse

A, B = Found("a", "10.0.0.1:80"), Found("b", "10.0.0.2:80")
DNS = ("p", "dns")


def config(discovery="{dns: 'vllm:80', empty_grace_s: 0.2}"):
    return parse(f"pools: {{p: {{discovery: {discovery}}}}}", "homing.yaml")


class Scripted:
    """Says what the test puts in; an exception is raised."""

    def __init__(self):
        self.words = asyncio.Queue()
        self.followed = 0

    async def follow(self):
        self.followed += 1
        while True:
            word = await self.words.get()
            if isinstance(word, Exception):
                raise word
            yield word


class MemoryStore:
    def __init__(self):
        self.found = {}
        self.broken = False

    async def put_found(self, key, found):
        if self.broken:
            raise OSError("disk full")
        self.found[key] = found


class Setup:
    def __init__(self, file=None):
        self.membership = Membership(file or config(), ("api", *module.KINDS))
        self.made = {}
        self.store = MemoryStore()
        self.sources = Sources(self.membership, self.make, self.store, Random(1))

    def make(self, kind, settings):
        return self.made.setdefault(kind, Scripted())

    async def say(self, word, kind="dns"):
        while kind not in self.made:  # noqa: ASYNC110 (made by another task)
            await asyncio.sleep(0.005)
        await self.made[kind].words.put(word)

    @property
    def ids(self):
        return [r.id for r in self.membership.view.fleet.pools[0].replicas]


@pytest.fixture
async def setup(monkeypatch, background):
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    made = Setup()
    background(made.sources.run())
    return made


async def test_what_a_source_finds_is_in_the_fleet_and_kept(setup, until):
    await setup.say((A, B))
    await until(lambda: setup.ids == ["a", "b"])
    await setup.say((B,))
    await until(lambda: setup.ids == ["b"])
    assert setup.store.found == {DNS: (B,)}
    assert setup.sources.health == {DNS: Health(1, answered=True)}


@pytest.mark.parametrize(("kind", "ids"), [("dns", ["a-0", "a-1", "b-0", "b-1"]), ("file", ["a", "b"])])
async def test_every_address_has_the_ranks_that_the_file_says_where_the_source_cannot(background, until, kind, ids):
    source = {"dns": "dns: 'vllm:80'", "file": "file: replicas.yaml"}[kind]
    setup = Setup(config(f"{{{source}, dp_size: 2}}"))
    background(setup.sources.run())
    await setup.say((A, B), kind)
    await until(lambda: setup.membership.view.fleet.pools[0].replicas)
    found = setup.membership.view.fleet.pools[0].replicas
    assert sorted(r.id for r in found) == ids
    assert {r.id: r.rank for r in found} == {i: int(i[-1]) if kind == "dns" else None for i in ids}
    assert {r.address for r in found} == {A.address, B.address}


async def test_a_source_that_fails_keeps_its_last_good_set_says_so_once_and_comes_back(setup, until, caplog):
    caplog.set_level(logging.INFO)
    await setup.say((A,))
    for _ in range(3):
        await setup.say(SourceError("no route"))
    await until(lambda: setup.sources.failures == 3)
    assert setup.ids == ["a"]
    assert setup.sources.health[DNS] == Health(1, answered=True, error="no route")
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "dns of pool p fails, its last 1 replicas stay: no route"
    ]
    await setup.say((A, B))
    await until(lambda: setup.ids == ["a", "b"])
    assert setup.sources.health[DNS].error == ""


async def test_a_source_that_suddenly_finds_nobody_is_not_believed_at_once(setup, until):
    await setup.say((A,))
    await until(lambda: setup.ids == ["a"])
    await setup.say(())
    await until(lambda: setup.sources.health[DNS].doubted)
    assert setup.ids == ["a"]
    await setup.say((A, B))
    await until(lambda: setup.ids == ["a", "b"])
    await asyncio.sleep(0.3)
    assert setup.ids == ["a", "b"]


async def test_a_source_that_goes_on_finding_nobody_is_believed(setup, until):
    await setup.say((A,))
    await until(lambda: setup.ids == ["a"])
    await setup.say(())
    await until(lambda: setup.ids == [])
    assert setup.sources.health[DNS] == Health(0, answered=True)


async def test_one_that_says_again_and_again_that_there_is_nobody_is_believed_as_soon(setup, until, caplog):
    await setup.say((A,))
    for _ in range(40):  # for longer than the time of grace, as DNS does
        await setup.say(())
        await asyncio.sleep(0.01)
    assert setup.ids == []
    assert len([r for r in caplog.records if "finds nobody" in r.getMessage()]) == 1


async def test_one_that_fails_after_finding_nobody_is_not_believed(setup, until):
    await setup.say((A,))
    await setup.say(())
    await until(lambda: setup.sources.health.get(DNS) == Health(1, answered=True, doubted=True))
    await setup.say(SourceError("no route"))
    await asyncio.sleep(0.3)
    assert (setup.ids, setup.sources.health[DNS]) == (["a"], Health(1, answered=True, error="no route"))
    await setup.say(())
    await until(lambda: setup.ids == [])


async def test_what_an_earlier_process_found_stands_until_something_else_is_found(setup, until):
    later = Setup()
    later.sources.restore({DNS: (A,), ("gone", "dns"): (B,)})
    assert later.ids == ["a"]
    await asyncio.wait_for(later.sources.first_answers(), 1)


async def test_the_start_waits_for_sources_that_never_answered(background, until):
    both = Setup(config("{dns: 'vllm:80', file: replicas.yaml}"))
    background(both.sources.run())
    waiting = asyncio.create_task(both.sources.first_answers())
    await both.say((), "dns")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await both.say((A,), "file")
    await asyncio.wait_for(waiting, 1)
    assert both.ids == ["a"]


async def test_but_not_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(module, "FIRST_ANSWERS_S", 0.05)
    await asyncio.wait_for(Setup().sources.first_answers(), 1)
    assert "no answer yet from dns of pool p" in caplog.text


async def test_sources_come_and_go_with_the_file(setup, until):
    await setup.say((A,))
    await until(lambda: setup.ids == ["a"])
    setup.membership.configure(config("{file: replicas.yaml}"))
    await setup.say((B,), "file")
    await until(lambda: setup.ids == ["b"])
    assert set(setup.sources.health) == {("p", "file")}


async def test_a_disk_that_is_full_does_not_stop_discovery(setup, until):
    setup.store.broken = True
    await setup.say((A,))
    await until(lambda: setup.ids == ["a"])


async def test_more_replicas_than_a_pool_may_have_are_a_failure(setup, until):
    await setup.say((A,))
    await setup.say(tuple(Found(f"r{i}", f"10.1.{i // 250}.{i % 250}:80") for i in range(module.MAX_REPLICAS + 1)))
    await until(lambda: setup.sources.health.get(DNS, Health()).error)
    assert setup.ids == ["a"]

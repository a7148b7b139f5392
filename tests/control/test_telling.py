"""A rollout carried out, with fakes that write down who was told what in which order."""

import asyncio
from dataclasses import replace

import pytest

from homing.control.ads import Answer
from homing.control.snapshot import CDS, EDS, LDS, RDS, Resources, Snapshot
from homing.control.telling import LastGoodFiles, Telling
from homing.core.config import parse
from homing.core.fleet import Fleet, Pool, Replica

A, B, C = (Replica(i, f"10.0.0.{n}:80") for n, i in enumerate("abc", 1))


def fleet(*replicas):
    return Fleet((Pool("p", "p", replicas=replicas),))


def ids(fleet):
    return "".join(r.id for p in fleet.pools for r in p.replicas)


def snapshot(config, fleet):
    endpoints = {p.id: repr(p).encode() for p in fleet.pools}
    sets = {CDS: endpoints, EDS: endpoints, LDS: {"l": str(config.listen).encode()}, RDS: {}}
    return Snapshot({t: Resources.of(r) for t, r in sets.items()}, {EDS: frozenset(endpoints)})


class Journal:
    """Both sides. `answer` is what the Envoys say to every snapshot."""

    def __init__(self):
        self.lines = []
        self.answer = Answer.ACKED
        self.fleets = {}

    def snapshot(self, config, fleet):
        made = snapshot(config, fleet)
        self.fleets[made.version] = ids(fleet)
        return made

    @property
    def envoys(self):
        return self._Envoys(self)

    @property
    def pickers(self):
        return self._Pickers(self)

    class _Envoys:
        def __init__(self, journal):
            self.journal = journal

        def publish(self, snapshot, parts):
            self.journal.parts = parts
            self.journal.lines.append(f"envoys {self.journal.fleets[snapshot.version]}")

        async def wait_acked(self, version, timeout_s):
            self.journal.lines.append(f"acked {self.journal.fleets[version]}?")
            return self.journal.answer

    class _Pickers:
        def __init__(self, journal):
            self.journal = journal

        def publish(self, fleet):
            self.journal.lines.append(f"pickers {ids(fleet)}")

        async def wait_applied(self, version, timeout_s):
            self.journal.lines.append("applied?")
            return True


@pytest.fixture
def journal():
    return Journal()


@pytest.fixture
def config(homing_yaml):
    return parse(homing_yaml("10.0.0.1:80"), "homing.yaml")


async def settle():
    for _ in range(20):
        await asyncio.sleep(0.005)


async def test_the_first_fleet_goes_to_the_envoys_and_then_to_the_pickers(journal, config, background):
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot)
    background(telling.run())
    assert not telling.done.is_set()
    telling.aim(config, fleet(A, B))
    await asyncio.wait_for(telling.done.wait(), 5)
    assert journal.lines == ["envoys ab", "acked ab?", "pickers ab"]


async def test_a_replica_leaves_and_another_joins(journal, config, background):
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot)
    background(telling.run())
    telling.aim(config, fleet(A, B))
    await settle()
    journal.lines.clear()
    telling.aim(config, fleet(A, C))
    await settle()
    assert journal.lines == ["pickers a", "applied?", "envoys abc", "acked abc?", "pickers ac", "envoys ac"]


async def test_a_replica_that_has_no_address_yet_is_told_to_nobody(journal, config, background):
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot)
    background(telling.run())
    telling.aim(config, fleet(A, replace(B, address="vllm.internal:80")))
    await settle()
    assert journal.lines == ["envoys a", "acked a?", "pickers a"]


async def test_another_configuration_of_the_same_fleet_goes_to_the_envoys(journal, config, background):
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot)
    background(telling.run())
    telling.aim(config, fleet(A))
    await settle()
    journal.lines.clear()
    telling.aim(config.model_copy(update={"expose_decisions": True}), fleet(A))
    await settle()
    assert journal.lines == ["envoys a"]


@pytest.mark.parametrize("bad", ["raises", "dangling"])
async def test_a_snapshot_that_must_not_be_sent_leaves_the_last_one_in_force(journal, config, background, bad, caplog):
    def faulty(config, fleet):
        if ids(fleet) != "ab":
            return journal.snapshot(config, fleet)
        if bad == "raises":
            raise ValueError("a template's bug")
        return replace(snapshot(config, fleet), needs={EDS: frozenset({"ghost"})})

    telling = Telling(journal.envoys, journal.pickers, faulty)
    background(telling.run())
    telling.aim(config, fleet(A, B))
    await settle()
    assert (journal.lines, telling.failures, telling.done.is_set()) == ([], {"snapshot": 1}, False)
    telling.aim(config, fleet(A, C))
    await settle()
    assert journal.lines == ["envoys ac", "acked ac?", "pickers ac"]
    assert telling.done.is_set()


class Disk:
    def __init__(self):
        self.written = []

    @property
    def files(self):
        return LastGoodFiles(lambda config, fleet: {"fleet": ids(fleet).encode()}, self.write)

    def write(self, files):
        self.written.append(dict(files))
        return tuple(files)


async def test_last_good_files_are_written_for_what_all_were_told_at_the_end(journal, config, background):
    disk = Disk()
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot, disk.files)
    background(telling.run())
    telling.aim(config, fleet(A, B))
    await settle()
    telling.aim(config, fleet(A, C))
    await settle()
    assert disk.written == [{"fleet": b"ab"}, {"fleet": b"ac"}]
    assert telling.writes == 2


async def test_what_an_envoy_refused_is_not_last_good(journal, config, background):
    disk = Disk()
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot, disk.files)
    background(telling.run())
    journal.answer = Answer.NACKED
    telling.aim(config, fleet(A))
    await settle()
    assert disk.written == []
    journal.answer = Answer.ACKED
    telling.aim(config, fleet(A, B))
    await settle()
    assert disk.written == [{"fleet": b"ab"}]


async def test_a_full_disk_ends_nothing(journal, config, background):
    def full(files):
        raise OSError(28, "No space left on device")

    telling = Telling(journal.envoys, journal.pickers, journal.snapshot, LastGoodFiles(lambda c, f: {}, full))
    background(telling.run())
    telling.aim(config, fleet(A))
    await settle()
    telling.aim(config, fleet(A, B))
    await settle()
    assert telling.failures == {"files": 2}
    assert [line for line in journal.lines if not line.endswith("?")][-2:] == ["envoys ab", "pickers ab"]


async def test_what_envoys_get_that_want_some_pools_only_is_of_the_same_fleet(journal, config, background):
    telling = Telling(journal.envoys, journal.pickers, journal.snapshot)
    background(telling.run())
    both = Fleet((*fleet(A, B).pools, Pool("q", "q", replicas=(C,))))
    telling.aim(config, both)
    await asyncio.wait_for(telling.done.wait(), 5)
    assert journal.fleets[(await journal.parts(frozenset({"q", "unknown"}))).version] == "c"
    assert await journal.parts(frozenset({"unknown"})) is None
    assert journal.lines == ["envoys abc", "acked abc?", "pickers abc"]

import dataclasses
import sqlite3

import pytest

from homing.control.audit import MAX_ENTRIES, Entry
from homing.control.drains import Drain
from homing.control.policies import MAX_KEPT
from homing.control.registrations import Registration
from homing.control.state import FILE, StateError, open_state
from homing.core.policy import Policy, PoolPolicy

DRAINS = tuple(Drain("p", f"r{i}", float(i), i + 60.0) for i in range(200))
ENTRY = Entry(1.0, "127.0.0.1", "drain", "p/a", "deadline_s=60")


async def write(directory, drains=DRAINS, entries=(ENTRY,)):
    state, _ = open_state(directory)
    for drain in drains:
        await state.put_drain(drain)
    for entry in entries:
        await state.put_audit(entry)
    await state.close()


async def read(directory):
    state, saved = open_state(directory)
    await state.close()
    return saved


async def test_what_was_written_is_there_again(tmp_path):
    await write(tmp_path, DRAINS[:2])
    state, saved = open_state(tmp_path)
    assert (saved.drains, saved.audit, saved.aside) == (DRAINS[:2], (ENTRY,), None)
    await state.remove_drain(("p", "r0"))
    ended = Drain("p", "r1", 1.0, 61.0, 30.0, "idle", 0)
    await state.put_drain(ended)
    await state.close()
    assert (await read(tmp_path)).drains == (ended,)


async def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await write(None)
    assert list(tmp_path.iterdir()) == []


async def test_the_audit_log_is_bounded(tmp_path):
    state, _ = open_state(tmp_path)
    rows = [(b"%d" % i,) for i in range(MAX_ENTRIES)]
    with state._connection as connection:
        connection.executemany("INSERT INTO audit (record) VALUES (?)", rows)
    await state.put_audit(ENTRY)
    (count,) = state._connection.execute("SELECT count(*) FROM audit").fetchone()
    await state.close()
    assert count == MAX_ENTRIES


async def test_a_second_service_on_the_same_file_is_refused(tmp_path):
    state, _ = open_state(tmp_path)
    with pytest.raises(StateError, match="another control service has it"):
        open_state(tmp_path)
    await state.close()


async def test_no_database_at_all_is_kept_aside(tmp_path):
    (tmp_path / FILE).write_bytes(b"once upon a time" * 1000)
    saved = await read(tmp_path)
    assert (saved.drains, saved.aside) == ((), tmp_path / f"{FILE}.aside-1")
    assert saved.aside.read_bytes() == b"once upon a time" * 1000
    assert (await read(tmp_path)).aside is None


async def test_of_a_damaged_file_the_good_part_is_kept(tmp_path, caplog):
    await write(tmp_path, entries=[Entry(float(i), "who", "x" * 50, "t" * 100) for i in range(300)])
    whole = (tmp_path / FILE).read_bytes()
    page = 4096
    # a leaf of the audit table in the middle of the file
    middle = next(n for n in range(len(whole) // page // 2, 0, -1) if whole[n * page] == 0x0D)
    damaged = whole[: middle * page] + b"\xff" * page + whole[(middle + 1) * page :]
    (tmp_path / FILE).write_bytes(damaged)
    saved = await read(tmp_path)
    kept = len(saved.drains) + len(saved.audit)
    assert 300 < kept < 500
    assert saved.aside.read_bytes() == damaged
    assert "could be read of it goes on" in caplog.text
    again = await read(tmp_path)
    assert (again.drains, again.audit, again.aside) == (saved.drains, saved.audit, None)


async def test_a_file_of_a_later_version_is_kept_aside_and_what_is_known_of_it_goes_on(tmp_path):
    await write(tmp_path, DRAINS[:3])
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    (tmp_path / f"{FILE}.aside-1").write_bytes(b"earlier")
    saved = await read(tmp_path)
    assert (saved.drains, saved.aside) == (DRAINS[:3], tmp_path / f"{FILE}.aside-2")
    assert (tmp_path / f"{FILE}.aside-1").read_bytes() == b"earlier"


async def test_a_record_that_is_none_does_not_cost_the_others(tmp_path):
    await write(tmp_path, DRAINS[:3])
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE drains SET record = '{\"pool\": 7}' WHERE replica = 'r1'")
    connection.close()
    saved = await read(tmp_path)
    assert saved.drains == (DRAINS[0], DRAINS[2])
    assert saved.aside is not None


async def test_a_registration_without_an_address_does_not_reach_the_fleet(tmp_path):
    state, _ = open_state(tmp_path)
    good = Registration("p", "good", "10.0.0.9:80", 1, None)
    for replica in ("good", "odd"):
        await state.put_registration(dataclasses.replace(good, replica=replica))
    await state.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE registrations SET record = replace(record, ':80', '') WHERE replica = 'odd'")
    connection.close()
    saved = await read(tmp_path)
    assert saved.registrations == (good,)
    assert saved.aside is not None


def test_a_directory_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be used"):
        open_state(tmp_path / "file")


async def test_policies_are_there_again_and_the_oldest_leave(tmp_path):
    state, _ = open_state(tmp_path)
    policies = [Policy(v, 1.0, "who", v == 3, {"p": PoolPolicy("off", {"r": 0.5})}) for v in range(1, MAX_KEPT + 3)]
    for policy in policies:
        assert await state.put_policy(policy)
    await state.close()
    assert (await read(tmp_path)).policies == tuple(policies[2:])

"""What survives a restart of the control service: drains, registrations, the last good answers of sources, the audit
log. SQLite, off the event loop.

Each row holds one record as JSON. A file that is damaged, or of a version that this one does not know, is kept aside
under another name; what can be read of it goes on in a new one. Nothing is ever overwritten.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from homing.control.audit import MAX_ENTRIES, Entry
from homing.control.discovery.source import Found
from homing.control.discovery.sources import Key
from homing.control.drains import Drain
from homing.control.policies import MAX_KEPT
from homing.control.registrations import Registration
from homing.core.placement.load import Place
from homing.core.policy import Policy

log = logging.getLogger(__name__)

FILE = "state.db"
VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS drains (pool TEXT, replica TEXT, record BLOB NOT NULL, PRIMARY KEY (pool, replica));
CREATE TABLE IF NOT EXISTS registrations (pool TEXT, replica TEXT, record BLOB NOT NULL, PRIMARY KEY (pool, replica));
CREATE TABLE IF NOT EXISTS found (pool TEXT, kind TEXT, record BLOB NOT NULL, PRIMARY KEY (pool, kind));
CREATE TABLE IF NOT EXISTS proved (pool TEXT, replica TEXT, record BLOB NOT NULL, PRIMARY KEY (pool, replica));
CREATE TABLE IF NOT EXISTS policies (version INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS audit (id INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
PRAGMA user_version = 1;
"""
TABLES = ("drains", "registrations", "found", "proved", "audit", "policies")

T = TypeVar("T")
Row = tuple[int, bytes]
"""(rowid, record)"""


class StateError(OSError):
    """The state cannot be read or written; its text says why."""


@dataclass(frozen=True, slots=True)
class LastFound:
    """What a source found last."""

    key: Key
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """Which process of a replica was proved fit to serve: when it began, in ms since 1970."""

    place: Place
    epoch: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What an earlier process left. `aside`: where a file that could not be used as it was is kept."""

    drains: tuple[Drain, ...] = ()
    registrations: tuple[Registration, ...] = ()
    found: tuple[LastFound, ...] = ()
    proved: tuple[Proved, ...] = ()
    audit: tuple[Entry, ...] = ()
    policies: tuple[Policy, ...] = ()
    aside: Path | None = None


@dataclass(slots=True)
class _Rows:
    """What could be read of each table. `whole`: that is all there was."""

    by_table: dict[str, list[Row]] = field(default_factory=dict)
    whole: bool = True


class State:
    """One file, one thread. Every write is on the disk when it returns; they raise StateError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")

    async def close(self) -> None:
        await self._run(self._connection.close)
        self._thread.shutdown()

    async def put_drain(self, drain: Drain) -> None:
        row = (*drain.place, msgspec.json.encode(drain))
        await self._write("INSERT OR REPLACE INTO drains VALUES (?, ?, ?)", row)

    async def end_drain(self, before: Drain, ended: Drain) -> bool:
        """True: nobody else writes here."""
        await self.put_drain(ended)
        return True

    async def remove_drain(self, place: Place) -> None:
        await self._write("DELETE FROM drains WHERE pool = ? AND replica = ?", place)

    async def put_registration(self, registration: Registration) -> None:
        row = (*registration.place, msgspec.json.encode(registration))
        await self._write("INSERT OR REPLACE INTO registrations VALUES (?, ?, ?)", row)

    async def remove_registration(self, place: Place) -> None:
        await self._write("DELETE FROM registrations WHERE pool = ? AND replica = ?", place)

    async def note_heard(self, place: Place, ttl_s: float) -> None:
        """What was heard here is known here."""

    async def heard(self, places: Sequence[Place]) -> frozenset[Place]:
        """Nobody is heard of elsewhere."""
        return frozenset()

    async def put_found(self, key: Key, found: tuple[Found, ...]) -> None:
        row = (*key, msgspec.json.encode(LastFound(key, found)))
        await self._write("INSERT OR REPLACE INTO found VALUES (?, ?, ?)", row)

    async def put_proved(self, place: Place, epoch: int) -> None:
        row = (*place, msgspec.json.encode(Proved(place, epoch)))
        await self._write("INSERT OR REPLACE INTO proved VALUES (?, ?, ?)", row)

    async def put_policy(self, policy: Policy) -> bool:
        """The oldest of more than MAX_KEPT leave. True: nobody else writes here."""
        row = (policy.version, msgspec.json.encode(policy))
        await self._write("INSERT OR REPLACE INTO policies VALUES (?, ?)", row)
        await self._write("DELETE FROM policies WHERE version <= ?", (policy.version - MAX_KEPT,))
        return True

    async def put_audit(self, entry: Entry) -> None:
        """The oldest of more than MAX_ENTRIES leave."""
        await self._write("INSERT INTO audit (record) VALUES (?)", (msgspec.json.encode(entry),))
        await self._write("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (MAX_ENTRIES,))

    async def _write(self, statement: str, values: Iterable[object]) -> None:
        def write() -> None:
            with self._connection:
                self._connection.execute(statement, tuple(values))

        try:
            await self._run(write)
        except sqlite3.Error as error:
            raise StateError(f"the state cannot be written: {error}") from error

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def open_state(directory: Path | None) -> tuple[State, Saved]:
    """Blocks. Without a directory the state lives in memory, and ends with the process. Raises StateError when another
    process has it, or the directory cannot be used."""
    if directory is None:
        return State(_new(":memory:")), Saved()
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        rows = _read(path) if path.exists() else None
        if rows is None:
            return State(_new(str(path))), Saved()
        saved, good = _decoded(rows)
        if rows.whole and good:
            return State(_new(str(path))), saved  # with the tables that an earlier release did not have
        aside = _kept_aside(path)
        log.error("%s is damaged or of another version: kept as %s; what could be read of it goes on", path, aside.name)
        made = _new(str(path))
        with made:
            _restore(made, saved)
        return State(made), replace(saved, aside=aside)
    except (sqlite3.Error, OSError) as error:
        reason = "another control service has it" if "locked" in str(error) else str(error)
        raise StateError(f"{path} cannot be used: {reason}") from error


def _connect(path: str) -> sqlite3.Connection:
    """With the lock for as long as it is open: two control services on one file would undo each other's work."""
    connection = sqlite3.connect(path, timeout=1.0, check_same_thread=False)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.commit()
    return connection


def _new(path: str) -> sqlite3.Connection:
    connection = _connect(path)
    connection.executescript(SCHEMA)
    return connection


def _read(path: Path) -> _Rows:
    """Whatever can be read of the file, which stays as it is."""
    rows = _Rows()
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1.0)) as connection:
        try:
            rows.whole = connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
            rows.whole &= connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked, or not to be opened: nothing is wrong with it
                raise
            rows.whole = False
        rows.by_table = {table: _salvaged(connection, table) for table in TABLES}
    return rows


def _salvaged(connection: sqlite3.Connection, table: str) -> list[Row]:
    """All rows; of a damaged table those up to the damage, from both ends."""
    found: dict[int, bytes] = {}
    for order in ("ASC", "DESC"):
        try:
            found.update(connection.execute(f"SELECT rowid, record FROM {table} ORDER BY rowid {order}"))
        except sqlite3.Error:
            continue
    return sorted(found.items())


def _decoded(rows: _Rows) -> tuple[Saved, bool]:
    """And whether every record was one."""
    good = True

    def records(table: str, of: type[T]) -> Iterable[T]:
        nonlocal good
        for _, record in rows.by_table[table]:
            try:
                yield msgspec.json.decode(record, type=of)
            except (msgspec.MsgspecError, TypeError):
                good = False

    saved = Saved(
        tuple(records("drains", Drain)),
        tuple(records("registrations", Registration)),
        tuple(records("found", LastFound)),
        tuple(records("proved", Proved)),
        tuple(records("audit", Entry)),
        tuple(records("policies", Policy)),
    )
    return saved, good


def _kept_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def _restore(connection: sqlite3.Connection, saved: Saved) -> None:
    keyed: dict[str, list[tuple[tuple[str, str], object]]] = {
        "drains": [(drain.place, drain) for drain in saved.drains],
        "registrations": [(registration.place, registration) for registration in saved.registrations],
        "found": [(found.key, found) for found in saved.found],
        "proved": [(proved.place, proved) for proved in saved.proved],
    }
    for table, records in keyed.items():
        rows = ((*key, msgspec.json.encode(record)) for key, record in records)
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", rows)
    kept = ((policy.version, msgspec.json.encode(policy)) for policy in saved.policies)
    connection.executemany("INSERT OR REPLACE INTO policies VALUES (?, ?)", kept)
    connection.executemany("INSERT INTO audit (record) VALUES (?)", ((msgspec.json.encode(e),) for e in saved.audit))

"""What `homing check` finds out about chat templates: those in files at once, the engines' when asked to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homing.control.templates.finding import Finder, Found
    from homing.core.config import Config, PoolConfig
    from homing.core.template.record import Capabilities


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """`record` is None where nothing could be found out; `trouble` says why."""

    pool: str
    source: str
    record: Capabilities | None
    warnings: tuple[str, ...]
    trouble: str

    @property
    def lines(self) -> list[str]:
        if self.trouble:
            return [f"    template ({self.source}): {self.trouble}"]
        head = f"    template ({self.source}): " + ("nothing to say against it" if not self.warnings else "note that")
        return [head, *(f"      - {warning}" for warning in self.warnings)]


async def templates(config: Config, beside: Path, engines: bool) -> tuple[TemplateSummary, ...]:
    """Of each pool with a file or directory, with `engines` of all. `beside`: the file, for relative paths."""
    from random import Random

    from homing.control.engine_transport import EngineTrust
    from homing.control.templates.finding import Finder

    fleet = config.fleet()
    asked = [pool for pool in config.pools if _is_asked(pool, engines)]
    if not asked:
        return ()
    trust = EngineTrust(lambda: (config, fleet), beside)
    async with Finder(beside, Random(), trust) as finder:
        return tuple([await _summary(pool, finder) for pool in asked])


def _is_asked(pool: PoolConfig, engines: bool) -> bool:
    source = pool.template
    return bool(source.file or source.directory) or (engines and source.source == "engine")


async def _summary(pool: PoolConfig, finder: Finder) -> TemplateSummary:
    from homing.control.templates.finding import TROUBLES, where
    from homing.core.template.advice import warnings

    source = where(pool.template)
    try:
        record = (await _found(pool, finder)).record
    except TROUBLES as error:
        return TemplateSummary(pool.id, source, None, (), str(error))
    return TemplateSummary(pool.id, source, record, warnings(record), "")


async def _found(pool: PoolConfig, finder: Finder) -> Found:
    """From the file, or from the first replica that answers. Raises one of TROUBLES."""
    from homing.control.templates.engine import EngineError

    if finder.path_of(pool.template) is not None:
        return await finder.in_files(pool.template)
    trouble = EngineError("no replica")
    for replica in pool.replicas:
        try:
            return await finder.of_engine(str(replica.address), pool.served_name, pool.engine.api_key)
        except EngineError as error:
            trouble = EngineError(f"{replica.address}: {error}")
    raise trouble

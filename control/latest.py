"""A value that is replaced whole, and those who wait for the next one."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The newest value of something. Whoever is slow misses what came between: nothing queues, nothing grows."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._serial = 0
        self._replaced = asyncio.Event()

    @property
    def value(self) -> T:
        return self._value

    @property
    def serial(self) -> int:
        """How often the value was replaced."""
        return self._serial

    def set(self, value: T) -> None:
        self._value = value
        self._serial += 1
        replaced, self._replaced = self._replaced, asyncio.Event()
        replaced.set()

    async def after(self, serial: int) -> tuple[int, T]:
        """The newest (serial, value), as soon as it is a later one than `serial`."""
        while self._serial <= serial:
            await self._replaced.wait()
        return self._serial, self._value

"""Collects what a source says, without waiting for ever."""

import asyncio

import pytest


class Said:
    """The answers of a source, one after the other."""

    def __init__(self, source):
        self._following = source.follow()

    async def next(self):
        async with asyncio.timeout(5):
            return await anext(self._following)

    async def close(self):
        await self._following.aclose()


@pytest.fixture
async def follow():
    opened = []

    def start(source):
        opened.append(Said(source))
        return opened[-1]

    yield start
    for said in opened:
        await said.close()

"""Asynchronous tests of the picker run on the loop that pickers run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop's transports are no asyncio.Transport, for one."""
    return {"uvloop": uvloop.new_event_loop}

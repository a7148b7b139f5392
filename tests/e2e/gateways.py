"""Either data plane with a picker and its standby, for tests that hold for both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from e2e.nginx_stack import NginxStack, nginx_stack
from e2e.stack import SimulatedPool, StaticStack, static_stack

Kind = Literal["envoy", "nginx"]
KINDS: tuple[Kind, ...] = ("envoy", "nginx")
Gateway = StaticStack | NginxStack


@contextlib.contextmanager
def gateway(
    kind: Kind, directory: Path, pools: tuple[SimulatedPool, ...], extra: Mapping[str, object] | None = None
) -> Iterator[Gateway]:
    """Started and ready. NGINX has its own hash."""
    if kind == "envoy":
        with static_stack(directory / kind, pools, extra) as envoy:
            yield envoy
    else:
        hashed = tuple(replace(pool, hash="ketama") for pool in pools)
        with nginx_stack(directory / kind, hashed, extra=extra or {}, pickers=("picker", "standby")) as nginx:
            yield nginx

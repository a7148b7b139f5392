"""The page at `/`: what the API tells, for people. Made on the server, without a script; nothing on it can write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import jinja2

from homing import __version__
from homing.control.api_docs import STYLE
from homing.control.api_models import FleetView, StreamView, XdsView
from homing.control.templates.api import TemplateView

REFRESH_S = 5


def page(fleet: FleetView, templates: Sequence[TemplateView], xds: XdsView, waiting: Sequence[str]) -> str:
    """HTML."""
    return _template().render(
        fleet=fleet,
        refresh_s=REFRESH_S,
        refusals=[(stream, refusal) for stream in xds.streams for refusal in _refusals(stream)],
        style=STYLE,
        templates={t.pool: t for t in templates},
        version=__version__,
        waiting=waiting,
        xds=xds,
    )


def _refusals(stream: StreamView) -> list[tuple[str, str]]:
    """What an Envoy says against what it was told: the type, and its words."""
    return [(name, told.error) for name, told in stream.types.items() if told.error]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(files("homing").joinpath("control", "page", "index.html.j2").read_text())

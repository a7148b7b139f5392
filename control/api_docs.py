"""The API's page at `/docs`, made from its OpenAPI description. No script and nothing from elsewhere: it works where
there is no way out, and nothing on it can write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

import msgspec

STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222}
code,h2{font-family:ui-monospace,monospace}h2{font-size:1rem;margin:1.6rem 0 .2rem}h2 b{color:#05a}
table{border-collapse:collapse}td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a,h2 b{color:#7bf}}"""


class Parameter(msgspec.Struct):
    name: str
    place: str = msgspec.field(name="in")
    required: bool = False
    description: str = ""


class Operation(msgspec.Struct):
    description: str = ""
    summary: str = ""
    parameters: list[Parameter] = []


class Info(msgspec.Struct):
    title: str
    version: str


class Description(msgspec.Struct):
    """What is shown of an OpenAPI document."""

    info: Info
    paths: dict[str, dict[str, Operation]]


def page(openapi: Mapping[str, object]) -> str:
    """HTML."""
    described = msgspec.convert(openapi, Description)
    title = escape(f"{described.info.title} {described.info.version}")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    about = '<p>For machines: <a href="/openapi.json">openapi.json</a>.</p>'
    return f"{head}<h1>{title}</h1>{about}{''.join(_operations(described))}</html>"


def _operations(described: Description) -> Iterator[str]:
    for path, methods in described.paths.items():
        for method, operation in methods.items():
            text = " ".join((operation.description or operation.summary).split())
            yield f"<h2><b>{escape(method.upper())}</b> {escape(path)}</h2><p>{escape(text)}</p>"
            if operation.parameters:
                yield f"<table>{''.join(map(_row, operation.parameters))}</table>"


def _row(parameter: Parameter) -> str:
    need = "required" if parameter.required else "optional"
    cells = (f"<code>{escape(parameter.name)}</code>", f"{parameter.place}, {need}", escape(parameter.description))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

"""What the API tells of chat templates. Documented in docs/api.md."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from homing.control.templates.finding import where
from homing.control.templates.prober import Progress
from homing.core.template.advice import warnings
from homing.core.template.record import Capabilities


class TemplateView(BaseModel):
    """One pool's. `record` is null while nothing is known, `trouble` why; `digest` is empty where only the engine has
    the text."""

    pool: str
    source: str
    trouble: str
    digest: str
    record: dict[str, str | bool] | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, progress: Progress) -> TemplateView:
        found = progress.found
        return cls(
            pool=progress.target.pool_id,
            source=where(progress.target.source),
            trouble=progress.trouble,
            digest=found.text.digest if found and found.text else "",
            record=fields(found.record) if found else None,
            warnings=warnings(found.record) if found else (),
        )


class TemplateText(BaseModel):
    """The text as it was read; `tool_use` is for requests with tools, where there are two."""

    text: str
    tool_use: str | None
    special_tokens: tuple[tuple[str, str], ...]


def template_routes(progress: Mapping[str, Progress]) -> APIRouter:
    routes = APIRouter(prefix="/api")

    @routes.get("/templates")
    async def templates() -> tuple[TemplateView, ...]:
        """What each pool's chat template does to messages, with warnings in plain words."""
        return tuple(map(TemplateView.of, progress.values()))

    @routes.get("/templates/{pool}", responses={404: {}})
    async def template(pool: str) -> TemplateText:
        """One pool's template, for the pickers' proofs. 404 where it is not known, or only the engine has it."""
        known = progress.get(pool)
        text = known.found.text if known and known.found else None
        if text is None:
            raise HTTPException(404, "no text of a chat template")
        return TemplateText(text=text.text, tool_use=text.tool_use, special_tokens=text.special_tokens)

    return routes


def fields(record: Capabilities) -> dict[str, str | bool]:
    """Every field, those at their defaults too."""
    plain: dict[str, str | bool] = msgspec.to_builtins(msgspec.structs.asdict(record))
    return plain

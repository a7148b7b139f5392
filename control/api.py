"""The HTTP side of the control service: the feed, what it knows, its metrics. Documented in docs/api.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry

from homing import __version__
from homing.control import api_control, api_drains, api_explain, api_plan, api_policy, api_replicas, api_sessions
from homing.control.ads_server import AdsServer
from homing.control.api_docs import page
from homing.control.api_models import CertificateView, FleetView, Health, Readiness, XdsView
from homing.control.api_plan import Census
from homing.control.audit import Audit
from homing.control.discovery.sources import Sources
from homing.control.drains import Drains
from homing.control.engine_transport import EngineTrust
from homing.control.feed import Feed
from homing.control.guard import Guard
from homing.control.leadership.peer import Peer
from homing.control.membership import Membership
from homing.control.page import page as overview_page
from homing.control.picker_metrics import PickerMetrics, exposition
from homing.control.picker_sessions import PickerSessions
from homing.control.policies import Policies
from homing.control.registrations import Registrations
from homing.control.reload import Refused
from homing.control.state import StateError
from homing.control.templates.api import TemplateView, template_routes
from homing.control.templates.prober import Progress
from homing.control.tls import Holder
from homing.control.tokens import TokenCheck
from homing.core.fleet import Replica
from homing.core.placement.load import Place

FEED_TIMEOUT_S = 15.0
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

PickerName = Annotated[str, Query(min_length=1, max_length=128, description="the name of the picker that asks")]
Wait = Annotated[float, Query(ge=0, le=FEED_TIMEOUT_S, description="seconds until there is an answer in any case")]
Have = Annotated[str, Query(max_length=64, description="the version it works with; empty for none")]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: by `tokens`, or because everybody who gets here has shown a certificate of ours (`mutual`).
    `holders`: of this process's certificates."""

    tokens: TokenCheck
    mutual: bool = False
    holders: Sequence[Holder] = ()
    engines: EngineTrust | None = None

    @property
    def troubles(self) -> Mapping[str, str]:
        """What is wrong with certificates of engines, by address."""
        return {} if self.engines is None else self.engines.troubles


@dataclass(frozen=True, slots=True)
class Parts:
    """What the API shows. `waiting`: what is still to come before the service is ready, in words; `refused`: why the
    newest file is not used; `unfit`: why a replica is not fit to serve."""

    membership: Membership
    drains: Drains
    census: Census
    registrations: Registrations
    sources: Sources
    audit: Audit
    ads: AdsServer
    feed: Feed
    registry: CollectorRegistry
    pickers: PickerMetrics
    sessions: PickerSessions
    waiting: Callable[[], tuple[str, ...]]
    refused: Callable[[], Refused | None]
    unfit: Callable[[Place], str]
    templates: Mapping[str, Progress]
    access: Access
    peer: Peer | None = None
    policies: Policies | None = None


def create_app(parts: Parts) -> FastAPI:
    app = FastAPI(title="homing control", version=__version__, docs_url=None, redoc_url=None)
    app.include_router(_fleet_routes(parts))
    app.include_router(api_drains.routes(parts.membership, parts.drains, parts.audit))
    app.include_router(api_plan.routes(parts.membership, parts.census))
    app.include_router(api_sessions.routes(parts.sessions, parts.audit))
    app.include_router(api_explain.routes(parts.sessions))
    app.include_router(template_routes(parts.templates))
    app.include_router(api_replicas.routes(parts.membership, parts.registrations, parts.sources, parts.audit))
    if parts.policies is not None:
        app.include_router(api_policy.routes(parts.membership, parts.policies, parts.audit))
    app.include_router(api_control.routes(parts.peer))
    app.include_router(_operations_routes(parts))
    app.add_middleware(Guard, tokens=parts.access.tokens, mutual=parts.access.mutual)

    @app.get("/", include_in_schema=False)
    async def overview() -> HTMLResponse:
        """The page."""
        fleet = _fleet_now(parts)
        templates = tuple(map(TemplateView.of, parts.templates.values()))
        html = overview_page(fleet, templates, XdsView.of(parts.ads), parts.waiting())
        return HTMLResponse(html, headers={"content-security-policy": CONTENT_POLICY})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """Without FastAPI's own page, which loads its scripts from elsewhere."""
        return HTMLResponse(page(app.openapi()), headers={"content-security-policy": CONTENT_POLICY})

    @app.exception_handler(StateError)
    async def not_kept(_: Request, error: StateError) -> Response:
        """What cannot survive a restart is not done."""
        return JSONResponse({"detail": str(error)}, 503)

    @app.exception_handler(RequestValidationError)
    async def not_taken(_: Request, error: RequestValidationError) -> Response:
        """Without what was sent: not everything that JSON's readers take can be written again (1e400)."""
        detail = [{part: each[part] for part in ("type", "loc", "msg")} for each in error.errors()]
        return JSONResponse({"detail": detail}, 422)

    return app


def _fleet_now(parts: Parts) -> FleetView:
    def trouble(pool_id: str, replica: Replica) -> str:
        return parts.access.troubles.get(replica.address, "") or parts.unfit((pool_id, replica.id))

    return FleetView.of(parts.membership.view, parts.feed.version, trouble, parts.refused())


def _fleet_routes(parts: Parts) -> APIRouter:
    routes = APIRouter(prefix="/api")

    @routes.get(
        "/feed",
        responses={200: {"content": {"application/json": {}}, "description": "another fleet"}, 204: {}},
        response_class=Response,
    )
    async def feed(picker: PickerName = "picker", have: Have = "", wait_s: Wait = FEED_TIMEOUT_S) -> Response:
        """The pickers' long poll: the fleet as soon as its version is not `have`, else 204 after 15 s (or `wait_s`).
        A poll acknowledges the version it has."""
        edition = await parts.feed.poll(picker, have, wait_s)
        if edition is None:
            return Response(status_code=204)
        return Response(edition.body, media_type="application/json", headers={"etag": f'"{edition.version}"'})

    @routes.get("/fleet")
    async def fleet() -> FleetView:
        """Pools and replicas, with state and health; and whether the newest file is used."""
        return _fleet_now(parts)

    @routes.get("/certificates")
    async def certificates() -> tuple[CertificateView, ...]:
        """What this process shows and by which certificates it is known, and whether what is on the disk is used."""
        return tuple(CertificateView.of(held) for holder in parts.access.holders for held in tuple(holder.held))

    @routes.get("/xds")
    async def xds() -> XdsView:
        """The newest snapshot, and what each connected Envoy says to it."""
        return XdsView.of(parts.ads)

    return routes


def _operations_routes(parts: Parts) -> APIRouter:
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Health:
        """The process answers."""
        return Health(status="ok")

    @routes.get("/readyz", responses={503: {"model": Readiness}})
    async def readyz(response: Response) -> Readiness:
        """Every replica was probed to a verdict, and the first fleet told."""
        waiting = parts.waiting()
        response.status_code = 503 if waiting else 200
        return Readiness(ready=not waiting, waiting=waiting)

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus' text format: this service's own and those of its pickers."""
        scraped = await parts.pickers.scrape()
        body = await asyncio.to_thread(exposition, parts.registry, scraped)
        return Response(body, media_type=CONTENT_TYPE_LATEST)

    return routes

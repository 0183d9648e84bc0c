"""The port of Prometheus: ``GET /metrics``."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from unskew.service.api.problems import MEDIA_TYPE, Fault
from unskew.service.auth.access import Access
from unskew.service.events.metrics import Metrics
from unskew.service.rest.cross_site import CrossSiteRules

__all__ = ["metrics_app"]


def metrics_app(metrics: Metrics, access: Access, cross_site: CrossSiteRules | None = None) -> ASGIApp:
    """``GET /metrics`` for callers that may read every stream: the names of all are in it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await answer(Request(scope, receive)))(scope, receive, send)

    async def answer(request: Request) -> Response:
        try:
            refusal = cross_site and cross_site.refusal(request.method, request.scope["headers"])
            if refusal:
                metrics.rejected("cross site")
                return _problem(refusal)
            if (request.method, request.scope["path"]) != ("GET", "/metrics"):
                return _problem(Fault("NOT_FOUND", "there is only GET /metrics here"))
            names = request.scope.get("state", {}).get("sans", ())
            access.require(access.identify(request.headers.get("authorization"), names), "Metrics")
            page = await asyncio.to_thread(generate_latest, metrics.registry)
            return Response(page, media_type=CONTENT_TYPE_LATEST)
        except Exception as why:  # noqa: BLE001 - every error becomes a problem document
            return _problem(Fault.of(why))

    return app


def _problem(fault: Fault) -> Response:
    return JSONResponse(fault.problem(), fault.status, fault.headers(), MEDIA_TYPE)

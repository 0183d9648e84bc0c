"""The ASGI application: all operations on FastAPI's router, health, and the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from unskew.core.version import __version__
from unskew.service.api.admission import Admission
from unskew.service.api.budget import ByteBudget
from unskew.service.api.calls import Calls
from unskew.service.api.problems import Fault
from unskew.service.auth.access import Access
from unskew.service.rest.bodies import Bodies
from unskew.service.rest.cross_site import CrossSiteRules
from unskew.service.rest.explain import ExplainOperations
from unskew.service.rest.learning import LearningOperations
from unskew.service.rest.middleware import Observe, RestMiddleware, guarded_routes
from unskew.service.rest.negotiation import JSON, json_answer
from unskew.service.rest.operations import Operations
from unskew.service.rest.page import PageOperations
from unskew.service.rest.plans import PlanOperations
from unskew.service.rest.refusals import framework_problem, problem
from unskew.service.rest.streams import StreamOperations

__all__ = ["RestApp"]


@dataclass(eq=False)
class RestApp:
    """``app`` is the ASGI application. ``store_trouble`` says why the store cannot be asked, or nothing; ``degraded``
    what a replica lacks that is ready. While ``draining`` it is not ready, and closes connections. ``cross_site``: what
    is asked of requests where none needs a credential; ``rejected`` counts those that are refused by it."""

    calls: Calls
    access: Access
    store_trouble: Callable[[], Awaitable[str]]
    budget: ByteBudget
    degraded: Callable[[], str] = str
    observe: Observe = lambda _method, _code, _seconds: None
    max_body_bytes: int = 64 << 20
    max_json_bytes: int = 8 << 20
    cross_site: CrossSiteRules | None = None
    rejected: Callable[[str], None] = lambda _reason: None
    admission: Admission = field(default_factory=lambda: Admission(0.0))
    draining: bool = False

    def __post_init__(self) -> None:
        self.app = FastAPI(
            title="unskew",
            version=__version__,
            description="Where keys should go: report how often each key hash came, get a plan, route by it.",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self.app.router.route_class = guarded_routes(self.access, self.admission, self.budget, self.observe)
        self.app.add_exception_handler(HTTPException, framework_problem)
        before: dict[str, Any] = {"cross_site": self.cross_site, "rejected": self.rejected}
        self.app.add_middleware(RestMiddleware, draining=lambda: self.draining, **before)
        self._operations = Operations(self.app)
        self._add_all()

    def _add_all(self) -> None:
        bodies = Bodies(self.max_body_bytes, self.max_json_bytes)
        for kind in (StreamOperations, PlanOperations, LearningOperations, ExplainOperations):
            kind(self.calls, bodies).add_to(self._operations)
        page = PageOperations(self.calls)
        page.add_to(self._operations)
        page.add_files_to(self.app)
        plain: dict[str, Any] = {"methods": ["GET"], "include_in_schema": False}
        self.app.add_api_route("/healthz", self._live, name="Live", **plain)
        self.app.add_api_route("/readyz", self._ready, name="Ready", **plain)
        self.app.add_api_route("/openapi.json", self._document, name="Describe", **plain)

    async def _live(self) -> Response:
        return Response('{"status":"live"}', media_type=JSON)

    async def _ready(self) -> Response:
        trouble = "the service is draining" if self.draining else await self.store_trouble()
        if trouble:
            return problem(Fault("UNAVAILABLE", trouble))
        lacks = self.degraded()
        return json_answer({"status": "ready", "degraded": lacks} if lacks else {"status": "ready"})

    async def _document(self) -> Response:
        return Response(json.dumps(self.openapi(), ensure_ascii=False), media_type=JSON)

    def openapi(self) -> dict[str, Any]:
        return self._operations.document(open_to_all=self.access.open)

"""Adds operations to the FastAPI application, and writes the OpenAPI document of them.

FastAPI does not read the bodies (``bodies`` does), so the document gets their models here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from unskew.service.api.problems import MEDIA_TYPE
from unskew.service.rest import models
from unskew.service.rest.negotiation import JSON, PROTOBUF

__all__ = ["BYTES", "Operations"]

Json = dict[str, Any]
BYTES = {"type": "string", "format": "binary"}
_PROBLEMS = (400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503)


class Operations:
    def __init__(self, api: FastAPI) -> None:
        self.api = api
        self._bodies: list[type[BaseModel]] = []

    def add(
        self,
        verb: str,
        method: str,
        path: str,
        handler: Callable[..., Any],
        answer: type[BaseModel] | None = None,
        *,
        operation_id: str = "",
        status: int | None = None,
        body: Json | None = None,
        responses: dict[int, Json] | None = None,
        protobuf: bool = True,
    ) -> None:
        """An operation, described by its handler's docstring. ``verb`` has its role in ``ROLE_OF``; ``answer`` is the
        model of the JSON answer, which also comes as ``protobuf``; ``body`` comes from ``self.body``."""
        self.api.add_api_route(
            path,
            handler,
            methods=[method],
            name=verb,
            summary=(handler.__doc__ or verb).partition(".")[0].strip(),
            operation_id=operation_id or verb,
            response_model=answer,
            status_code=status,
            responses=_responses(responses or {}, protobuf=protobuf and answer is not None),
            openapi_extra=body,
        )

    def body(self, model: type[BaseModel], message: str = "", *, required: bool = True) -> Json:
        """The documentation of a body: JSON by its model, and protobuf where a message is named."""
        if model not in self._bodies:
            self._bodies.append(model)
        content: Json = {JSON: {"schema": _ref(model)}}
        if message:
            content[PROTOBUF] = {"schema": {**BYTES, "description": f"an {message}"}}
        return {"requestBody": {"content": content, "required": required}}

    def document(self, *, open_to_all: bool) -> Json:
        """The OpenAPI document, without FastAPI's own error models, which are never sent."""
        document = self.api.openapi()
        inputs: list[Any] = [(model, "validation") for model in (*self._bodies, models.Problem)]
        _, extra = models_json_schema(inputs, ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in extra["$defs"].items():
            schemas.setdefault(name, schema)
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [] if open_to_all else [{"token": []}]
        for path in list(document["paths"]):
            document["paths"][path.replace(":unskew_name", "")] = document["paths"].pop(path)
        return document


def _responses(own: dict[int, Json], *, protobuf: bool) -> dict[int | str, Json]:
    problems = {"description": "a problem", "content": {MEDIA_TYPE: {"schema": _ref(models.Problem)}}}
    responses: dict[int | str, Json] = {code: dict(problems) for code in _PROBLEMS}
    success: Json = {"content": {PROTOBUF: {"schema": BYTES}}} if protobuf else {}
    if protobuf:
        responses[200] = success
    for code, response in own.items():
        responses[code] = {**success, **response} if code in (200, 201) else response
    return responses


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}

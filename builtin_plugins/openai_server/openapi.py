"""The OpenAPI 3.1 document of the server, made from its endpoints
(https://spec.openapis.org/oas/v3.1.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from builtin_plugins.openai_server.answers import JSON, json_answer
from builtin_plugins.openai_server.bounds import Bounds, all_limits, field_bounds
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.hosts import checks_hosts

__all__ = ["document", "openapi_endpoint"]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_OF_BODIES = (400, 408, 413, 415, 429)
_OF_ALL = (500, 503, 504)


def openapi_endpoint(endpoints: Iterable[Endpoint], service: Service) -> Endpoint:
    """`GET /openapi.json` of these endpoints and itself; the document is made when it is first
    asked for."""
    made: list[dict[str, Any]] = []

    async def handler(call: Call[None]) -> Response:
        if not made:
            made.append(document((*endpoints, own), service))
        return json_answer(made[0])

    own = Endpoint("GET", "/openapi.json", handler, "This document", answer=dict[str, Any])
    return own


def document(endpoints: Iterable[Endpoint], service: Service) -> dict[str, Any]:
    """The document as plain values. `x-limits` has all bounds on requests by their names."""
    endpoints = tuple(endpoints)
    schemas = _Schemas(endpoints, field_bounds(service))
    keys = bool(service.config.serving.api_keys)
    of_all = (403, *_OF_ALL) if checks_hosts(service.config.serving) else _OF_ALL
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(_PARAMETER.sub(r"{\1}", endpoint.path), {})
        operations[endpoint.method.lower()] = _operation(endpoint, schemas, keys, of_all)
    components: dict[str, Any] = {"schemas": schemas.components}
    if keys:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "engine-framework", "version": service.engine.info.version},
        "x-limits": all_limits(service),
        "paths": paths,
        "components": components,
    }


class _Schemas:
    """JSON schemas of all types that the endpoints name; structs are shared components."""

    def __init__(self, endpoints: tuple[Endpoint, ...], bounds: Bounds) -> None:
        named: dict[Any, None] = {}
        for endpoint in endpoints:
            types = (endpoint.body, endpoint.answer, endpoint.error_type)
            for kind in (*types, *endpoint.answers.values()):
                if kind is not None:
                    named[kind] = None
        made, self.components = msgspec.json.schema_components(
            named, ref_template="#/components/schemas/{name}"
        )
        self._made = dict(zip(named, made, strict=True))
        seen: set[str] = set()
        for endpoint in endpoints:
            if endpoint.body is not None:
                self._bound(self._made[endpoint.body], bounds, seen)

    def _bound(self, schema: Any, bounds: Bounds, seen: set[str]) -> None:
        """Add the bounds to the fields of a body's schema and of all that it refers to."""
        if isinstance(schema, list):
            for each in schema:
                self._bound(each, bounds, seen)
        if not isinstance(schema, dict):
            return
        name = schema.get("$ref", "").rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            component = self.components[name]
            for field, inner in component.get("properties", {}).items():
                found = bounds.get(f"{name}.{field}", bounds.get(field, {}))
                inner.update({**found, **inner})
            self._bound(component, bounds, seen)
        for each in schema.values():
            self._bound(each, bounds, seen)

    def json(self, kind: Any) -> dict[str, Any]:
        """The `content` of a body of this type; `str`: plain text."""
        media_type = "text/plain" if kind is str else JSON
        return {media_type: {"schema": self._made[kind]}}


def _operation(
    endpoint: Endpoint, schemas: _Schemas, keys: bool, of_all: Iterable[int]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}_{endpoint.path}").strip("_"),
        "responses": _responses(endpoint, schemas, keys, of_all),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": schemas.json(endpoint.body)}
    if keys and not endpoint.public:
        operation["security"] = [{"bearer": []}, {"header": []}]
    return operation


def _responses(
    endpoint: Endpoint, schemas: _Schemas, keys: bool, of_all: Iterable[int]
) -> dict[str, Any]:
    statuses = list(of_all)
    if keys and not endpoint.public:
        statuses.append(401)
    if endpoint.body is not None:
        statuses += _OF_BODIES
        if "model" in endpoint.body.__struct_fields__:
            statuses.append(404)
    types = dict.fromkeys(statuses, endpoint.error_type) | endpoint.answers
    answers = {status: schemas.json(kind) for status, kind in types.items()}
    answers[200] = {} if endpoint.answer is None else schemas.json(endpoint.answer)
    for media_type in endpoint.content_types:
        answers[200][media_type] = {"schema": {"type": "string"}}
    if endpoint.streams:
        answers[200]["text/event-stream"] = {}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status, content in sorted(answers.items())
    }

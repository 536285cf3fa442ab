"""The OpenAPI document, and that the server does what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from builtin_plugins.openai_server.app import build_app, endpoints_of
from builtin_plugins.openai_server.options import OpenAIOptions
from tests.openai_server.fakes import FakeEngine, client_for, context_for

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class PlainEngine(FakeEngine):
    """Its status is as an engine's."""

    def __init__(self) -> None:
        super().__init__()
        self.results["get_status"] = [{"state": "running"}]


def document(**settings: Any) -> dict[str, Any]:
    async def get() -> dict[str, Any]:
        async with client_for(FakeEngine(), **settings) as client:
            headers = {"x-api-key": "k"}
            made: dict[str, Any] = (await client.get("/openapi.json", headers=headers)).json()
            return made

    return asyncio.run(get())


CONTEXT = context_for(PlainEngine(), admin_routes=True)
schema = schemathesis.openapi.from_dict(document(admin_routes=True))
schema.app = build_app(CONTEXT, CONTEXT.options)
schema.config.update(base_url="http://localhost")


@schema.parametrize()
@hypothesis.settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_every_answer_is_as_documented(case: schemathesis.Case[Any]) -> None:
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("model"), str):
        # Names that are not served get no further than that.
        body["model"] = "fake/model"
    case.validate_response(case.call(), checks=CHECKS)


def test_it_holds_every_endpoint() -> None:
    paths = document(admin_routes=True)["paths"]
    held = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    options = OpenAIOptions(admin_routes=True)
    known = {(e.method, e.path.replace(":path}", "}")) for e in endpoints_of(options)}
    assert held == known | {("GET", "/openapi.json")}


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_keys_are_documented_where_they_are_needed(keys: tuple[str, ...]) -> None:
    paths = document(api_keys=keys)["paths"]
    for path, methods in paths.items():
        public = path.startswith("/health") or path == "/ping"
        for operation in methods.values():
            assert ("security" in operation) == (bool(keys) and not public)
            assert ("401" in operation["responses"]) == (bool(keys) and not public)


def test_operations_have_names_of_their_own() -> None:
    paths = document(admin_routes=True)["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(set(names)) == len(names)

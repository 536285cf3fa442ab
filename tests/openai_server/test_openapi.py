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

from builtin_plugins.openai_server.app import build_app, build_service, endpoints_of
from builtin_plugins.openai_server.bounds import field_bounds
from builtin_plugins.openai_server.limits import LIMITS as ALL_LIMITS
from builtin_plugins.openai_server.limits import MESSAGES
from builtin_plugins.openai_server.options import OpenAIOptions
from framework.frontend.validation import validate_params
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import SamplingParams
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


INT32_MAX = 2**31 - 1
LIMITS = CONTEXT.engine.info.limits
FIELDS = {
    "temperature": {"minimum": 0, "maximum": 2},
    "top_p": {"minimum": 0, "maximum": 1},
    "seed": {"minimum": -(2**63), "maximum": 2**64 - 1},
    "n": {"minimum": 1, "maximum": LIMITS.max_n},
    "stop": {"maxItems": LIMITS.max_stop},
    "stop_sequences": {"maxItems": LIMITS.max_stop},
    "max_tokens": {"minimum": 1},
    "max_output_tokens": {"minimum": 1, "maximum": INT32_MAX},
    "messages": {"minItems": 1, "maxItems": MESSAGES.value},
}


@pytest.mark.parametrize("name", FIELDS)
def test_bounds_are_at_the_fields(name: str) -> None:
    schemas = document()["components"]["schemas"]
    bodies = [schemas[body]["properties"] for body in schemas if body.endswith("Body")]
    found = [properties[name] for properties in bodies if name in properties]
    assert found
    for field in found:
        if name == "max_tokens" and "echo" in field.get("description", ""):
            continue  # 0 is allowed there
        assert FIELDS[name].items() <= field.items()


def test_the_bounds_that_are_told_are_those_of_the_engine() -> None:
    fields = field_bounds(build_service(CONTEXT, CONTEXT.options))
    params: dict[str, Any] = {"n": {"temperature": 1.0}, "prompt_logprobs": {}}
    checked = 0
    for name in SamplingParams.__struct_fields__:
        bounds = fields.get(name, {})
        for keyword, outside in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0)):
            if keyword not in bounds or (name, keyword) in ENGINE_ALLOWS:
                continue
            checked += 1
            at = bounds[keyword]
            step = 0.5 if isinstance(getattr(SamplingParams(), name), float) else 1
            others = params.get(name, {})
            if outside:
                engine_checks(SamplingParams(**{**others, name: at}))
            with pytest.raises(InvalidRequestError):
                engine_checks(SamplingParams(**{**others, name: at + outside * step}))
    assert checked > 15


ENGINE_ALLOWS = {
    ("top_p", "minimum"),  # 0 is made temperature 0
    ("logprobs", "minimum"),  # -1: the vocabulary, which bodies can not ask for
    ("prompt_logprobs", "minimum"),
}


def engine_checks(params: SamplingParams) -> None:
    vocab_size = CONTEXT.engine.info.vocab_size
    validate_params(params, limits=LIMITS, vocab_size=vocab_size, has_tokenizer=True)


def test_all_limits_are_named() -> None:
    given = document(max_body_bytes=2048, max_prompts=3)["x-limits"]
    assert {limit.name for limit in ALL_LIMITS} < set(given)
    assert (given["max_body_bytes"]["value"], given["max_prompts"]["value"]) == (2048, 3)
    assert all(one["description"] for one in given.values())


@pytest.mark.parametrize(("keys", "host"), [((), "::1"), ((), "0.0.0.0"), (("k",), "::1")])
def test_403_is_documented_where_hosts_are_checked(keys: tuple[str, ...], host: str) -> None:
    for methods in document(api_keys=keys, host=host)["paths"].values():
        for operation in methods.values():
            assert ("403" in operation["responses"]) == (host == "::1" and not keys)


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

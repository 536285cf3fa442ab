"""Requests made from the OpenAPI document of a running server: none breaks it."""

from __future__ import annotations

from collections.abc import Iterator
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

from tests.server.conftest import Start
from tests.server.process import Server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SETTINGS = hypothesis.settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture
def fuzzed(start: Start, pieces: Any) -> Iterator[Server]:
    """A server without admin routes: those may well stop it."""
    server = start(
        f"scripted:{pieces}",
        *("--executor.worker", "scripted", "--plugins.options.scripted.vocab_size", "400"),
        *("--model.max_model_len", "128", "--stats.loggers", "[]"),
    )
    yield server
    server.check_alive()


def test_every_answer_is_as_documented(fuzzed: Server) -> None:
    """Of every operation: no status of 5xx, and only what the document says."""
    schema = schemathesis.openapi.from_dict(fuzzed.get("/openapi.json").json())
    schema.config.update(base_url=fuzzed.url)
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) > 10
    for operation in operations:

        @SETTINGS
        @hypothesis.given(case=operation.as_strategy())
        def check(case: Any) -> None:
            body = case.body
            if isinstance(body, dict) and isinstance(body.get("model"), str):
                # Names that are not served get no further than that.
                body["model"] = fuzzed.model
            case.validate_response(case.call(base_url=fuzzed.url), checks=CHECKS)

        check()

"""An engine that takes no requests is asked before anything costly is done."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs.errors import EngineUnavailableError, QueueFullError
from tests.openai_server.calls import MODEL, post
from tests.openai_server.fakes import FakeEngine

USER = {"role": "user", "content": "hi"}
BODIES: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/completions", {"prompt": "p"}, 1),
    ("/v1/completions", {"prompt": ["p", "q"], "n": 3}, 6),
    ("/v1/completions", {"prompt": ["p", "q"], "n": 1, "best_of": 4}, 8),
    ("/v1/chat/completions", {"messages": [USER]}, 1),
    ("/v1/chat/completions", {"messages": [USER], "n": 5}, 5),
    ("/v1/responses", {"input": "hi"}, 1),
    ("/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": [USER]}, 1),
    ("/v1/embeddings", {"input": ["a", "b"]}, 2),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status"), [(QueueFullError("full"), 429), (EngineUnavailableError("asleep"), 503)]
)
@pytest.mark.parametrize(("path", "body", "count"), BODIES)
def test_nothing_is_rendered_for_what_is_not_taken(
    path: str, body: dict[str, Any], count: int, refusal: Exception, status: int, stream: bool
) -> None:
    engine = FakeEngine()
    engine.refuses = refusal
    given = body if path == "/v1/embeddings" else {**body, "stream": stream}
    if "best_of" in body and stream:
        return  # which can not be streamed
    answer = post(engine, path, given)
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "1"
    assert engine.admissions == [count]
    assert engine.chats == [] and engine.requests == []


@pytest.mark.parametrize(("path", "body", "count"), BODIES)
def test_it_is_asked_once(path: str, body: dict[str, Any], count: int) -> None:
    engine = FakeEngine()
    assert post(engine, path, body).status_code == 200
    assert engine.admissions == [count]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [USER], "logit_bias": {"a": 1}}),
        ("/v1/chat/completions", {"messages": [USER], "top_logprobs": 3}),
        ("/v1/responses", {"input": "hi", "user": "x" * 300}),
    ],
)
def test_nothing_is_rendered_for_wrong_parameters(path: str, fields: dict[str, Any]) -> None:
    engine = FakeEngine()
    assert post(engine, path, fields).status_code == 400
    assert engine.chats == []

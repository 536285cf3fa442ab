"""Bodies as widely used clients send them by default, on all endpoints that make text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from builtin_plugins.openai_server.features import SHARED, WITHOUT_EFFECT, Features
from builtin_plugins.openai_server.messages_input import FEATURES as OF_MESSAGES
from builtin_plugins.openai_server.responses_input import FEATURES as OF_RESPONSES
from tests.openai_server.calls import MODEL, post
from tests.openai_server.fakes import FakeEngine

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
USER = {"role": "user", "content": "Hi"}
REQUIRED: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": MODEL, "prompt": "Say"},
    CHAT: {"model": MODEL, "messages": [USER]},
    RESPONSES: {"model": MODEL, "input": "Hi"},
    MESSAGES: {"model": MODEL, "messages": [USER], "max_tokens": 16},
    EMBEDDINGS: {"model": MODEL, "input": "Hi"},
}
OPENAI = (COMPLETIONS, CHAT, RESPONSES, EMBEDDINGS)

BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("openai", COMPLETIONS, {}),
    ("openai stream", COMPLETIONS, {"stream": True, "stream_options": {"include_usage": True}}),
    ("openai", CHAT, {}),
    ("openai stream", CHAT, {"stream": True, "stream_options": {"include_usage": True}}),
    ("openai with nulls", CHAT, {"stop": None, "tools": None, "logprobs": None, "user": None}),
    ("openai", RESPONSES, {}),
    (
        "openai agents",
        RESPONSES,
        {
            "include": [],
            "instructions": "Be brief.",
            "tools": [],
            "parallel_tool_calls": None,
            "tool_choice": "auto",
            "reasoning": {"effort": "low", "summary": "auto"},
            "store": True,
            "stream": True,
            "truncation": None,
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
        },
    ),
    (
        "langchain",
        COMPLETIONS,
        {
            "temperature": 0.7,
            "max_tokens": 256,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "n": 1,
            "best_of": 1,
            "logit_bias": {},
            "seed": None,
            "logprobs": None,
        },
    ),
    (
        "langchain",
        CHAT,
        {"stream": False, "temperature": 0.7, "n": 1, "max_completion_tokens": None, "stop": None},
    ),
    (
        "langchain",
        RESPONSES,
        {"stream": False, "temperature": 0.7, "include": ["reasoning.encrypted_content"]},
    ),
    (
        "langchain",
        MESSAGES,
        {"stop_sequences": None, "thinking": None, "stream": False, "output_format": None},
    ),
    ("litellm", COMPLETIONS, {"temperature": 0, "max_tokens": 5, "user": "u", "stream": False}),
    (
        "litellm",
        CHAT,
        {
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "store": False,
        },
    ),
    ("litellm", CHAT, {"reasoning_effort": "low", "service_tier": "auto", "functions": []}),
    ("litellm", RESPONSES, {"stream": False, "metadata": {}, "text": {"format": {"type": "text"}}}),
    ("litellm", MESSAGES, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    (
        "lm-eval",
        COMPLETIONS,
        {
            "prompt": [[1, 2, 3]],
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": 1234,
            "echo": True,
        },
    ),
    (
        "lm-eval until",
        COMPLETIONS,
        {"prompt": ["a"], "max_tokens": 256, "temperature": 0, "stop": ["\n"], "seed": 1234},
    ),
    ("lm-eval", CHAT, {"max_tokens": 256, "temperature": 0, "stop": ["\n"], "seed": 1234}),
    ("ai sdk", COMPLETIONS, {"stream": True, "stream_options": {"include_usage": True}}),
    (
        "ai sdk",
        CHAT,
        {
            "max_completion_tokens": 20,
            "store": False,
            "metadata": {"a": "b"},
            "reasoning_effort": "medium",
            "verbosity": "low",
            "service_tier": "flex",
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
        },
    ),
    (
        "ai sdk",
        RESPONSES,
        {
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "text": {"verbosity": "low"},
            "service_tier": "priority",
            "max_tool_calls": 3,
            "stream_options": {"include_obfuscation": False},
        },
    ),
    ("anthropic", MESSAGES, {}),
    ("anthropic stream", MESSAGES, {"stream": True}),
    (
        "anthropic caching",
        MESSAGES,
        {
            "cache_control": {"type": "ephemeral"},
            "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            "messages": [{**USER, "cache_control": {"type": "ephemeral"}}],
        },
    ),
    (
        "anthropic",
        MESSAGES,
        {
            "speed": "standard",
            "inference_geo": "eu",
            "service_tier": "auto",
            "output_config": {"effort": "high"},
            "metadata": {"user_id": "u"},
            "tools": [],
            "tool_choice": {"type": "auto"},
        },
    ),
]


@pytest.mark.parametrize(("client", "path", "fields"), BODIES)
def test_what_clients_send_by_default_is_answered(
    client: str, path: str, fields: dict[str, Any]
) -> None:
    answer = post(FakeEngine(), path, {**REQUIRED[path], **fields})
    assert answer.status_code == 200, answer.text
    assert '"error":{' not in answer.text


NEUTRAL: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((CHAT, RESPONSES), {"tools": [], "tool_choice": "auto"}),
    ((CHAT, RESPONSES), {"tool_choice": "auto"}),
    ((CHAT, RESPONSES), {"tools": [{"type": "function"}], "tool_choice": "none"}),
    ((CHAT,), {"function_call": "auto"}),
    ((CHAT,), {"top_logprobs": 0}),
    ((CHAT,), {"top_logprobs": 0, "logprobs": False}),
    ((RESPONSES,), {"top_logprobs": 0}),
    ((CHAT,), {"response_format": {}}),
    ((CHAT, COMPLETIONS), {"stream_options": {"include_usage": True}}),
    ((CHAT, COMPLETIONS), {"stream_options": {"include_obfuscation": True}}),
    ((CHAT, COMPLETIONS), {"stream": True, "stream_options": {"include_obfuscation": True}}),
    ((RESPONSES,), {"stream": True, "stream_options": {"include_obfuscation": True}}),
    ((MESSAGES,), {"tools": [{"name": "f"}], "tool_choice": {"type": "none"}}),
    (OPENAI, {"store": True}),
    (OPENAI, {"prompt_cache_key": "k", "prompt_cache_retention": "24h"}),
    ((*OPENAI, MESSAGES), {"guided_json": None, "another": None}),
    *((OPENAI, {"service_tier": tier}) for tier in ("auto", "default", "flex", "priority")),
    *(((CHAT,), {"reasoning_effort": effort}) for effort in ("none", "xhigh", "any")),
    *(((CHAT,), {"verbosity": verbosity}) for verbosity in ("low", "medium", "any")),
]


@pytest.mark.parametrize(("paths", "fields"), NEUTRAL)
def test_what_asks_for_nothing_is_taken_by_all_endpoints_alike(
    paths: tuple[str, ...], fields: dict[str, Any]
) -> None:
    for path in paths:
        answer = post(FakeEngine(), path, {**REQUIRED[path], **fields})
        assert answer.status_code == 200, (path, answer.text)


REFUSED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((CHAT, RESPONSES, MESSAGES), {"tools": [{"type": "function", "name": "f"}]}),
    ((CHAT, RESPONSES), {"tool_choice": "required"}),
    ((MESSAGES,), {"tool_choice": {"type": "any"}}),
    ((MESSAGES,), {"speed": "fast"}),
    ((MESSAGES,), {"output_format": {"type": "json_schema"}}),
    ((MESSAGES,), {"output_config": {"format": {"type": "json_schema"}}}),
    ((RESPONSES,), {"text": {"format": {"type": "json_schema"}}}),
    ((RESPONSES,), {"truncation": "auto"}),
    (OPENAI, {"service_tier": "scale"}),
    ((*OPENAI, MESSAGES), {"guided_json": {}}),
    ((*OPENAI, MESSAGES), {"guided_json": False}),
]


@pytest.mark.parametrize(("paths", "fields"), REFUSED)
def test_what_does_not_exist_is_refused_by_all_endpoints_alike(
    paths: tuple[str, ...], fields: dict[str, Any]
) -> None:
    for path in paths:
        engine = FakeEngine()
        answer = post(engine, path, {**REQUIRED[path], **fields})
        assert answer.status_code == 400, (path, answer.text)
        assert next(iter(fields)) in answer.json()["error"]["message"]
        assert engine.requests == []


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("given", "tenant"),
    [
        ({"safety_identifier": "s"}, "s"),
        ({"user": "u", "safety_identifier": "s"}, "u"),
        ({"tenant": "t", "user": "u", "safety_identifier": "s"}, "t"),
    ],
)
def test_the_tenant(path: str, given: dict[str, str], tenant: str) -> None:
    engine = FakeEngine()
    assert post(engine, path, {**REQUIRED[path], **given}).status_code == 200
    assert engine.requests[0].options["tenant"] == tenant
    for name in given:
        long = post(FakeEngine(), path, {**REQUIRED[path], name: "x" * 257})
        assert name == "tenant" or long.json()["error"]["param"] == name


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, RESPONSES, MESSAGES])
def test_top_p_0_takes_the_most_likely_token(path: str) -> None:
    engine = FakeEngine()
    body = {**REQUIRED[path], "top_p": 0, "temperature": 1}
    assert post(engine, path, body).status_code == 200
    params = engine.requests[0].params
    assert (params.temperature, params.top_p, params.greedy) == (0.0, 1.0, True)


def test_a_response_has_a_seed() -> None:
    engine = FakeEngine()
    post(engine, RESPONSES, {**REQUIRED[RESPONSES], "seed": 7})
    assert engine.requests[0].params.seed == 7


def test_the_tier_that_serves_is_said_where_one_was_given() -> None:
    body = {**REQUIRED[CHAT], "service_tier": "flex"}
    assert post(FakeEngine(), CHAT, body).json()["service_tier"] == "default"
    streamed = post(FakeEngine(), CHAT, {**body, "stream": True}).text
    assert streamed.count('"service_tier":"default"') == streamed.count('"choices"') > 0
    assert "service_tier" not in post(FakeEngine(), CHAT, REQUIRED[CHAT]).json()
    response = post(FakeEngine(), RESPONSES, {**REQUIRED[RESPONSES], "service_tier": "flex"})
    assert response.json()["service_tier"] == "default"


def without_effect(features: Features, prefix: str = "") -> Iterator[str]:
    for name, neutral in features.items():
        if neutral == WITHOUT_EFFECT:
            yield prefix + name
        elif isinstance(neutral, Mapping):
            yield from without_effect(neutral, f"{prefix}{name}.")


def test_the_manual_names_every_field_without_effect() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"have no effect:(.*?)\n\n", manual, re.DOTALL)
    named = set(re.findall(r"`([a-z_.]+)`", told))
    features = (SHARED, OF_RESPONSES, OF_MESSAGES)
    assert named == {name for each in features for name in without_effect(each)} | {"service_tier"}

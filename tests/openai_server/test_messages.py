"""`POST /v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookspecs.errors import EngineDeadError, InvalidRequestError, QueueFullError
from hookspecs.types.sampling import OutputKind, SamplingParams
from tests.openai_server.fakes import FakeEngine, Step, client_for, serving, steps

MODEL = "fake/model"
TURN = {"role": "user", "content": "Hi"}
OPENING = ["message_start", "content_block_start", "ping"]
CLOSING = ["content_block_stop", "message_delta", "message_stop"]
DELTA = "content_block_delta"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 50, "messages": [TURN], **fields}


def post(engine: FakeEngine, content: Any, path: str = "", **settings: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_for(engine, **settings) as http:
            headers = {"anthropic-version": "2023-06-01", "x-api-key": "key"}
            return await http.post("/v1/messages" + path, json=content, headers=headers)

    return asyncio.run(main())


def stream(engine: FakeEngine, **fields: Any) -> list[dict[str, Any]]:
    """The data of the events, after a check that each has its name before it."""
    answer = post(engine, body(stream=True, **fields))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def text(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"]["text"] for event in events if event["type"] == DELTA)


def assert_failure(answer: httpx.Response, status: int, kind: str) -> str:
    """The message of an error in the form of the Messages API."""
    assert answer.status_code == status, answer.text
    failure = answer.json()
    assert failure["type"] == "error" and failure["error"]["type"] == kind, failure
    assert failure["request_id"] == answer.headers["x-request-id"]
    assert set(failure) == {"type", "error", "request_id"}
    return str(failure["error"]["message"])


def test_answer_has_text_and_usage() -> None:
    engine = FakeEngine(steps("Grüß", " dich", " 👋"))
    engine.num_cached_tokens = 3
    answer = post(engine, body()).json()
    prompt = engine.requests[0].prompt_token_ids
    assert answer.pop("id").startswith("msg")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "Grüß dich 👋"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(prompt) - 3,
            "output_tokens": 3,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
        },
    }
    assert engine.requests[0].params.output_kind is OutputKind.FINAL_ONLY


@pytest.mark.parametrize(
    ("last", "reason", "sequence"),
    [
        (Step("b", finish="stop"), "end_turn", None),
        (Step("b", finish="stop", stop_reason=7), "end_turn", None),
        (Step("b", finish="stop", stop_reason="END"), "stop_sequence", "END"),
        (Step("b", finish="length"), "max_tokens", None),
    ],
)
def test_stop_reasons(last: Step, reason: str, sequence: str | None) -> None:
    answer = post(FakeEngine([Step("a"), last]), body()).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
    events = stream(FakeEngine([Step("a"), last]))
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_parameters_overlay_the_recommended_ones() -> None:
    engine = FakeEngine()
    engine.defaults = SamplingParams(temperature=0.6, top_k=20, top_p=0.9)
    post(engine, body(top_k=5, stop_sequences=["END"], metadata={"user_id": "me"}))
    params = engine.requests[0].params
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 5, 0.9)
    assert (params.max_tokens, params.stop) == (50, ["END"])
    assert engine.requests[0].options["tenant"] == "me"


def test_turns_become_messages() -> None:
    engine = FakeEngine()
    system = [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "In German."},
    ]
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": "there"},
        {"role": "assistant", "content": "Hallo"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    post(engine, body(system=system, messages=turns))
    assert engine.chats[0]["messages"] == [
        {"role": "system", "content": "Be brief.\nIn German."},
        {"role": "user", "content": "Hi\n\nthere"},
        {"role": "assistant", "content": "Hallo"},
        {"role": "user", "content": "a\nb"},
    ]


def test_stream_has_the_events_in_order() -> None:
    engine = FakeEngine(steps("Hel", "lo", " 👋"))
    engine.num_cached_tokens = 2
    events = stream(engine)
    prompt = engine.requests[0].prompt_token_ids
    assert types(events) == [*OPENING, DELTA, DELTA, DELTA, *CLOSING]
    message = events[0]["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    assert message["usage"]["input_tokens"] == len(prompt) - 2
    assert message["usage"]["cache_read_input_tokens"] == 2
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    block["content_block"] = {"type": "text", "text": ""}
    assert events[1] == block and events[2] == {"type": "ping"}
    assert events[3] == {
        "type": DELTA,
        "index": 0,
        "delta": {"type": "text_delta", "text": "Hel"},
    }
    assert text(events) == "Hello 👋"
    assert events[-3] == {"type": "content_block_stop", "index": 0}
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 3
    assert events[-1] == {"type": "message_stop"}
    assert engine.requests[0].params.output_kind is OutputKind.DELTA


def test_stream_of_length_says_max_tokens() -> None:
    events = stream(FakeEngine(steps("a", "b", "c", "d")), max_tokens=2)
    assert text(events) == "ab"
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    assert events[-2]["usage"]["output_tokens"] == 2


def test_character_over_several_tokens_is_one_delta() -> None:
    data = "👋".encode()
    events = stream(FakeEngine([Step(data[:2]), Step(data[2:]), Step("!")]))
    assert types(events) == [*OPENING, DELTA, DELTA, *CLOSING]
    assert text(events) == "👋!" and events[-2]["usage"]["output_tokens"] == 3


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=6))
@settings(max_examples=40)
def test_deltas_make_up_the_text(texts: list[str]) -> None:
    script = [*map(Step, texts), Step(finish="stop")]
    events = stream(FakeEngine(script))
    assert text(events) == "".join(texts)
    assert post(FakeEngine(script), body()).json()["content"][0]["text"] == text(events)
    num_deltas = sum(bool(one) for one in texts)
    assert types(events) == [*OPENING, *[DELTA] * num_deltas, *CLOSING]


def test_output_without_text_has_all_events_but_deltas() -> None:
    events = stream(FakeEngine([Step(token_ids=[5], finish="stop")]))
    assert types(events) == [*OPENING, *CLOSING]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (Step(raises=EngineDeadError("the engine has stopped")), "overloaded_error"),
        (Step(finish="error", error="out of luck"), "api_error"),
        (Step(finish="abort"), "overloaded_error"),
        (Step(finish="timeout", error="too late"), "timeout_error"),
    ],
)
def test_error_in_a_stream_is_its_last_event(bad: Step, kind: str) -> None:
    events = stream(FakeEngine([Step("He"), bad]))
    assert types(events) == [*OPENING, DELTA, "error"]
    assert events[-1]["error"]["type"] == kind and events[-1]["error"]["message"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("bad", "status", "kind"),
    [
        (Step(raises=EngineDeadError("gone")), 503, "overloaded_error"),
        (Step(raises=QueueFullError("full")), 429, "rate_limit_error"),
        (Step(raises=InvalidRequestError("too long")), 400, "invalid_request_error"),
        (Step(finish="error", error="out of luck"), 500, "api_error"),
        (Step(finish="timeout"), 504, "timeout_error"),
        (Step(finish="abort"), 503, "overloaded_error"),
    ],
)
def test_error_before_the_first_token_is_a_status(
    bad: Step, status: int, kind: str, streamed: bool
) -> None:
    assert assert_failure(post(FakeEngine([bad]), body(stream=streamed)), status, kind)


def test_errors_of_the_server_have_the_form_too() -> None:
    engine = FakeEngine()
    assert_failure(post(engine, body(), api_keys=("other",)), 401, "authentication_error")
    large = body(system="x" * 3000)
    assert_failure(post(engine, large, max_body_bytes=2048), 413, "request_too_large")
    assert_failure(post(engine, body(model="other")), 404, "not_found_error")
    assert_failure(post(engine, {}), 400, "invalid_request_error")
    assert engine.requests == []


def test_the_key_is_taken_from_its_header() -> None:
    assert post(FakeEngine(), body(), api_keys=("key",)).status_code == 200


@pytest.mark.parametrize(
    "harmless",
    [
        {"tools": [], "tool_choice": {"type": "auto"}, "stop_sequences": []},
        {"thinking": {"type": "disabled"}, "cache_control": {"type": "ephemeral"}},
        {"service_tier": "auto", "metadata": {}, "mcp_servers": [], "system": ""},
        {"metadata": {"user_id": None}, "container": None, "output_config": {}},
    ],
)
def test_fields_that_ask_for_nothing_are_taken(harmless: dict[str, Any]) -> None:
    answer = post(FakeEngine(), body(**harmless))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "'image'"),
        ({"messages": [TURN, {"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_res"),
        ({"messages": [TURN, {"role": "assistant", "content": "The"}]}, "continuing"),
        ({"messages": [TURN] * 5000}, "limit"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 2000}]},
            "lim",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"metadata": {"name": "x"}}, "name"),
        ({"metadata": {"user_id": "x" * 300}}, "metadata.user_id"),
        ({"unknown_field": 1}, "unknown_field"),
    ],
)
def test_what_can_not_be_served_is_refused_by_name(fields: dict[str, Any], word: str) -> None:
    engine = FakeEngine()
    answer = post(engine, body(**fields))
    assert word in assert_failure(answer, 400, "invalid_request_error")
    assert engine.requests == []


@pytest.mark.parametrize("field", ["model", "max_tokens", "messages"])
def test_what_is_missing_is_named(field: str) -> None:
    content = body()
    del content[field]
    answer = post(FakeEngine(), content)
    assert field in assert_failure(answer, 400, "invalid_request_error")


def test_count_tokens_counts_the_prompt_and_generates_nothing() -> None:
    engine = FakeEngine()
    content = {"model": MODEL, "messages": [TURN], "system": "Be brief."}
    answer = post(engine, content, "/count_tokens")
    post(engine, body(system="Be brief."))
    assert answer.json() == {"input_tokens": len(engine.requests[0].prompt_token_ids)}
    assert len(engine.requests) == 1


def test_count_tokens_refuses_what_messages_refuses() -> None:
    content = {"model": MODEL, "messages": [], "tools": [{"name": "f"}]}
    answer = post(FakeEngine(), content, "/count_tokens")
    assert "tools" in assert_failure(answer, 400, "invalid_request_error")


def test_a_stream_that_the_client_leaves_is_closed() -> None:
    async def main() -> None:
        engine = FakeEngine([Step("Hello"), Step("never", gate=asyncio.Event())])
        content = body(stream=True)
        async with (
            serving(engine) as http,
            http.stream("POST", "/v1/messages", json=content) as got,
        ):
            async for line in got.aiter_lines():
                if line == f"event: {DELTA}":
                    break
        await asyncio.wait_for(engine.requests[0].ended.wait(), 30)
        assert engine.requests[0].closed

    asyncio.run(main())


def test_an_answer_that_the_client_leaves_is_closed() -> None:
    async def main() -> None:
        reached = asyncio.Event()
        engine = FakeEngine([Step("never", reached=reached, gate=asyncio.Event())])
        async with serving(engine) as http:
            asking = asyncio.create_task(http.post("/v1/messages", json=body()))
            await asyncio.wait_for(reached.wait(), 30)
            asking.cancel()
            await asyncio.wait_for(engine.requests[0].ended.wait(), 30)
        assert engine.requests[0].closed

    asyncio.run(main())

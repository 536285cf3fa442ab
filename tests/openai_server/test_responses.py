"""`POST /v1/responses`, through the OpenAI client where that can send it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from hookspecs.errors import EngineDeadError, InvalidRequestError, QueueFullError
from hookspecs.types.sampling import OutputKind, SamplingParams
from tests.openai_server.fakes import FakeEngine, Step, client_for, serving, steps

T = TypeVar("T")
MODEL = "fake/model"
OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
CLOSING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
DELTA = "response.output_text.delta"


def ask(engine: FakeEngine, use: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
    async def main() -> T:
        http: Any
        async with client_for(engine) as http:
            client = openai.AsyncOpenAI(
                api_key="none", base_url="http://localhost/v1", http_client=http, max_retries=0
            )
            return await use(client)

    return asyncio.run(main())


def create(engine: FakeEngine, **arguments: Any) -> Response:
    async def use(client: openai.AsyncOpenAI) -> Response:
        fields: dict[str, Any] = {"model": MODEL, "input": "Hi", **arguments}
        response = await client.responses.create(**fields)
        assert isinstance(response, Response)
        return response

    return ask(engine, use)


def stream(engine: FakeEngine, **arguments: Any) -> list[Any]:
    async def use(client: openai.AsyncOpenAI) -> list[Any]:
        fields = {"model": MODEL, "input": "Hi", "stream": True, **arguments}
        return [event async for event in await client.responses.create(**fields)]

    return ask(engine, use)


def post(engine: FakeEngine, body: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with client_for(engine) as http:
            return await http.post("/v1/responses", json=body)

    return asyncio.run(main())


def test_answer_has_text_and_usage() -> None:
    engine = FakeEngine(steps("Grüß", " dich", " 👋"))
    engine.num_cached_tokens = 3
    response = create(engine)
    Response.model_validate(response.model_dump(), strict=False)
    assert response.output_text == "Grüß dich 👋"
    assert (response.status, response.model, response.object) == ("completed", MODEL, "response")
    assert response.incomplete_details is None and response.error is None
    assert response.output[0].type == "message"
    assert response.output[0].status == "completed" and response.output[0].role == "assistant"
    prompt = engine.requests[0].prompt_token_ids
    assert response.usage is not None
    assert response.usage.input_tokens == len(prompt)
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert response.usage.output_tokens == 3
    assert response.usage.total_tokens == len(prompt) + 3
    assert response.usage.output_tokens_details.reasoning_tokens == 0


def test_answer_is_strictly_what_the_client_declares() -> None:
    engine = FakeEngine()
    answer = post(engine, {"model": MODEL, "input": "Hi", "metadata": {"a": "b"}}).json()
    Response.model_validate(answer)
    assert answer["store"] is False and answer["metadata"] == {"a": "b"}


def test_length_is_incomplete() -> None:
    engine = FakeEngine(steps("a", "b", "c", "d"))
    response = create(engine, max_output_tokens=2)
    assert response.status == "incomplete" and response.output_text == "ab"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].type == "message" and response.output[0].status == "incomplete"
    assert response.max_output_tokens == 2 and response.completed_at is None


def test_parameters_overlay_the_recommended_ones() -> None:
    engine = FakeEngine()
    engine.defaults = SamplingParams(temperature=0.6, top_k=20, top_p=0.9)
    response = create(engine, top_p=0.5, user="me", max_output_tokens=7)
    params = engine.requests[0].params
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 20, 0.5)
    assert (params.max_tokens, params.output_kind) == (7, OutputKind.FINAL_ONLY)
    assert (response.temperature, response.top_p, response.user) == (0.6, 0.5, "me")
    assert engine.requests[0].options["tenant"] == "me"


def test_safety_identifier_is_the_tenant() -> None:
    engine = FakeEngine()
    create(engine, safety_identifier="someone")
    assert engine.requests[0].options["tenant"] == "someone"


def test_items_become_messages() -> None:
    engine = FakeEngine()
    create(
        engine,
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "In German."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {
                "type": "message",
                "id": "msg-1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hallo", "annotations": []}],
            },
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "one"},
                    {"type": "input_text", "text": "two"},
                ],
            },
        ],
    )
    assert engine.chats[0]["messages"] == [
        {"role": "system", "content": "Be brief.\n\nIn German."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hallo"},
        {"role": "user", "content": "one\ntwo"},
    ]


def test_output_can_be_sent_back_as_input() -> None:
    engine = FakeEngine()
    first = create(engine)
    again = [{"role": "user", "content": "Hi"}, *[item.to_dict() for item in first.output]]
    create(engine, input=[*again, {"role": "user", "content": "More"}])
    assert engine.chats[1]["messages"][1] == {"role": "assistant", "content": first.output_text}


def test_stream_has_the_events_in_order() -> None:
    engine = FakeEngine(steps("Hel", "lo", " 👋"))
    engine.num_cached_tokens = 2
    events = stream(engine)
    assert [event.type for event in events] == [
        *OPENING,
        *[DELTA] * 3,
        *CLOSING,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == DELTA) == "Hello 👋"
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    item = events[2].item
    assert item.status == "in_progress" and item.content == []
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {item.id}
    assert events[7].text == events[8].part.text == events[9].item.content[0].text == "Hello 👋"
    final = events[-1].response
    assert final.id == events[0].response.id and final.output_text == "Hello 👋"
    assert final.usage.output_tokens == 3 and final.usage.input_tokens_details.cached_tokens == 2
    assert engine.requests[0].params.output_kind is OutputKind.DELTA


def test_stream_is_named_events_without_done() -> None:
    text = post(FakeEngine(), {"model": MODEL, "input": "Hi", "stream": True}).text
    blocks = [block.split("\n") for block in text.removesuffix("\n\n").split("\n\n")]
    for name, data in blocks:
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
    assert "[DONE]" not in text


def test_stream_helper_of_the_client_accumulates() -> None:
    async def use(client: openai.AsyncOpenAI) -> tuple[str, Any]:
        async with client.responses.stream(model=MODEL, input="Hi") as events:
            texts = [e.snapshot async for e in events if e.type == "response.output_text.delta"]
            return texts[-1], await events.get_final_response()

    text, final = ask(FakeEngine(steps("a", "b", "c")), use)
    assert text == final.output_text == "abc"


def test_stream_of_length_is_incomplete() -> None:
    events = stream(FakeEngine(steps("a", "b", "c", "d")), max_output_tokens=3)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].response.output[0].status == "incomplete"
    assert events[-1].response.output_text == "abc"


def test_character_over_several_tokens_is_one_delta() -> None:
    data = "👋".encode()
    events = stream(FakeEngine([Step(data[:2]), Step(data[2:]), Step("!")]))
    assert [event.delta for event in events if event.type == DELTA] == ["👋", "!"]
    assert events[-1].response.usage.output_tokens == 3


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=6))
@settings(max_examples=40)
def test_deltas_make_up_the_text(texts: list[str]) -> None:
    events = stream(FakeEngine([*map(Step, texts), Step(finish="stop")]))
    text = "".join(texts)
    assert "".join(event.delta for event in events if event.type == DELTA) == text
    assert events[-1].response.output_text == text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_output_without_text_has_all_events_but_deltas() -> None:
    events = stream(FakeEngine([Step(token_ids=[5], finish="stop")]))
    assert [event.type for event in events] == [*OPENING, *CLOSING, "response.completed"]
    assert events[-1].response.output_text == ""


@pytest.mark.parametrize(
    "bad",
    [
        Step(raises=EngineDeadError("the engine has stopped")),
        Step(finish="error", error="out of luck"),
        Step(finish="abort"),
        Step(finish="timeout", error="too late"),
    ],
)
def test_error_in_a_stream_is_its_last_event(bad: Step) -> None:
    events = stream(FakeEngine([Step("He"), bad]))
    assert [event.type for event in events] == [*OPENING, DELTA, "response.failed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    failed = events[-1].response
    assert failed.status == "failed" and failed.error.code == "server_error"
    assert failed.error.message
    assert failed.output_text == "He" and failed.output[0].status == "incomplete"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (Step(raises=EngineDeadError("gone")), 503),
        (Step(raises=QueueFullError("full")), 429),
        (Step(raises=InvalidRequestError("too long", param="prompt")), 400),
        (Step(finish="error", error="out of luck"), 500),
        (Step(finish="timeout"), 504),
        (Step(finish="abort"), 503),
    ],
)
def test_error_before_the_first_token_is_a_status(bad: Step, status: int, streamed: bool) -> None:
    answer = post(FakeEngine([bad]), {"model": MODEL, "input": "Hi", "stream": streamed})
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_logprobs_need_include() -> None:
    include = ["message.output_text.logprobs"]
    response = create(FakeEngine(steps("x", "yz")), include=include, top_logprobs=2)
    Response.model_validate(response.to_dict())
    item = response.output[0]
    assert item.type == "message" and item.content[0].type == "output_text"
    logprobs = item.content[0].logprobs
    assert logprobs is not None and [one.token for one in logprobs] == ["x", "yz"]
    assert all(len(one.top_logprobs) == 2 for one in logprobs)
    assert logprobs[1].bytes == list(b"yz")
    assert response.top_logprobs == 2


def test_logprobs_in_a_stream() -> None:
    engine = FakeEngine(steps("x", "yz"))
    events = stream(engine, include=["message.output_text.logprobs"])
    assert engine.requests[0].params.logprobs == 0
    tokens = [one.token for event in events if event.type == DELTA for one in event.logprobs]
    done = next(event for event in events if event.type == "response.output_text.done")
    final = events[-1].response.output[0].content[0]
    assert tokens == [one.token for one in done.logprobs] == ["x", "yz"]
    assert [one.token for one in final.logprobs] == ["x", "yz"]


def test_no_logprobs_unless_asked_for() -> None:
    engine = FakeEngine()
    create(engine)
    assert engine.requests[0].params.logprobs is None


@pytest.mark.parametrize(
    "harmless",
    [
        {"store": True},
        {"store": False},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"reasoning": {"effort": None, "summary": None}},
        {"truncation": "disabled", "include": [], "background": False},
        {"previous_response_id": None, "stream_options": {"include_obfuscation": False}},
        {"service_tier": "auto", "prompt_cache_key": "key", "max_tool_calls": 3},
    ],
)
def test_fields_that_ask_for_nothing_are_taken(harmless: dict[str, Any]) -> None:
    answer = post(FakeEngine(), {"model": MODEL, "input": "Hi", **harmless})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp-1"}, "previous_response_id"),
        ({"conversation": "conv-1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"shape": 1}}, "text.shape"),
        ({"reasoning": {"mode": "deep"}}, "reasoning.mode"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"background": True}, "background"),
        ({"service_tier": "fast"}, "service_tier"),
        ({"stream_options": {"every": 2}}, "stream_options.every"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input[0]"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}]},
            "input[0].content[0]",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    engine = FakeEngine()
    answer = post(engine, {"model": MODEL, "input": "Hi", **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["code"] == "unsupported"
    assert engine.requests == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0]",
        ),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": -1, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"unknown_field": 1}, "unknown_field"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    engine = FakeEngine()
    answer = post(engine, {"model": MODEL, "input": "Hi", **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param, answer.text
    assert engine.requests == []


@pytest.mark.parametrize(
    ("item", "content"),
    [
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"role": "assistant", "content": []}, ""),
        ({"role": "user", "content": []}, ""),
        ({"role": "user", "content": ""}, ""),
    ],
)
def test_contents_without_text_and_refusals(item: dict[str, Any], content: str) -> None:
    engine = FakeEngine()
    given = {"model": MODEL, "input": [item, {"role": "user", "content": "x"}]}
    assert post(engine, given).status_code == 200
    assert engine.chats[0]["messages"][0]["content"] == content


def test_bounds_of_a_conversation() -> None:
    items = [{"role": "user", "content": "x"}]
    parts = [{"type": "input_text", "text": "x"}]
    for bad in (items * 5000, [{"role": "user", "content": parts * 2000}]):
        answer = post(FakeEngine(), {"model": MODEL, "input": bad})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "limit_exceeded"
    answer = post(FakeEngine(), {"model": MODEL, "input": "Hi", "safety_identifier": "x" * 300})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "safety_identifier"


def test_unknown_model_is_not_found() -> None:
    answer = post(FakeEngine(), {"model": "other", "input": "Hi"})
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"


def test_template_that_refuses_is_a_bad_request() -> None:
    engine = FakeEngine()
    engine.chat_error = InvalidRequestError("roles must alternate", param="messages")
    assert post(engine, {"model": MODEL, "input": "Hi"}).status_code == 400


def test_a_stream_that_the_client_leaves_is_closed() -> None:
    async def main() -> None:
        never = asyncio.Event()
        engine = FakeEngine([Step("Hello"), Step("never", gate=never)])
        body = {"model": MODEL, "input": "Hi", "stream": True}
        async with serving(engine) as http, http.stream("POST", "/v1/responses", json=body) as got:
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
            body = {"model": MODEL, "input": "Hi"}
            asking = asyncio.create_task(http.post("/v1/responses", json=body))
            await asyncio.wait_for(reached.wait(), 30)
            asking.cancel()
            await asyncio.wait_for(engine.requests[0].ended.wait(), 30)
        assert engine.requests[0].closed

    asyncio.run(main())

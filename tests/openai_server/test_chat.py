"""`POST /v1/chat/completions`, through the OpenAI client where that can send it."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from hookspecs.errors import InvalidRequestError
from hookspecs.types.outputs import Logprob
from hookspecs.types.sampling import OutputKind, SamplingParams
from tests.openai_server.calls import MODEL, ask, post, post_events
from tests.openai_server.fakes import FakeEngine, Step, steps

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}


def create(engine: FakeEngine, **arguments: Any) -> ChatCompletion:
    given = {"model": MODEL, "messages": [USER], **arguments}

    async def use(client: openai.AsyncOpenAI) -> ChatCompletion:
        answer: ChatCompletion = await client.chat.completions.create(**given)
        return answer

    return ask(engine, use)


def refused(engine: FakeEngine, status: int = 400, **arguments: Any) -> dict[str, Any]:
    response = post(engine, PATH, {"messages": [USER], **arguments})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["message"]
    return dict(error)


def joined(events: list[Any], index: int = 0) -> dict[str, Any]:
    """All chunks of one choice in the form of an answer's choice."""
    whole: dict[str, Any] = {"index": index, "finish_reason": None, "logprobs": None}
    message: dict[str, Any] = {"refusal": None, "content": ""}
    for choice in (each for event in events for each in event["choices"]):
        if choice["index"] != index:
            continue
        assert whole["finish_reason"] is None
        assert ("role" in choice["delta"]) == ("role" not in message)
        message["content"] += choice["delta"].pop("content", "")
        message.update(choice["delta"])
        whole["finish_reason"] = choice["finish_reason"]
        if choice["logprobs"]:
            whole["logprobs"] = whole["logprobs"] or {"content": [], "refusal": None}
            whole["logprobs"]["content"] += choice["logprobs"]["content"]
        if "token_ids" in choice:
            whole["token_ids"] = whole.get("token_ids", []) + choice["token_ids"]
        for name in ("stop_reason", "prompt_logprobs"):
            if name in choice:
                whole[name] = choice[name]
    return {**whole, "message": message}


def both(engine: FakeEngine, **body: Any) -> dict[str, Any]:
    """The first choice, which streamed is the same as in one piece."""
    given = {"messages": [USER], **body}
    (first, *_) = post(engine, PATH, given).json()["choices"]
    assert joined(post_events(engine, PATH, given)) == first
    return dict(first)


def test_answer_is_what_the_client_knows() -> None:
    engine = FakeEngine()
    answer = create(engine)
    assert ChatCompletion.model_validate(answer.model_dump(exclude_none=True)) == answer
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello world!")
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("user: Hi\nassistant: ")
    assert answer.usage.completion_tokens == 3
    (request,) = engine.requests
    assert request.prompt["prompt"] == "user: Hi\nassistant: "
    assert request.request_id == answer.id
    assert request.params == SamplingParams(output_kind=OutputKind.FINAL_ONLY)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 6, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 0}, 0),
    ],
)
def test_max_tokens(given: dict[str, Any], expected: int | None) -> None:
    engine = FakeEngine()
    engine.defaults = SamplingParams(max_tokens=99)
    assert post(engine, PATH, {"messages": [USER], **given}).status_code == 200
    assert engine.requests[0].params.max_tokens == expected


def test_a_length_ends_with_length() -> None:
    answer = create(FakeEngine(), max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"


def test_messages_as_the_template_gets_them() -> None:
    engine = FakeEngine()
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    cut = {"id": "2", "type": "function", "function": {"name": "f", "arguments": '{"x'}}
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call, cut]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
        {"role": "assistant", "content": "c", "refusal": None, "annotations": [], "audio": None},
        {"role": "user", "content": "d", "name": "Ann"},
    ]
    create(
        engine,
        messages=messages,
        extra_body={"add_generation_prompt": False, "chat_template_kwargs": {"thinking": False}},
    )
    assert engine.chats == [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "a\nb"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {**call, "function": {"name": "f", "arguments": {"x": 1}}},
                        cut,
                    ],
                },
                {"role": "tool", "content": "2", "tool_call_id": "1"},
                {"role": "assistant", "content": "c"},
                {"role": "user", "content": "d", "name": "Ann"},
            ],
            "add_generation_prompt": False,
            "tools": [],
            "template_arguments": {"thinking": False},
        }
    ]


def refusal(text: str) -> dict[str, str]:
    return {"type": "refusal", "refusal": text}


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"role": "assistant"}, ""),
        ({"role": "assistant", "content": None}, ""),
        ({"role": "assistant", "content": None, "tool_calls": []}, ""),
        ({"role": "assistant", "content": [], "tool_calls": [{"id": "1"}]}, ""),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, None),
        ({"role": "assistant", "content": [refusal("No.")]}, "No."),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, refusal("b")]},
            "a\nb",
        ),
        ({"role": "user", "content": []}, ""),
        ({"role": "tool", "content": [], "tool_call_id": "1"}, ""),
        ({"role": "user", "content": ""}, ""),
    ],
)
def test_contents_without_text_and_refusals(message: dict[str, Any], content: str | None) -> None:
    engine = FakeEngine()
    assert post(engine, PATH, {"messages": [message, USER]}).status_code == 200
    assert engine.chats[0]["messages"][0]["content"] == content


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hi", "messages"),
        (["Hi"], "messages[0]"),
        ([{"content": "a"}], "messages[0].role"),
        ([USER, {"role": "robot", "content": "a"}], "messages[1].role"),
        ([USER, {"role": "user", "content": None}], "messages[1].content"),
        ([{"role": "system"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [refusal("No.")]}], "messages[0].content[0]"),
        ([{"role": "assistant", "content": [{"type": "refusal"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
            "messages[0].content[1]",
        ),
    ],
)
def test_messages_that_are_none(messages: Any, param: str) -> None:
    engine = FakeEngine()
    error = refused(engine, messages=messages)
    assert error["param"] == param
    assert engine.requests == []


def test_other_parts_are_named() -> None:
    parts = [{"type": "input_audio", "input_audio": {"data": ""}}]
    error = refused(FakeEngine(), messages=[{"role": "user", "content": parts}])
    assert "'input_audio'" in error["message"]
    assert error["code"] == "unsupported"


def test_errors_of_the_template_are_the_callers() -> None:
    engine = FakeEngine()
    engine.chat_error = InvalidRequestError("roles must alternate", param="messages")
    for stream in (False, True):
        error = refused(engine, stream=stream)
        assert (error["message"], error["param"]) == ("roles must alternate", "messages")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [TOOL]},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"functions": [{"name": "f"}]},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"functions": [{"name": "f"}], "function_call": "auto"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "x", "format": "wav"}},
        {"prediction": {"type": "content", "content": "x"}},
        {"web_search_options": {"user_location": {"type": "approximate"}}},
        {"service_tier": "fast"},
        {"continue_final_message": True},
    ],
)
def test_what_is_not_supported_is_refused(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    for stream in (False, True):
        error = refused(engine, **body, stream=stream)
        assert (error["code"], error["param"]) == ("unsupported", next(iter(body)))
    assert engine.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {"tools": []},
        {"tools": [TOOL], "tool_choice": "none"},
        {"functions": None, "function_call": "none"},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"store": False, "service_tier": "auto", "parallel_tool_calls": True},
        {"continue_final_message": False},
    ],
)
def test_what_asks_for_nothing_is_taken(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    assert post(engine, PATH, {"messages": [USER], **body}).status_code == 200
    assert engine.chats[0]["tools"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"top_logprobs": 2},
        {"logprobs": False, "top_logprobs": 2},
        {"logprobs": True, "top_logprobs": -1},
        {"logprobs": True, "top_logprobs": True},
        {"logprobs": True, "top_logprobs": 101},
        {"logprobs": True, "top_logprobs": 1_000_000},
        {"logprobs": 3},
        {"max_completion_tokens": 0},
        {"n": 5_000_000},
        {"max_completion_tokens": "5"},
        {"echo": True},
        {"chat_template_kwargs": []},
    ],
)
def test_wrong_fields_are_named(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    assert refused(engine, **body)["param"] == next(reversed(body))
    assert engine.requests == []


def test_unknown_model() -> None:
    error = refused(FakeEngine(), 404, model="other")
    assert (error["code"], error["param"]) == ("model_not_found", "model")


# Logprobs


@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_exactly_so_many_alternatives(top: int) -> None:
    engine = FakeEngine(steps("x", "y"))
    choice = both(engine, logprobs=True, top_logprobs=top)
    assert engine.requests[0].params.logprobs == top
    assert [len(each["top_logprobs"]) for each in choice["logprobs"]["content"]] == [top, top]


def test_an_unlikely_token_is_not_among_the_alternatives() -> None:
    engine = FakeEngine(steps("x"))
    engine.logprobs_of = lambda token, count: {  # type: ignore[method-assign]
        token: Logprob(float("-inf"), 900, "x"),
        ord("a"): Logprob(-0.1, 1, "a"),
        ord("b"): Logprob(-0.2, 2, "b"),
    }
    (entry,) = both(engine, logprobs=True, top_logprobs=2)["logprobs"]["content"]
    assert (entry["token"], entry["logprob"]) == ("x", -9999.0)
    assert [each["token"] for each in entry["top_logprobs"]] == ["a", "b"]


def test_bytes_are_exact_and_tokens_are_text() -> None:
    emoji = "😀".encode()
    engine = FakeEngine([Step(emoji[:2]), Step(emoji[2:]), Step("é")])
    choice = both(engine, logprobs=True, top_logprobs=20)
    entries = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries) == "😀é".encode()
    assert [entry["token"] for entry in entries] == ["bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "é"]
    assert choice["message"]["content"] == "😀é"


def test_extras() -> None:
    script = [Step("x"), Step("", token_ids=[9], finish="stop", stop_reason=9)]
    choice = both(FakeEngine(script), return_token_ids=True, prompt_logprobs=1, stop_token_ids=[9])
    assert choice["token_ids"] == [ord("x"), 9]
    assert choice["stop_reason"] == 9
    assert choice["prompt_logprobs"][0] is None
    assert len(choice["prompt_logprobs"]) == len("user: Hi\nassistant: ")


# Streams


def test_stream_through_the_client() -> None:
    async def use(client: openai.AsyncOpenAI) -> list[Any]:
        given: dict[str, Any] = {"model": MODEL, "messages": [USER], "n": 2}
        stream = await client.chat.completions.create(
            **given, stream=True, stream_options={"include_usage": True}
        )
        return [chunk async for chunk in stream]

    *chunks, last = ask(FakeEngine(), use)
    opening, following = chunks[:2], chunks[2:]
    assert [(each.choices[0].index, each.choices[0].delta.role) for each in opening] == [
        (0, "assistant"),
        (1, "assistant"),
    ]
    assert all(each.choices[0].delta.content == "" for each in opening)
    assert all(each.choices[0].delta.role is None for each in following)
    for index in (0, 1):
        mine = [each.choices[0] for each in following if each.choices[0].index == index]
        assert "".join(choice.delta.content for choice in mine) == "Hello world!"
        assert [choice.finish_reason for choice in mine] == [None, None, "stop"]
    assert {(each.id, each.created, each.model, each.object) for each in chunks} == {
        (last.id, last.created, MODEL, "chat.completion.chunk")
    }
    assert all(each.usage is None for each in chunks)
    assert last.choices == []
    assert last.usage.completion_tokens == 6


def test_usage_is_where_it_was_asked_for() -> None:
    plain = post_events(FakeEngine(), PATH, {"messages": [USER]})
    assert all("usage" not in event and event["choices"] for event in plain)
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = post_events(FakeEngine(), PATH, {"messages": [USER], "stream_options": options})
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 1, 2, 3, 3]
    aborted = FakeEngine([Step("a"), Step(finish="abort")])
    options = {"include_usage": True}
    events = post_events(aborted, PATH, {"messages": [USER], "stream_options": options})
    assert "usage" not in events[-1]
    assert events[-1]["error"]["code"] == "aborted"


def test_an_output_without_text() -> None:
    choice = both(FakeEngine([Step("", token_ids=[9], finish="stop")]))
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_reasons_are_the_same_streamed_and_not(finish: str) -> None:
    assert both(FakeEngine(steps("a", "b", finish=finish)))["finish_reason"] == finish


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (Step(finish="error", error="broke"), 500),
        (Step(finish="timeout", error="broke"), 504),
        (Step(finish="abort"), 503),
    ],
)
def test_failures(step: Step, status: int) -> None:
    said = step.error or "gave the request up"
    for stream in (False, True):
        assert said in refused(FakeEngine([step]), status, stream=stream)["message"]
    *_, last = post_events(FakeEngine([Step("a"), step]), PATH, {"messages": [USER]})
    assert said in last["error"]["message"]


def test_the_client_raises_for_an_error_in_a_stream() -> None:
    async def use(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        text = ""
        with pytest.raises(openai.APIError, match="broke"):
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        return text

    script = [Step("a"), Step("b"), Step(finish="error", error="broke")]
    assert ask(FakeEngine(script), use) == "ab"

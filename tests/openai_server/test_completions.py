"""`POST /v1/completions`, through the OpenAI client where that can send it."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest
from openai.types import Completion

from hookspecs.errors import EngineDeadError, InvalidRequestError, QueueFullError
from hookspecs.types.outputs import Logprob
from hookspecs.types.sampling import OutputKind, SamplingParams
from tests.openai_server.calls import MODEL, ask, post, post_events
from tests.openai_server.fakes import FakeEngine, Step, steps

PATH = "/v1/completions"


def create(engine: FakeEngine, **arguments: Any) -> Completion:
    given = {"model": MODEL, "prompt": "Say", **arguments}

    async def use(client: openai.AsyncOpenAI) -> Completion:
        answer: Completion = await client.completions.create(**given)
        return answer

    return ask(engine, use)


def refused(engine: FakeEngine, status: int = 400, **arguments: Any) -> dict[str, Any]:
    response = post(engine, PATH, {"prompt": "Say", **arguments})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["message"]
    return dict(error)


def joined(events: list[Any], index: int = 0) -> dict[str, Any]:
    """All chunks of one choice in one."""
    whole: dict[str, Any] = {"text": "", "finish_reason": None, "logprobs": None}
    for choice in (each for event in events for each in event["choices"]):
        if choice["index"] != index:
            continue
        assert whole["finish_reason"] is None
        whole["text"] += choice["text"]
        whole["finish_reason"] = choice["finish_reason"]
        for name, values in (choice["logprobs"] or {}).items():
            whole["logprobs"] = whole["logprobs"] or {}
            whole["logprobs"][name] = whole["logprobs"].get(name, []) + values
        for name in ("token_ids", "prompt_logprobs"):
            if name in choice:
                whole[name] = whole.get(name, []) + choice[name]
        if "stop_reason" in choice:
            whole["stop_reason"] = choice["stop_reason"]
    return whole


def both(engine: FakeEngine, **body: Any) -> dict[str, Any]:
    """The first choice, which streamed is the same as in one piece."""
    given = {"prompt": "Say", **body}
    (first, *_) = post(engine, PATH, given).json()["choices"]
    streamed = joined(post_events(engine, PATH, given))
    assert streamed == {name: value for name, value in first.items() if name != "index"}
    return dict(first)


def test_answer_is_what_the_client_knows() -> None:
    engine = FakeEngine()
    answer = create(engine)
    assert Completion.model_validate(answer.model_dump(exclude_none=True)) == answer
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.model == MODEL
    assert abs(answer.created - time.time()) < 600
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, "Hello world!", "stop")
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.to_dict() == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    (request,) = engine.requests
    assert request.prompt == "Say"
    assert request.request_id == answer.id
    assert request.params == SamplingParams(max_tokens=16, output_kind=OutputKind.FINAL_ONLY)


def test_every_parameter_reaches_the_engine() -> None:
    engine = FakeEngine()
    given: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 2**63,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.25,
        "repetition_penalty": 1.5,
        "allowed_token_ids": [1, 2],
        "bad_words": ["bad"],
        "max_tokens": 9,
        "min_tokens": 2,
        "stop": ["x", "y"],
        "stop_token_ids": [3],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "logprobs": 2,
        "prompt_logprobs": 1,
        "extensions": {"p": {"a": 1}},
        "n": 2,
    }
    response = post(engine, PATH, {"prompt": "Say", "logit_bias": {"5": -1.5}, **given})
    assert response.status_code == 200
    (request,) = engine.requests
    expected = SamplingParams(
        **{**given, "logit_bias": {5: -1.5}, "output_kind": OutputKind.FINAL_ONLY}
    )
    assert request.params == expected


def test_what_is_not_given_is_as_the_authors_recommend() -> None:
    engine = FakeEngine()
    engine.defaults = SamplingParams(temperature=0.6, top_k=20, max_tokens=5)
    create(engine, temperature=None, top_p=0.5)
    params = engine.requests[0].params
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 20, 0.5)
    assert params.max_tokens == 16
    assert engine.defaults == SamplingParams(temperature=0.6, top_k=20, max_tokens=5)


def test_who_asks_reaches_the_engine() -> None:
    engine = FakeEngine()
    trace = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "v=1"}
    before = time.monotonic()
    create(
        engine,
        user="u",
        extra_headers=trace,
        extra_body={
            "priority": -3,
            "cache_salt": "s",
            "metadata": {"k": "v"},
            "deadline_ms": 60_000,
        },
    )
    create(engine, user="u", extra_body={"tenant": "t"})
    options = engine.requests[0].options
    deadline = options.pop("deadline")
    assert before + 60 <= deadline <= time.monotonic() + 60
    assert options == {
        "priority": -3,
        "tenant": "u",
        "cache_salt": "s",
        "labels": {"k": "v"},
        "trace_headers": trace,
    }
    assert engine.requests[1].options == {
        "priority": 0,
        "tenant": "t",
        "cache_salt": "",
        "labels": None,
        "trace_headers": None,
        "deadline": None,
    }


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ["a"]),
        (["a", "bc"], ["a", "bc"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_forms_of_a_prompt(prompt: Any, expected: list[Any]) -> None:
    engine = FakeEngine()
    answer = create(engine, prompt=prompt)
    assert [request.prompt for request in engine.requests] == expected
    assert len({request.request_id for request in engine.requests}) == len(expected)
    assert all(request.request_id.startswith(answer.id) for request in engine.requests)
    assert [choice.index for choice in answer.choices] == list(range(len(expected)))


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        [""],
        [[]],
        ["ok", ""],
        [[1], []],
        ["a", 1],
        [1, "a"],
        [1, [2]],
        [[1], 2],
        [[1], "a"],
        ["a", [1]],
        [True],
        [1, False],
        [1.5],
        [1.0],
        [[1, None]],
        [None],
        [{}],
        [[[1]]],
        {"prompt": "a"},
        None,
        7,
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_prompts_that_are_none(prompt: Any, stream: bool) -> None:
    engine = FakeEngine()
    error = refused(engine, prompt=prompt, stream=stream)
    assert error["param"].startswith("prompt")
    assert engine.requests == []


def test_bounds_on_the_number_of_prompts_and_outputs() -> None:
    engine = FakeEngine()
    response = post(engine, PATH, {"prompt": ["a"] * 3}, max_prompts=2)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert refused(engine, n=5_000_000)["param"] == "n"
    assert refused(engine, prompt=["a"] * 200, n=100)["param"] == "n"
    assert refused(engine, best_of=5_000_000)["param"] == "best_of"
    assert engine.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_choices_of_prompts_times_n(stream: bool) -> None:
    engine = FakeEngine(scripts=[steps("a", "b"), steps("c", "d", finish="length")])
    body = {"prompt": ["p", "q"], "n": 2}
    if stream:
        events = post_events(engine, PATH, body)
        found = [joined(events, index) for index in range(4)]
    else:
        found = post(engine, PATH, body).json()["choices"]
        assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    assert [(choice["text"], choice["finish_reason"]) for choice in found] == [
        ("ab", "stop"),
        ("ab", "stop"),
        ("cd", "length"),
        ("cd", "length"),
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 16), ({"max_tokens": None}, None), ({"max_tokens": 3}, 3), ({"max_tokens": 0}, 0)],
)
def test_max_tokens(given: dict[str, Any], expected: int | None) -> None:
    engine = FakeEngine()
    post(engine, PATH, {"prompt": "Say", **given})
    assert engine.requests[0].params.max_tokens == expected


def test_a_length_ends_with_length() -> None:
    assert create(FakeEngine(), max_tokens=2).choices[0].finish_reason == "length"


def test_what_the_engine_refuses_names_its_field() -> None:
    engine = FakeEngine()
    engine.refuses = InvalidRequestError("top_p is 0; it must be (0, 1]", param="top_p")
    for stream in (False, True):
        error = refused(engine, top_p=0, stream=stream)
        assert (error["param"], error["type"]) == ("top_p", "invalid_request_error")


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": True},
        {"temperature": "1"},
        {"max_tokens": "5"},
        {"max_tokens": True},
        {"max_tokens": 1.5},
        {"max_tokens": 1e3},
        {"priority": "high"},
        {"seed": 0.5},
        {"top_k": "1"},
        {"top_k": 1.5},
        {"stop": 5},
        {"stop": [1]},
        {"logprobs": -1},
        {"logprobs": True},
        {"prompt_logprobs": -1},
        {"logit_bias": {"a": 1}},
        {"logit_bias": {"-1": 1}},
        {"logit_bias": {"1.0": 1}},
        {"logit_bias": {"9" * 5000: 1}},
        {"logit_bias": {"1": "x"}},
        {"logit_bias": [1]},
        {"deadline_ms": 0},
        {"priority": 1.5},
        {"metadata": {"a": 1}},
        {"metadata": {str(n): "" for n in range(17)}},
        {"best_of": 0},
        {"stream": "yes"},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        {"service_tier": "fast"},
        {"stream": True, "stream_options": {"x": 1}},
        {"suffix": "end"},
        {"guided_json": {}},
        {"temprature": 1},
    ],
)
def test_wrong_fields_are_named(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    name = next(reversed(body))
    assert refused(engine, **body)["param"].startswith(name)
    assert engine.requests == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"'])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty"])
def test_no_number_is_not_finite(name: str, number: str) -> None:
    engine = FakeEngine()
    response = post(engine, PATH, f'{{"prompt": "a", "{name}": {number}}}'.encode())
    assert response.status_code == 400
    json.loads(response.text, parse_constant=pytest.fail)
    assert engine.requests == []


def test_models() -> None:
    engine = FakeEngine()
    error = refused(engine, 404, model="other")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert post(engine, PATH, {"prompt": "a"}).json()["model"] == MODEL
    assert post(engine, PATH, {"prompt": "a", "model": None}).status_code == 200


# Choices with logprobs and echo


def test_logprobs_follow_the_tokens() -> None:
    choice = both(FakeEngine(steps("Hello", " world")), logprobs=3)
    assert choice["logprobs"]["tokens"] == ["Hello", " world"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 5]
    assert [len(each) for each in choice["logprobs"]["top_logprobs"]] == [3, 3]


def test_offsets_stay_inside_a_text_that_a_stop_string_cut() -> None:
    script = [
        Step("ab"),
        Step("c", token_ids=[1000]),
        Step("", token_ids=[1001]),
        Step("", token_ids=[1002], finish="stop", stop_reason="STOP"),
    ]
    engine = FakeEngine(script)
    names = {1000: "cST", 1001: "O", 1002: "P"}
    by_bytes = engine.logprobs_of

    def logprobs_of(token: int, count: int) -> dict[int, Logprob]:
        if token in names:
            return {token: Logprob(-0.5, 1, names[token])}
        return by_bytes(token, count)

    engine.logprobs_of = logprobs_of  # type: ignore[method-assign]
    choice = both(engine, logprobs=1, stop="STOP", return_token_ids=True)
    assert choice["text"] == "abc"
    assert choice["stop_reason"] == "STOP"
    assert choice["logprobs"]["tokens"] == ["ab", "cST", "O", "P"]
    assert choice["logprobs"]["text_offset"] == [0, 2, 3, 3]
    assert len(choice["token_ids"]) == 4


def test_infinite_logprobs_become_the_lowest_number() -> None:
    engine = FakeEngine(steps("a"))
    infinite = Logprob(float("-inf"), 2, "b")
    engine.logprobs_of = lambda token, count: {  # type: ignore[method-assign]
        token: Logprob(-0.0, 1, "a"),
        98: infinite,
        99: Logprob(float("nan"), 3, "c"),
    }
    choice = both(engine, logprobs=2, top_p=0.3)
    assert choice["logprobs"]["top_logprobs"] == [{"a": 0.0, "b": -9999.0, "c": -9999.0}]


def test_alternatives_with_the_same_text_are_all_there() -> None:
    engine = FakeEngine(steps("a"))
    engine.logprobs_of = lambda token, count: {  # type: ignore[method-assign]
        token: Logprob(-0.5, 1, "a"),
        0xF0: Logprob(-1.0, 2, ""),
        0x9F: Logprob(-2.0, 3, ""),
        500: Logprob(-3.0, 4, "a"),
        501: Logprob(-4.0, 5, "?"),
        502: Logprob(-5.0, 6, "?"),
    }
    names = both(engine, logprobs=6)["logprobs"]["top_logprobs"][0]
    assert list(names.values()) == [-0.5, -1.0, -2.0, -3.0, -4.0, -5.0]
    assert list(names)[:3] == ["a", "bytes:\\xf0", "bytes:\\x9f"]


def test_echo() -> None:
    assert both(FakeEngine(), echo=True)["text"] == "SayHello world!"
    assert both(FakeEngine(), prompt=[79, 107], echo=True)["text"] == "OkHello world!"
    assert create(FakeEngine(), echo=True, n=2).choices[1].text == "SayHello world!"


def test_echo_with_logprobs_has_the_prompt_too() -> None:
    engine = FakeEngine(steps("!", "?"))
    choice = both(engine, echo=True, logprobs=1)
    assert engine.requests[0].params.prompt_logprobs == 1
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["S", "a", "y", "!", "?"]
    assert logprobs["token_logprobs"] == [None, -0.5, -0.5, -0.5, -0.5]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][1] == {"a": -0.5}
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4]
    assert "prompt_logprobs" not in choice


def test_a_prompt_can_be_scored_without_output() -> None:
    engine = FakeEngine()
    choice = both(engine, echo=True, logprobs=1, max_tokens=0)
    assert engine.requests[0].params.max_tokens == 1
    assert (choice["text"], choice["finish_reason"]) == ("Say", "length")
    assert len(choice["logprobs"]["tokens"]) == 3
    answer = create(engine, echo=True, max_tokens=0)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


def test_prompt_logprobs_and_token_ids() -> None:
    engine = FakeEngine(steps("x"))
    choice = both(engine, prompt_logprobs=2, return_token_ids=True)
    first, second, _third = choice["prompt_logprobs"]
    assert first is None
    assert second[str(ord("a"))] == {"logprob": -0.5, "rank": 1, "decoded_token": "a"}
    assert len(second) == 2
    assert choice["token_ids"] == [ord("x")]
    answer = post(engine, PATH, {"prompt": ["a", "b"], "prompt_logprobs": 0, "n": 2}).json()
    assert ["prompt_logprobs" in choice for choice in answer["choices"]] == [True, False] * 2


def test_best_of_gives_those_with_the_best_mean() -> None:
    class Scored(FakeEngine):
        async def generate(self, *args: Any, **options: Any) -> Any:
            async for output in super().generate(*args, **options):
                scores = (-4.0, -1.0, -3.0)
                for completion, score in zip(output.outputs, scores, strict=True):
                    completion.cumulative_logprob = score * len(completion.token_ids)
                    completion.text = str(score)
                yield output

    engine = Scored()
    answer = create(engine, n=2, best_of=3)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "-1.0"), (1, "-3.0")]
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    assert (engine.requests[0].params.n, engine.requests[0].params.logprobs) == (3, 0)


def test_best_of_that_can_not_be() -> None:
    engine = FakeEngine()
    assert refused(engine, n=3, best_of=2)["param"] == "best_of"
    assert refused(engine, best_of=2, stream=True)["param"] == "best_of"
    assert refused(engine, best_of=2, temperature=0)["param"] == "best_of"
    assert len(post_events(engine, PATH, {"prompt": "a", "best_of": 1})) == 3


# Streams


def test_stream_through_the_client() -> None:
    async def use(client: openai.AsyncOpenAI) -> list[Completion]:
        stream = await client.completions.create(
            model=MODEL, prompt="Say", stream=True, stream_options={"include_usage": True}
        )
        return [chunk async for chunk in stream]

    engine = FakeEngine()
    *chunks, last = ask(engine, use)
    assert [chunk.choices[0].text for chunk in chunks] == ["Hello", " world", "!"]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]
    assert {(chunk.id, chunk.created, chunk.object) for chunk in chunks} == {
        (last.id, last.created, "text_completion")
    }
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 3)
    assert engine.requests[0].params.output_kind is OutputKind.DELTA


def test_usage_is_where_it_was_asked_for() -> None:
    plain = post_events(FakeEngine(), PATH, {"prompt": "Say"})
    assert all("usage" not in event and event["choices"] for event in plain)
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = post_events(FakeEngine(), PATH, {"prompt": "Say", "stream_options": options})
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 3]
    body = {"prompt": ["a", "bc"], "n": 2, "stream_options": {"include_usage": True}}
    *events, last = post_events(FakeEngine(), PATH, body)
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 3
    assert last["usage"]["completion_tokens"] == 12


def test_text_of_every_kind_goes_through_a_stream() -> None:
    script = steps('"', "\\", "\n\n", "\u2028", "é", "\0text\0", "data: [DONE]", "end")
    choice = both(FakeEngine(script))
    assert choice["text"] == '"\\\n\n\u2028é\0text\0data: [DONE]end'


def test_nothing_is_sent_for_a_part_of_a_character() -> None:
    emoji = "😀".encode()
    events = post_events(
        FakeEngine([Step(emoji[:2]), Step(emoji[2:]), Step("!")]), PATH, {"prompt": "a"}
    )
    assert [event["choices"][0]["text"] for event in events] == ["😀", "!"]


# Failures


@pytest.mark.parametrize(
    ("step", "status", "message"),
    [
        (Step(finish="error", error="NaN in the logits"), 500, "NaN in the logits"),
        (Step(finish="timeout", error="too late"), 504, "too late"),
        (Step(finish="abort"), 503, "gave the request up"),
        (Step(raises=EngineDeadError("gone")), 503, "gone"),
    ],
)
def test_failures(step: Step, status: int, message: str) -> None:
    for stream in (False, True):
        assert message in refused(FakeEngine([step]), status, stream=stream)["message"]
    assert message in refused(FakeEngine([Step("a"), step]), status)["message"]
    *events, last = post_events(FakeEngine([Step("a"), step]), PATH, {"prompt": "a"})
    assert [event["choices"][0]["text"] for event in events] == ["a"]
    assert message in last["error"]["message"]


def test_what_was_made_before_a_failure_is_given_before_it() -> None:
    """For a slow reader the last tokens and the failure come as one output."""
    failing = [Step("a"), Step("b", finish="error", error="broke")]
    for prompt in ("a", ["a", "b"]):
        *events, last = post_events(FakeEngine(failing), PATH, {"prompt": prompt})
        first = [event["choices"][0] for event in events if event["choices"][0]["index"] == 0]
        assert "".join(choice["text"] for choice in first) == "ab"
        assert {choice["finish_reason"] for choice in first} == {None}
        assert "broke" in last["error"]["message"]
    assert "broke" in refused(FakeEngine(failing), 500)["message"]


def test_a_full_queue_is_429() -> None:
    engine = FakeEngine()
    engine.refuses = QueueFullError("full")
    for stream in (False, True):
        refused(engine, 429, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_one_failing_prompt_ends_all(stream: bool) -> None:
    endless = [Step("a") for _ in range(10_000)]
    failing = [Step(finish="error", error="bad")]
    engine = FakeEngine(scripts=[endless, failing, endless])
    response = post(engine, PATH, {"prompt": ["a", "b", "c"], "stream": stream, "max_tokens": None})
    assert "bad" in response.text
    assert response.text.count('"error"') == 1
    assert all(request.ended.is_set() for request in engine.requests)
    assert [request.closed for request in engine.requests][::2] == [True, True]

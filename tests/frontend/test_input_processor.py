"""Prompts, limits, defaults, seeds, end tokens and filters of the input processor."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np
import pytest

from hookspecs.errors import ConfigError, InvalidRequestError, RequestFailedError
from hookspecs.events import RequestReceived, RequestRejected
from hookspecs.types.sampling import SamplingParams


def process(rig: Any, prompt: Any, params: SamplingParams | None = None, **options: Any) -> Any:
    return rig.inputs.process("r", prompt, params, **options)


# Prompts


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        (),
        {},
        {"prompt": ""},
        {"prompt_token_ids": []},
        {"prompt_token_ids": "abc"},
        {"prompt_token_ids": [5], "prompt_embeds": [[0.0] * 4]},
        {"prompt": 5},
        {"text": "x"},
        {"prompt": "x", "cache_salt": 5},
        None,
        5,
        3.5,
        b"bytes",
        [-1],
        [420],
        [2**62],
        [2**100],
        [1.0],
        [True],
        [1, "a"],
        ["a", 1],
        [None],
        [[1]],
        "\ud800 lone",
        {"prompt": "\ud800 lone", "prompt_token_ids": [5]},
    ],
    ids=str,
)
def test_bad_prompts_are_refused(make: Any, prompt: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        process(make(), prompt)
    assert caught.value.param
    msgspec.json.encode(caught.value.value)


def test_prompt_forms_give_the_same_request(make: Any, byte_level: Any) -> None:
    rig = make()
    ids = byte_level.encode("hello world")
    forms = ["hello world", ids, tuple(ids), {"prompt": "hello world"}, {"prompt_token_ids": ids}]
    assert [process(rig, form).prompt_token_ids for form in forms] == [ids] * 5
    assert process(rig, [0, 419]).requests[0].prompt_token_ids == [0, 419]
    assert process(rig, "hello world").prompt == "hello world"
    shown = process(rig, {"prompt": "shown", "prompt_token_ids": ids})
    assert (shown.prompt, shown.prompt_token_ids) == ("shown", ids)


def test_the_callers_prompt_list_is_not_shared(make: Any) -> None:
    ids = [5, 6, 7]
    request = process(make(), ids)
    ids.append(8)
    assert request.prompt_token_ids == [5, 6, 7]


def test_cache_salt_of_the_prompt_wins(make: Any) -> None:
    rig = make()
    assert process(rig, [5], cache_salt="a").requests[0].cache_salt == "a"
    salted = process(rig, {"prompt_token_ids": [5], "cache_salt": "b"}, cache_salt="a")
    assert salted.requests[0].cache_salt == "b"


def test_prompt_embeds(make: Any) -> None:
    rig = make()
    embeds = np.arange(12, dtype=np.float64).reshape(3, 4)
    request = process(rig, {"prompt_embeds": embeds}).requests[0]
    assert len(request.prompt_token_ids) == 3
    assert request.prompt_embeds.dtype == np.float32
    np.testing.assert_array_equal(request.prompt_embeds, embeds)
    bad = [
        np.zeros((3, 5)),
        np.zeros(4),
        np.zeros((0, 4)),
        np.zeros((3, 4), np.int32),
        np.full((3, 4), np.nan),
        "text",
        [[1.0], [1.0, 2.0]],
    ]
    for value in bad:
        with pytest.raises(InvalidRequestError):
            process(rig, {"prompt_embeds": value})


def test_without_tokenizer_only_ids_are_taken(no_tokenizer: Any) -> None:
    assert process(no_tokenizer, [5, 6]).prompt is None
    with pytest.raises(InvalidRequestError, match="tokenizer"):
        process(no_tokenizer, "text")
    with pytest.raises(InvalidRequestError, match="tokenizer"):
        no_tokenizer.inputs.chat_prompt([{"role": "user", "content": "x"}])


# Lengths


def test_a_text_too_long_for_any_tokens_is_not_tokenised(
    make: Any, byte_level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(max_model_len=16)
    longest = byte_level.max_token_chars
    assert longest == max(len(token) for token in byte_level.backend.get_vocab())
    monkeypatch.setattr(byte_level, "encode", lambda text, **options: [5])
    assert process(rig, "x" * 16 * longest)
    monkeypatch.setattr(byte_level, "encode", None)
    text = "x" * (16 * longest + 1)
    for prompt in (text, {"prompt": text}):
        with pytest.raises(InvalidRequestError) as caught:
            process(rig, prompt)
        for number in (len(text), 16, longest, 16 * longest):
            assert str(number) in str(caught.value)
        assert (caught.value.param, caught.value.value) == ("prompt", len(text))
    with pytest.raises(InvalidRequestError) as caught:
        rig.inputs.chat_prompt([{"role": "user", "content": text}])
    assert caught.value.param == "messages"
    # What is only shown is not tokenised.
    assert process(rig, {"prompt": text, "prompt_token_ids": [5]})


def test_prompt_at_the_limit(make: Any) -> None:
    rig = make(max_model_len=32)
    exact = process(rig, [5] * 31, SamplingParams(max_tokens=9))
    assert exact.requests[0].sampling_params.max_tokens == 1
    assert process(rig, [5] * 31).requests[0].sampling_params.max_tokens == 1
    for count in (32, 33, 1_000_000):
        with pytest.raises(InvalidRequestError, match=rf"{count} tokens.* 32 tokens"):
            process(rig, [5] * count)


def test_max_tokens_fills_context_or_cache(make: Any) -> None:
    assert process(make(max_model_len=32), [5] * 10).requests[0].sampling_params.max_tokens == 22
    small = make(max_model_len=128, cache_tokens=64)
    assert process(small, [5] * 10).requests[0].sampling_params.max_tokens == 54
    assert process(small, [5] * 63).requests[0].sampling_params.max_tokens == 1


@pytest.mark.parametrize(
    ("prompt", "max_tokens"), [(100, None), (64, None), (10, 55), (10, 1000), (64, 1)]
)
def test_what_can_never_fit_the_cache_is_refused(
    make: Any, prompt: int, max_tokens: int | None
) -> None:
    rig = make(max_model_len=128, cache_tokens=64)
    with pytest.raises(InvalidRequestError, match="64"):
        process(rig, [5] * prompt, SamplingParams(max_tokens=max_tokens))
    assert process(rig, [5] * 10, SamplingParams(max_tokens=54))


def test_min_tokens_must_fit(make: Any) -> None:
    with pytest.raises(InvalidRequestError, match="room for 22"):
        process(make(max_model_len=32), [5] * 10, SamplingParams(min_tokens=23))


# Parameters


def test_the_callers_params_are_not_changed(make: Any) -> None:
    params = SamplingParams(stop_token_ids=[7], bad_words=["fox"], top_k=-1, stop=["x"])
    before = copy.deepcopy(params)
    request = process(make(eos=(0, 3)), [5], params)
    assert params == before
    assert request.requests[0].sampling_params != params
    assert request.params.stop_token_ids is not params.stop_token_ids


def test_params_that_are_none_are_the_models(make: Any) -> None:
    rig = make(generation_defaults={"temperature": 0.5, "top_k": 20})
    assert process(rig, [5]).params.temperature == 0.5
    assert process(rig, [5], SamplingParams()).params.temperature == 1.0
    rig.inputs.default_params().temperature = 0.0
    assert rig.inputs.default_params() == SamplingParams(temperature=0.5, top_k=20)


@pytest.mark.parametrize("defaults", [{"top_p": 0.0}, {"top_k": 1.5}, {"no_such_field": 1}])
def test_bad_generation_defaults_fail_at_start(make: Any, defaults: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="generation defaults of model 'tiny'"):
        make(generation_defaults=defaults)


@pytest.mark.parametrize(("top_k", "sent"), [(-1, 0), (0, 0), (5, 5), (420, 0), (10**9, 0)])
def test_top_k_that_leaves_nothing_out_is_off(make: Any, top_k: int, sent: int) -> None:
    request = process(make(), [5], SamplingParams(top_k=top_k))
    assert request.requests[0].sampling_params.top_k == sent


def test_end_tokens(make: Any) -> None:
    rig = make(eos=(0, 3, 4))
    request = process(rig, [5], SamplingParams(stop_token_ids=[9, 3])).requests[0]
    assert request.eos_token_id == 0
    assert request.sampling_params.stop_token_ids == [9, 3, 4]
    ignored = process(rig, [5], SamplingParams(stop_token_ids=[9], ignore_eos=True)).requests[0]
    assert ignored.eos_token_id is None
    assert ignored.sampling_params.stop_token_ids == [9]


def test_only_end_tokens_allowed_before_min_tokens_is_refused(make: Any) -> None:
    params = SamplingParams(allowed_token_ids=[0, 9], stop_token_ids=[9], min_tokens=1)
    with pytest.raises(InvalidRequestError, match="min_tokens"):
        process(make(), [5], params)
    params.min_tokens = 0
    assert process(make(), [5], params)


def test_n_gives_children_with_distinct_repeatable_seeds(make: Any) -> None:
    rig = make()
    params = SamplingParams(n=4, seed=2**64 - 2)
    first, second = (process(rig, [5], params).requests for _ in range(2))
    seeds = [request.sampling_params.seed for request in first]
    assert seeds == [2**64 - 2, 2**64 - 1, 0, 1]
    assert seeds == [request.sampling_params.seed for request in second]
    assert all(request.sampling_params.n == 1 for request in first)
    alone = process(rig, [5], SamplingParams(seed=7)).requests[0].sampling_params.seed
    assert alone == 7
    unseeded = process(rig, [5], SamplingParams(n=3)).requests
    assert [request.sampling_params.seed for request in unseeded] == [None] * 3


@pytest.mark.parametrize("seed", [None, 7])
def test_only_the_first_child_recomputes_the_prompt_for_its_logprobs(
    make: Any, seed: int | None
) -> None:
    params = SamplingParams(n=3, prompt_logprobs=2, seed=seed)
    requests = process(make(), [5, 6], params).requests
    assert [each.sampling_params.prompt_logprobs for each in requests] == [2, None, None]
    assert params.prompt_logprobs == 2


def test_handles_and_ids_are_never_used_twice(make: Any) -> None:
    rig = make()
    requests = [
        request for _ in range(3) for request in process(rig, [5], SamplingParams(n=2)).requests
    ]
    assert [request.handle for request in requests] == list(range(6))
    assert len({request.request_id for request in requests}) == 6
    assert {request.external_request_id for request in requests} == {"r"}


def test_request_carries_what_came_with_it(make: Any) -> None:
    request = process(
        make(),
        [5],
        priority=-3,
        tenant="t",
        deadline=9.0,
        labels={"a": "b"},
        arrival_time=4.0,
        trace_headers={"traceparent": "00"},
    ).requests[0]
    assert (request.priority, request.tenant, request.deadline) == (-3, "t", 9.0)
    assert (request.labels, request.arrival_time) == ({"a": "b"}, 4.0)
    assert request.trace_headers == {"traceparent": "00"}


# Bad words


def test_bad_words_are_banned_at_a_beginning_and_after_a_space(make: Any, byte_level: Any) -> None:
    params = process(make(), [5], SamplingParams(bad_words=["fox", "hello"])).requests[0]
    sequences = params.sampling_params.bad_words_token_ids
    for text in ("fox", " fox", "hello", " hello"):
        assert byte_level.encode(text, add_special_tokens=False) in sequences
    lengths = {len(byte_level.encode(text)) for text in ("fox", " fox")}
    assert lengths == {1, 3} or len(sequences) == 4


def test_bad_word_without_tokens_is_refused(make: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        process(make(), [5], SamplingParams(bad_words=["\u0007"]))
    assert caught.value.param == "bad_words"


def test_bad_words_beyond_the_logits_are_left_out(make: Any, byte_level: Any) -> None:
    last = byte_level.vocab_size - 1
    word = byte_level.token_text(last)
    rig = make(vocab_size=last)
    params = process(rig, [5], SamplingParams(bad_words=[word], bad_words_token_ids=[[5, 6]]))
    sequences = params.requests[0].sampling_params.bad_words_token_ids
    assert [5, 6] in sequences
    assert all(max(ids) < last for ids in sequences)


# Filters


def test_filter_changes_are_applied_and_checked(make: Any) -> None:
    def adjust(event: RequestReceived) -> RequestReceived:
        return msgspec.structs.replace(
            event, prompt_token_ids=[*event.prompt_token_ids, 9], tenant="paid", priority=4
        )

    rig = make(filters={"adjust_request": adjust}, max_model_len=16)
    request = process(rig, "fox")
    assert request.prompt_token_ids[-1] == 9
    assert (request.requests[0].tenant, request.requests[0].priority) == ("paid", 4)
    with pytest.raises(InvalidRequestError, match="16 tokens"):
        process(rig, [5] * 15)


def test_filter_may_spoil_nothing(make: Any) -> None:
    def adjust(event: RequestReceived) -> RequestReceived:
        event.params.temperature = 99.0
        return event

    params = SamplingParams()
    with pytest.raises(InvalidRequestError, match="temperature"):
        process(make(filters={"adjust_request": adjust}), [5], params)
    assert params.temperature == 1.0


def test_rejection_and_failure_of_a_filter(make: Any) -> None:
    def reject(event: RequestReceived) -> RequestRejected:
        return RequestRejected(reason="over quota")

    def fail(event: RequestReceived) -> None:
        raise OSError("no database")

    with pytest.raises(InvalidRequestError, match="over quota"):
        process(make(filters={"adjust_request": reject}), [5])
    with pytest.raises(RequestFailedError, match="no database"):
        process(make(filters={"adjust_request": fail}), [5])


# Chat


def test_chat_prompt(make: Any, byte_level: Any) -> None:
    prompt = make().inputs.chat_prompt([{"role": "user", "content": "hi"}])
    assert prompt["prompt"] == "<user>hi<assistant>"
    assert byte_level.decode(prompt["prompt_token_ids"]) == "<user>hi<assistant>"
    open_end = make().inputs.chat_prompt(
        [{"role": "user", "content": "hi"}], add_generation_prompt=False
    )
    assert open_end["prompt"] == "<user>hi"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        "hi",
        {"role": "user"},
        ["hi"],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [1]}],
        [{"role": "wizard", "content": "x"}],
        [{"role": None, "content": "x"}],
        [{"role": ["user"], "content": "x"}],
        [{"content": "x"}],
        [{"role": "user", "content": "\ud800"}],
    ],
    ids=str,
)
def test_bad_messages_are_refused(make: Any, messages: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make().inputs.chat_prompt(messages)
    assert caught.value.param == "messages"


def test_the_templates_own_error_is_the_answer(make: Any) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    with pytest.raises(InvalidRequestError, match="system comes first"):
        make().inputs.chat_prompt(messages)

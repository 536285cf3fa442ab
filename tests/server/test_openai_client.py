"""The official client of OpenAI, synchronous and asynchronous, against the real model."""

from __future__ import annotations

import asyncio
import base64
import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.server.process import Server

pytestmark = pytest.mark.slow

PROMPT = "The capital of France is"
once = pytest.mark.parametrize("client", ["synchronous"], indirect=True)
"""What depends on the fields of a request and not on the kind of client."""
MESSAGES: Any = [{"role": "user", "content": "Name three fruits."}]


class Client:
    """Calls either client as if it were synchronous; streams are lists."""

    def __init__(self, server: Server, asynchronous: bool) -> None:
        options: Any = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
        self._server = server
        self._client: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        self._client = self._client(**options)

    def __call__(self, method: str, **arguments: Any) -> Any:
        """The result of a method, by its dotted name."""
        called = self._client
        for name in method.split("."):
            called = getattr(called, name)
        result = called(**arguments)
        if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
            return self._server.run(self._collect(result))
        return list(result) if isinstance(result, openai.Stream) else result

    async def _collect(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            result = await result
        return [item async for item in result] if hasattr(result, "__aiter__") else result

    def close(self) -> None:
        closed = self._client.close()
        if closed is not None:
            self._server.run(closed)


@pytest.fixture(params=["synchronous", "asynchronous"])
def client(request: pytest.FixtureRequest, real: Server) -> Iterator[Client]:
    made = Client(real, request.param == "asynchronous")
    yield made
    made.close()


@pytest.fixture
def complete(client: Client, real: Server) -> Any:
    """A greedy completion of a few tokens."""

    def call(prompt: Any = PROMPT, **arguments: Any) -> Any:
        fields = {"model": real.model, "temperature": 0, "max_tokens": 5, **arguments}
        return client("completions.create", prompt=prompt, **fields)

    return call


@pytest.fixture
def chat(client: Client, real: Server) -> Any:
    """A greedy chat completion of a few tokens."""

    def call(**arguments: Any) -> Any:
        fields = {"model": real.model, "messages": MESSAGES, "temperature": 0, **arguments}
        return client("chat.completions.create", **fields)

    return call


def test_models(client: Client, real: Server) -> None:
    """The model is listed and can be asked for by its name."""
    listed = client("models.list")
    items = listed if isinstance(listed, list) else listed.data
    assert [model.id for model in items] == [real.model]
    assert client("models.retrieve", model=real.model).id == real.model


@once
def test_completions_of_texts_and_token_ids(complete: Any, tokenizer: Any) -> None:
    """One text, two texts and token ids get the same answers, in order."""
    one = complete()
    assert one.object == "text_completion"
    assert one.choices[0].text.startswith(" Paris")
    assert one.choices[0].finish_reason == "length"
    assert one.usage.completion_tokens == 5
    both = complete([PROMPT, "1, 2, 3,"])
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == one.choices[0].text
    assert both.choices[1].text.startswith(" 4")
    by_ids = complete(tokenizer(PROMPT)["input_ids"])
    assert by_ids.choices[0].text == one.choices[0].text


@once
def test_completion_with_echo_and_logprobs(complete: Any) -> None:
    """The prompt comes first, its first token without logprob, the rest with finite ones."""
    echoed = complete(echo=True, logprobs=2).choices[0]
    plain = complete().choices[0]
    assert echoed.text == PROMPT + plain.text
    logprobs = echoed.logprobs
    assert "".join(logprobs.tokens) == echoed.text
    assert logprobs.token_logprobs[0] is None
    assert all(math.isfinite(number) for number in logprobs.token_logprobs[1:])
    assert all(len(likely) in (2, 3) for likely in logprobs.top_logprobs[1:])
    assert logprobs.text_offset[:2] == [0, len(logprobs.tokens[0])]
    scored = complete(echo=True, logprobs=0, max_tokens=0).choices[0]
    assert scored.text == PROMPT
    assert scored.logprobs.token_logprobs == pytest.approx(
        logprobs.token_logprobs[: len(scored.logprobs.tokens)], abs=1e-3
    )


@once
def test_several_completions_and_the_best(complete: Any) -> None:
    """n outputs differ; of `best_of` the most likely are given; one seed repeats them."""
    arguments = {"temperature": 1.0, "seed": 7}
    first, second = (complete(n=3, **arguments) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in second.choices]
    assert len(set(texts)) == 3
    best = complete(n=1, best_of=3, logprobs=1, **arguments)
    assert best.choices[0].text in texts
    assert best.usage.completion_tokens == 15


@once
def test_a_completion_with_a_stop_string(complete: Any) -> None:
    """The text ends before it."""
    stopped = complete(max_tokens=12, stop=["."]).choices[0]
    assert stopped.finish_reason == "stop"
    assert "." not in stopped.text
    assert complete(max_tokens=12).choices[0].text.startswith(stopped.text + ".")


def test_a_streamed_completion(complete: Any) -> None:
    """Its chunks joined are the answer; the last one has the usage."""
    whole = complete(max_tokens=8)
    chunks = complete(max_tokens=8, stream=True, stream_options={"include_usage": True})
    assert "".join(c.choices[0].text for c in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_chat(chat: Any) -> None:
    """The older and the newer limit, and a stop string."""
    answer = chat(max_completion_tokens=10)
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert answer.usage.completion_tokens == 10
    assert chat(max_tokens=10).choices[0].message.content == choice.message.content
    word = choice.message.content.split()[2]
    stopped = chat(max_completion_tokens=10, stop=word).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.message.content == choice.message.content.partition(word)[0]


@once
def test_chat_with_logprobs(chat: Any) -> None:
    """Greedy tokens are the most likely ones, and their bytes are the text."""
    choice = chat(max_completion_tokens=12, logprobs=True, top_logprobs=3).choices[0]
    content = choice.logprobs.content
    assert len(content) == 12
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob == entry.logprob <= 0
    joined = b"".join(bytes(entry.bytes) for entry in content)
    assert joined.decode() == choice.message.content


def test_a_streamed_chat(chat: Any) -> None:
    """The role comes first, the contents joined are the answer."""
    whole = chat(max_completion_tokens=10)
    chunks = chat(max_completion_tokens=10, stream=True, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    parts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(parts) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 10
    assert chunks[-2].choices[0].finish_reason == "length"


def test_responses(client: Client, real: Server, chat: Any) -> None:
    """Whole and streamed they say what a chat says."""
    expected = chat(max_completion_tokens=10).choices[0].message.content
    fields = {"model": real.model, "input": MESSAGES, "temperature": 0, "max_output_tokens": 10}
    whole = client("responses.create", **fields)
    assert whole.output_text == expected
    assert whole.status == "incomplete"
    assert whole.usage.output_tokens == 10
    events = client("responses.create", stream=True, **fields)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == expected
    assert events[0].type == "response.created"
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == expected


@pytest.fixture(scope="module")
def tokenizer(model_path: str) -> Any:
    """As `transformers` has it."""
    return AutoTokenizer.from_pretrained(model_path)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_embeddings_are_those_of_transformers(
    client: Client, real: Server, model_path: str, tokenizer: Any, pooling: str
) -> None:
    """As numbers and as base64, of texts and of token ids."""
    texts = ["A cat sat on the mat.", "The dog chased the cat.", "Interest rates rose again."]
    module = AutoModel.from_pretrained(model_path, dtype=torch.float32).eval()
    expected = []
    with torch.inference_mode():
        for text in texts:
            hidden = module(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0]
            pooled = hidden.mean(0) if pooling == "mean" else hidden[-1]
            expected.append(torch.nn.functional.normalize(pooled, dim=0).numpy())
    ids = [tokenizer(text)["input_ids"] for text in texts]
    for given in (texts, ids):
        for encoding in ("float", "base64", None):
            arguments = {} if encoding is None else {"encoding_format": encoding}
            answer = client(
                "embeddings.create",
                model=real.model,
                input=given,
                extra_body={"pooling": pooling},
                **arguments,
            )
            assert [item.index for item in answer.data] == [0, 1, 2]
            for item, vector in zip(answer.data, expected, strict=True):
                found = item.embedding
                if isinstance(found, str):
                    found = np.frombuffer(base64.b64decode(found), "<f4")
                np.testing.assert_allclose(found, vector, rtol=0, atol=1e-4)


def test_errors_are_typed(client: Client, real: Server, complete: Any) -> None:
    """A wrong value and a wrong model."""
    with pytest.raises(openai.BadRequestError, match="temperature") as bad:
        complete(temperature=3)
    assert bad.value.param == "temperature"
    assert isinstance(bad.value, openai.APIStatusError)
    with pytest.raises(openai.NotFoundError) as missing:
        complete(model="other")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client("chat.completions.create", model=real.model, messages=[])


def test_the_id_of_a_request_is_in_the_headers(client: Client, real: Server) -> None:
    """The client's own, or a new one each time."""
    fields = {"model": real.model, "prompt": PROMPT, "max_tokens": 1}
    name = "completions.with_raw_response.create"
    given = client(name, extra_headers={"x-request-id": "mine"}, **fields)
    assert given.headers["x-request-id"] == "mine"
    made = {client(name, **fields).headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2
    parsed = given.parse()
    if inspect.isawaitable(parsed):

        async def wait() -> Any:
            return await parsed

        parsed = real.run(wait())
    assert "mine" in parsed.id


def test_many_at_once(real: Server) -> None:
    """An asynchronous client with sixteen open calls: each gets its own answer."""

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key="none") as client:
            calls = [
                client.completions.create(
                    model=real.model, prompt=f"{n}, {n + 1}, {n + 2},", max_tokens=3, temperature=0
                )
                for n in range(1, 17)
            ]
            return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

    texts = real.run(run())
    assert sum(text.startswith(f" {n + 3}") for n, text in enumerate(texts, 1)) >= 12

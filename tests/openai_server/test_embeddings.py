"""`POST /v1/embeddings`, through the OpenAI client where that can send it."""

from __future__ import annotations

import asyncio
import base64
import math
from typing import Any

import numpy as np
import openai
import pytest
from openai.types import CreateEmbeddingResponse

from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError
from hookspecs.types.pooling import PoolingOutput, PoolingParams, PoolingType
from tests.openai_server.calls import MODEL, ask, post
from tests.openai_server.fakes import FakeEngine, client_for

PATH = "/v1/embeddings"


def create(engine: FakeEngine, **arguments: Any) -> CreateEmbeddingResponse:
    async def use(client: openai.AsyncOpenAI) -> CreateEmbeddingResponse:
        return await client.embeddings.create(**{"model": MODEL, "input": "ab", **arguments})

    return ask(engine, use)


@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_answer_is_what_the_client_knows(form: dict[str, Any]) -> None:
    engine = FakeEngine()
    answer = create(engine, **form)
    assert (answer.object, answer.model) == ("list", MODEL)
    assert answer.usage.to_dict() == {"prompt_tokens": 2, "total_tokens": 2}
    (vector,) = answer.data
    assert (vector.object, vector.index) == ("embedding", 0)
    assert engine.requests[0].params == PoolingParams()
    if form.get("encoding_format") == "base64":
        assert isinstance(vector.embedding, str)
        raw = base64.b64decode(vector.embedding)
        assert np.frombuffer(raw, "<f4").tolist() == engine.embedding
    else:
        assert vector.embedding == engine.embedding


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        (["a", "bc"], ["a", "bc"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_forms_of_the_input(given: Any, prompts: list[Any]) -> None:
    engine = FakeEngine()
    answer = create(engine, input=given)
    assert [request.prompt for request in engine.requests] == prompts
    assert [vector.index for vector in answer.data] == list(range(len(prompts)))
    assert len({request.request_id for request in engine.requests}) == len(prompts)


def test_order_is_that_of_the_input() -> None:
    class Reversing(FakeEngine):
        """The first input is done last."""

        last = asyncio.Event()

        async def embed(self, prompt: Any, *args: Any, **options: Any) -> PoolingOutput:
            if prompt == "first":
                await self.last.wait()
            else:
                self.last.set()
            output = await super().embed(prompt, *args, **options)
            output.embedding = np.array([len(prompt)], np.float32)
            return output

    answer = create(Reversing(), input=["first", "second"])
    assert [vector.embedding for vector in answer.data] == [[5.0], [6.0]]


def test_parameters_reach_the_engine() -> None:
    engine = FakeEngine()
    extra = {"pooling": "last", "normalize": False, "priority": 2, "cache_salt": "s"}
    answer = create(engine, dimensions=3, user="u", extra_body=extra)
    (request,) = engine.requests
    assert request.params == PoolingParams(pooling=PoolingType.LAST, normalize=False, dimensions=3)
    assert request.options == {
        "priority": 2,
        "tenant": "u",
        "cache_salt": "s",
        "labels": None,
        "trace_headers": None,
    }
    assert isinstance(answer.data[0].embedding, list)
    assert len(answer.data[0].embedding) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"input": ""},
        {"input": []},
        {"input": ["a", ""]},
        {"input": ["a", 1]},
        {"input": [[]]},
        {"input": [True]},
        {"input": None},
        {"encoding_format": "int8"},
        {"dimensions": 0},
        {"dimensions": True},
        {"dimensions": "3"},
        {"pooling": "max"},
        {"normalize": 1},
        {"temperature": 1},
    ],
)
def test_wrong_fields_are_named(body: dict[str, Any]) -> None:
    engine = FakeEngine()
    response = post(engine, PATH, {"input": "a", **body})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(next(iter(body)))
    assert engine.requests == []


def test_model_and_prompts_are_bounded() -> None:
    engine = FakeEngine()
    response = post(engine, PATH, {"input": "a", "model": "other"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert post(engine, PATH, {"input": ["a", "b"]}, max_prompts=1).status_code == 400


@pytest.mark.parametrize(
    ("error", "param"),
    [
        (InvalidRequestError("too many", param="dimensions"), "dimensions"),
        (UnsupportedFeatureError("the worker does not pool"), None),
    ],
)
def test_what_the_engine_refuses(error: Exception, param: str | None) -> None:
    engine = FakeEngine()
    engine.refuses = error
    response = post(engine, PATH, {"input": ["a", "b"]})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == str(error)
    assert response.json()["error"]["param"] == param


def test_numbers_that_are_none_are_an_error() -> None:
    for value in (math.nan, math.inf):
        engine = FakeEngine()
        engine.embedding = [1.0, value]
        response = post(engine, PATH, {"input": "a"})
        assert response.status_code == 500
        assert "NaN" in response.json()["error"]["message"]


def test_one_failing_input_ends_the_others() -> None:
    class Failing(FakeEngine):
        async def embed(self, prompt: Any, *args: Any, **options: Any) -> PoolingOutput:
            if prompt == "bad":
                raise InvalidRequestError("bad input", param="prompt")
            return await super().embed(prompt, *args, **options)

    async def main() -> None:
        engine = Failing()
        engine.embed_gate = asyncio.Event()
        async with client_for(engine) as http:
            response = await http.post(PATH, json={"input": ["a", "b", "bad"]})
        assert response.status_code == 400
        assert [request.closed for request in engine.requests] == [True, True]

    asyncio.run(main())

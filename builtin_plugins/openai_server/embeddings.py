"""`POST /v1/embeddings` (Embeddings API of OpenAI)."""

from __future__ import annotations

import base64
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint
from builtin_plugins.openai_server.features import SHARED, refuse_features
from builtin_plugins.openai_server.generation import answer_id, gather
from builtin_plugins.openai_server.prompts import prompt_list
from builtin_plugins.openai_server.sampling import RequestFields, check_model, request_arguments
from hookspecs.errors import RequestFailedError
from hookspecs.types.columns import Float32Column
from hookspecs.types.pooling import PoolingParams, PoolingType

__all__ = ["ENDPOINTS"]


class EmbeddingBody(RequestFields, kw_only=True):
    """Body of `POST /v1/embeddings`."""

    input: Annotated[
        str | list[Any],
        Meta(description="Text, texts, token ids, or lists of token ids; not mixed."),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Meta(description="base64: of the elements as little-endian float32. Default float."),
    ] = None
    dimensions: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Keep the first so many elements; null: all."),
    ] = None
    pooling: Annotated[
        PoolingType | None, Meta(description="How a prompt's tokens become one vector; mean.")
    ] = None
    normalize: Annotated[
        bool | None, Meta(description="Scale to Euclidean length 1; default true.")
    ] = None


class Embedding(msgspec.Struct, kw_only=True):
    """The vector of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, kw_only=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True):
    """The answer: vectors in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


async def create_embeddings(call: Call[EmbeddingBody]) -> Response:
    """A vector for each input, all at once in the engine; none if one fails."""
    service, body = call.service, call.body
    check_model(service, body.model)
    refuse_features(body, SHARED)
    prompts = prompt_list(service, "input", body.input)
    service.engine.check_admission(len(prompts))
    params = PoolingParams(dimensions=body.dimensions)
    if body.pooling is not None:
        params.pooling = body.pooling
    if body.normalize is not None:
        params.normalize = body.normalize
    call_id, arguments = answer_id("embd", call), request_arguments(call)
    outputs = await gather(
        [
            service.engine.embed(prompt, params, request_id=f"{call_id}-{index}", **arguments)
            for index, prompt in enumerate(prompts)
        ]
    )
    encode = _base64 if body.encoding_format == "base64" else _floats
    data = []
    for index, output in enumerate(outputs):
        _check_finite(output.request_id, output.embedding)
        data.append(Embedding(index=index, embedding=encode(output.embedding)))
    tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return json_answer(
        EmbeddingList(
            data=data,
            model=service.model_names[0],
            usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens),
        )
    )


def _check_finite(request_id: str, embedding: Float32Column) -> None:
    if not math.isfinite(embedding.sum(dtype="float64")):
        raise RequestFailedError("the model's vector holds NaN or infinity", request_id=request_id)


def _floats(embedding: Float32Column) -> list[float]:
    return [float(element) for element in embedding.tolist()]


def _base64(embedding: Float32Column) -> str:
    return base64.b64encode(embedding.astype("<f4").tobytes()).decode()


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/embeddings",
        create_embeddings,
        "Vectors of texts",
        body=EmbeddingBody,
        answer=EmbeddingList,
    ),
)

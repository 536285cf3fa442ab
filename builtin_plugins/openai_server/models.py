"""`/v1/models`: what is served."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.errors import ErrorBody
from builtin_plugins.openai_server.sampling import check_model

__all__ = ["ENDPOINTS"]


class ModelCard(msgspec.Struct, kw_only=True):
    """A name that the model is served under."""

    id: str
    created: int
    """When the engine was started: seconds since 1970, UTC."""
    max_model_len: int
    """Prompt and output tokens of one request."""
    root: str
    """The model as configured."""
    object: Literal["model"] = "model"
    owned_by: str = "engine-framework"


class ModelList(msgspec.Struct, kw_only=True):
    """All names."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def _card(service: Service, name: str) -> ModelCard:
    info = service.engine.info
    return ModelCard(
        id=name, created=info.started_at, max_model_len=info.max_model_len, root=info.model
    )


async def list_models(call: Call[None]) -> Response:
    """GET /v1/models"""
    return json_answer(
        ModelList(data=[_card(call.service, name) for name in call.service.model_names])
    )


async def get_model(call: Call[None]) -> Response:
    """GET /v1/models/{model}"""
    name = call.request.path_params["model"]
    check_model(call.service, name)
    return json_answer(_card(call.service, name))


ENDPOINTS = (
    Endpoint("GET", "/v1/models", list_models, "List the models", answer=ModelList),
    Endpoint(
        "GET",
        "/v1/models/{model:path}",
        get_model,
        "One model",
        answer=ModelCard,
        answers={404: ErrorBody},
    ),
)

"""What an endpoint is, and what its handler is given. Front-end process, its event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from builtin_plugins.openai_server.errors import ApiError, ErrorBody
from builtin_plugins.openai_server.options import OpenAIOptions
from builtin_plugins.openai_server.time_limit import TimeLimit
from hookspecs.config import EngineConfig
from hookspecs.contracts.frontend import EngineClient

__all__ = ["Call", "Endpoint", "ErrorForm", "Service", "openai_error"]

ErrorForm: TypeAlias = Callable[[ApiError, str], Any]
"""The JSON body of an error, given it and the request id."""
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """What all handlers share."""

    engine: EngineClient
    config: EngineConfig
    options: OpenAIOptions
    model_names: tuple[str, ...]
    """Names under which the model is served, the first in answers."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request to one endpoint."""

    service: Service
    request: Request
    body: T
    """The decoded and checked body; None where the endpoint takes none."""
    request_id: str
    """The client's `x-request-id`, or a new one; also in the answer's header."""
    limit: TimeLimit
    """Handlers are ended by it; a stream that they return must be given it."""


def openai_error(error: ApiError, request_id: str) -> ErrorBody:
    """The form of the OpenAI API."""
    return error.body


@dataclass(frozen=True)
class Endpoint:
    """One path and method."""

    method: str
    path: str
    """May hold `{name}` or, with slashes, `{name:path}`: `call.request.path_params[name]`."""
    handler: Callable[[Call[Any]], Awaitable[Response]]
    """May raise ApiError and any FrameworkError. Cancelled when the client goes away."""
    summary: str
    body: type[msgspec.Struct] | None = None
    """Struct of the JSON body; an empty body counts as `{}`. Fields that it does not know are
    ignored unless it forbids them; its `__post_init__` may raise ApiError."""
    answer: Any = None
    """Type of the JSON answer, for the OpenAPI document; None: not JSON."""
    streams: bool = False
    """Whether it can answer by server-sent events (`stream: true`)."""
    public: bool = False
    """Whether it is answered without an API key."""
    admin: bool = False
    """Whether it exists only with the option `admin_routes`."""
    content_types: tuple[str, ...] = ()
    """Of an answer that is not JSON, for the OpenAPI document."""
    answers: dict[int, Any] = field(default_factory=dict)
    """Status codes of its own, besides 200 and those of all endpoints, to the type of the JSON
    answer, for the OpenAPI document; `str`: plain text."""
    error_type: Any = ErrorBody
    """Type of `error_body`'s results, for the OpenAPI document."""
    error_body: ErrorForm = openai_error
    """The form of errors; the same for all methods of a path."""

"""Answers: JSON bodies, and errors as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from builtin_plugins.openai_server.errors import ApiError

__all__ = ["JSON", "error_answer", "json_answer"]

JSON = "application/json"


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Any value that msgspec encodes; NaN and infinities become null."""
    return Response(
        msgspec.json.encode(value), status, media_type=JSON, headers=dict(headers or {})
    )


def error_answer(error: ApiError, body: Any = None) -> Response:
    """An error in the form of the OpenAI API, or with another body."""
    return json_answer(body if body is not None else error.body, error.status, error.headers)

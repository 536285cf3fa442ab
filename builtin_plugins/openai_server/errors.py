"""Errors as HTTP answers: one table from the project's errors to status, type and code."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    EngineUnavailableError,
    FrameworkError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
    UnsupportedFeatureError,
)

__all__ = ["NO_RETRY", "ApiError", "ErrorBody", "ErrorDetail", "as_api_error"]


NO_RETRY: Final = {"x-should-retry": "false"}
"""Tells the official clients not to send a request again, which they do by default for 409 and all
statuses from 500 on: it would only fail again, after as long."""


class ErrorDetail(msgspec.Struct, kw_only=True):
    """The `error` member of an error's body."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, kw_only=True):
    """Body of every error, and the data of an error event in a stream."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        message = _printable(message)
        param = param and _printable(param)
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = ErrorBody(error=ErrorDetail(message=message, type=kind, param=param, code=code))


def as_api_error(error: BaseException) -> ApiError:
    """The answer for anything that a handler raised; unknown errors become 500."""
    if isinstance(error, ApiError):
        return error
    message = _message(error)
    if isinstance(error, InvalidRequestError):
        return ApiError(400, message, param=error.param)
    if isinstance(error, UnsupportedFeatureError):
        return ApiError(400, message, code="unsupported")
    if isinstance(error, QueueFullError):
        return ApiError(
            429,
            message,
            kind="rate_limit_error",
            code="queue_full",
            headers=_retry_after(error),
        )
    if isinstance(error, EngineUnavailableError):
        return _unavailable(message, "engine_unavailable", _retry_after(error))
    if isinstance(error, EngineDeadError):
        return _unavailable(message, "engine_dead", {})
    if isinstance(error, CommandError):
        return ApiError(409, message, kind="conflict_error", code="wrong_state", headers=NO_RETRY)
    if isinstance(error, RequestFailedError):
        return ApiError(500, message, kind="server_error", code="request_failed", headers=NO_RETRY)
    if isinstance(error, FrameworkError):
        return ApiError(500, message, kind="server_error")
    return ApiError(500, f"internal error: {type(error).__name__}", kind="server_error")


def _unavailable(message: str, code: str, headers: dict[str, Any]) -> ApiError:
    return ApiError(503, message, kind="service_unavailable_error", code=code, headers=headers)


def _retry_after(error: EngineUnavailableError) -> dict[str, str]:
    seconds = error.retry_after_s
    return {"retry-after": str(max(1, math.ceil(seconds)) if math.isfinite(seconds) else 1)}


def _message(error: BaseException) -> str:
    """Never fails: `error` may be of a plugin."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _printable(text: str) -> str:
    """Halves of surrogate pairs, which JSON can not hold, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()

"""From an output of the engine, or an error, to the members of a Messages answer."""

from __future__ import annotations

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.messages_types import (
    FailureBody,
    FailureDetail,
    Message,
    MessageUsage,
    StopFacts,
    TextBlock,
)
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["failure_body", "message", "stop_facts", "usage"]

FAILURE_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""HTTP status to `error.type`; other statuses below 500 are `invalid_request_error`, from 500 on
`api_error` (https://platform.claude.com/docs/en/api/errors)."""


def message(output: RequestOutput, message_id: str, model: str) -> Message:
    """The answer of a request that has finished."""
    (part,) = output.outputs
    stop = stop_facts(part)
    return Message(
        id=message_id,
        model=model,
        content=[TextBlock(text=part.text)],
        usage=usage(output, len(part.token_ids)),
        stop_reason=stop.stop_reason,
        stop_sequence=stop.stop_sequence,
    )


def stop_facts(part: CompletionOutput) -> StopFacts:
    """Why an output ended, of one that was not aborted and did not fail."""
    if part.finish_reason == "length":
        return StopFacts(stop_reason="max_tokens")
    if isinstance(part.stop_reason, str):
        return StopFacts(stop_reason="stop_sequence", stop_sequence=part.stop_reason)
    return StopFacts(stop_reason="end_turn")


def usage(output: RequestOutput, num_output_tokens: int) -> MessageUsage:
    """Numbers of tokens so far; `input_tokens` are those that were not in the cache."""
    return MessageUsage(
        input_tokens=len(output.prompt_token_ids) - output.num_cached_tokens,
        output_tokens=num_output_tokens,
        cache_read_input_tokens=output.num_cached_tokens,
    )


def failure_body(error: ApiError, request_id: str) -> FailureBody:
    """An error in the form of the Messages API (an ErrorForm)."""
    default = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = FAILURE_TYPES.get(error.status, default)
    return FailureBody(
        error=FailureDetail(type=kind, message=error.body.error.message), request_id=request_id
    )

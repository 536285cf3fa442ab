"""From a request and its output to the response object and its members."""

from __future__ import annotations

import time

import msgspec

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.generation import Job
from builtin_plugins.openai_server.logprobs import TokenLogprob, chat_logprobs
from builtin_plugins.openai_server.responses_types import (
    FailureCode,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    OutputMessage,
    OutputText,
    ResponseFailure,
    ResponseObject,
    ResponsesBody,
    ResponseUsage,
)
from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = [
    "failed_response",
    "finished_response",
    "item_id",
    "message_item",
    "new_response",
    "text_logprobs",
]

FAILURE_CODES: dict[int, FailureCode] = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


def new_response(job: Job, body: ResponsesBody) -> ResponseObject:
    """The response of a request that runs."""
    return ResponseObject(
        id=job.call_id,
        created_at=int(time.time()),
        model=job.service.model_names[0],
        status="in_progress",
        output=[],
        temperature=job.params.temperature,
        top_p=job.params.top_p,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        user=body.user,
        safety_identifier=body.safety_identifier,
        top_logprobs=body.top_logprobs or 0,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        tool_choice="none" if body.tool_choice == "none" else "auto",
    )


def item_id(response: ResponseObject) -> str:
    """The id of a response's message."""
    return f"msg-{response.id}"


def message_item(
    response: ResponseObject, part: CompletionOutput, text: OutputText
) -> OutputMessage:
    """The message of an output that has ended."""
    status: ItemStatus = "incomplete" if part.finish_reason == "length" else "completed"
    return OutputMessage(id=item_id(response), status=status, content=[text])


def finished_response(
    response: ResponseObject, output: RequestOutput, item: OutputMessage, num_tokens: int
) -> ResponseObject:
    """The response with its message; `num_tokens` of the whole output."""
    whole = item.status == "completed"
    num_prompt_tokens = len(output.prompt_token_ids)
    return msgspec.structs.replace(
        response,
        status="completed" if whole else "incomplete",
        completed_at=int(time.time()) if whole else None,
        incomplete_details=None if whole else IncompleteDetails(),
        output=[item],
        usage=ResponseUsage(
            input_tokens=num_prompt_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=output.num_cached_tokens),
            output_tokens=num_tokens,
            total_tokens=num_prompt_tokens + num_tokens,
        ),
    )


def failed_response(response: ResponseObject, error: ApiError, text: OutputText) -> ResponseObject:
    """The response with the text that came before the error."""
    code = FAILURE_CODES.get(error.status, "server_error")
    item = OutputMessage(id=item_id(response), status="incomplete", content=[text])
    return msgspec.structs.replace(
        response,
        status="failed",
        error=ResponseFailure(message=error.body.error.message, code=code),
        output=[item],
    )


def text_logprobs(engine: EngineClient, part: CompletionOutput, top: int) -> list[TokenLogprob]:
    """The output's tokens with `top` alternatives each; empty if logprobs were not asked for."""
    return chat_logprobs(engine, part.logprobs, top).content if part.logprobs else []

"""`POST /v1/messages` and `/v1/messages/count_tokens`: the Messages API of Anthropic, text only."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint
from builtin_plugins.openai_server.features import refuse_features
from builtin_plugins.openai_server.generation import Job, answer_id, generate, generate_final
from builtin_plugins.openai_server.limits import USER_CHARS, check_limit
from builtin_plugins.openai_server.messages_answer import failure_body, message
from builtin_plugins.openai_server.messages_input import FEATURES, chat_messages
from builtin_plugins.openai_server.messages_stream import failure_event, message_events
from builtin_plugins.openai_server.messages_types import (
    CountBody,
    CountedTokens,
    FailureBody,
    Message,
    MessagesBody,
)
from builtin_plugins.openai_server.sampling import (
    RequestArguments,
    check_model,
    sampling_params,
    trace_headers,
)
from builtin_plugins.openai_server.sse import EventStream
from hookspecs.types.sampling import OutputKind

__all__ = ["ENDPOINTS", "count_tokens", "create_message"]


async def create_message(call: Call[MessagesBody]) -> Response:
    """Answer a conversation. What fails before the first token is an HTTP error; what fails later
    in a stream is the event `error`."""
    body, engine = call.body, call.service.engine
    check_model(call.service, body.model)
    refuse_features(body, FEATURES)
    job = _job(call)
    engine.check_admission()
    prompt = await engine.chat_prompt(chat_messages(body))
    model = call.service.model_names[0]
    if body.stream:
        events = message_events(generate(job, [prompt]), job.call_id, model)
        failed = partial(failure_event, request_id=call.request_id)
        return EventStream(events, call.limit, error_event=failed, last=b"")
    (output,) = await generate_final(job, [prompt])
    return json_answer(message(output, job.call_id, model))


async def count_tokens(call: Call[CountBody]) -> Response:
    """How many tokens the prompt of a conversation has; nothing is generated."""
    check_model(call.service, call.body.model)
    refuse_features(call.body, FEATURES)
    prompt = await call.service.engine.chat_prompt(chat_messages(call.body))
    return json_answer(CountedTokens(input_tokens=len(prompt["prompt_token_ids"])))


def _job(call: Call[MessagesBody]) -> Job:
    body = call.body
    given = {
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "n": 1,
        "output_kind": OutputKind.DELTA if body.stream else OutputKind.FINAL_ONLY,
    }
    tenant = (body.metadata.user_id if body.metadata is not None else None) or ""
    check_limit(USER_CHARS, len(tenant), "metadata.user_id")
    return Job(
        service=call.service,
        call_id=answer_id("msg", call),
        params=sampling_params(call.service, given),
        arguments=RequestArguments(
            priority=0,
            tenant=tenant,
            cache_salt="",
            labels=None,
            trace_headers=trace_headers(call),
        ),
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path="/v1/messages",
        handler=create_message,
        summary="Answer a conversation (Messages API)",
        body=MessagesBody,
        answer=Message,
        streams=True,
        error_type=FailureBody,
        error_body=failure_body,
    ),
    Endpoint(
        method="POST",
        path="/v1/messages/count_tokens",
        handler=count_tokens,
        summary="Count the tokens of a conversation (Messages API)",
        body=CountBody,
        answer=CountedTokens,
        error_type=FailureBody,
        error_body=failure_body,
    ),
)

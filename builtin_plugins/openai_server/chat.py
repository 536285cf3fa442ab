"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.chat_messages import chat_messages
from builtin_plugins.openai_server.chat_stream import ChatChunks
from builtin_plugins.openai_server.chat_types import (
    AssistantMessage,
    ChatBody,
    ChatChoice,
    ChatCompletion,
)
from builtin_plugins.openai_server.chunk_stream import chunk_events
from builtin_plugins.openai_server.chunks import Envelope
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.features import SHARED, refuse_features
from builtin_plugins.openai_server.generation import Job, answer_id, generate_final
from builtin_plugins.openai_server.limits import limit_error
from builtin_plugins.openai_server.logprobs import chat_logprobs, prompt_logprobs
from builtin_plugins.openai_server.sampling import (
    check_model,
    deadline,
    request_arguments,
    served_tier,
)
from builtin_plugins.openai_server.sse import EventStream
from builtin_plugins.openai_server.text_fields import text_params
from builtin_plugins.openai_server.usage import UsageCounter
from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import CompletionOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["ENDPOINTS"]


async def create_chat_completion(call: Call[ChatBody]) -> Response:
    """The model's next message of a conversation."""
    service, body = call.service, call.body
    check_model(service, body.model)
    refuse_features(body, SHARED)
    params = _params(service, body)
    service.engine.check_admission(params.n)
    job = Job(
        service=service,
        call_id=answer_id("chatcmpl", call),
        params=params,
        arguments=request_arguments(call),
        deadline=deadline(body),
    )
    prompt = await service.engine.chat_prompt(
        chat_messages(body.messages),
        add_generation_prompt=body.add_generation_prompt is not False,
        template_arguments=body.chat_template_kwargs,
    )
    created, model = int(time.time()), service.model_names[0]
    if body.stream:
        envelope = Envelope(
            id=job.call_id,
            object="chat.completion.chunk",
            created=created,
            model=model,
            service_tier=served_tier(body),
        )
        events = chunk_events(job, [prompt], body, envelope, ChatChunks(job, body))
        return EventStream(events, call.limit)
    return json_answer(await _completion(job, prompt, body, created, model))


def _params(service: Service, body: ChatBody) -> SamplingParams:
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    info = service.engine.info
    limit = min(info.limits.max_logprobs, info.vocab_size)
    if body.top_logprobs is not None and body.top_logprobs > limit:
        raise limit_error("max_logprobs", body.top_logprobs, limit, "top_logprobs")
    max_tokens = body.max_completion_tokens
    return text_params(
        service,
        body,
        num_prompts=1,
        max_tokens=body.max_tokens if max_tokens is None else max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


async def _completion(
    job: Job, prompt: Any, body: ChatBody, created: int, model: str
) -> ChatCompletion:
    (output,) = await generate_final(job, [prompt])
    counter = UsageCounter()
    counter.add(0, output)
    choices = [_choice(job.service.engine, each, body) for each in output.outputs]
    if body.prompt_logprobs is not None:
        choices[0].prompt_logprobs = prompt_logprobs(output, body.prompt_logprobs)
    return ChatCompletion(
        id=job.call_id,
        created=created,
        model=model,
        choices=choices,
        usage=counter.usage(),
        service_tier=served_tier(body),
    )


def _choice(engine: EngineClient, completion: CompletionOutput, body: ChatBody) -> ChatChoice:
    choice = ChatChoice(
        index=completion.index,
        message=AssistantMessage(content=completion.text),
        finish_reason=completion.finish_reason,
    )
    if body.logprobs:
        positions = completion.logprobs or ()
        choice.logprobs = chat_logprobs(engine, positions, body.top_logprobs or 0)
    if completion.stop_reason is not None:
        choice.stop_reason = completion.stop_reason
    if body.return_token_ids:
        choice.token_ids = completion.token_ids
    return choice


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chat/completions",
        create_chat_completion,
        "The next message of a conversation",
        body=ChatBody,
        answer=ChatCompletion,
        streams=True,
    ),
)

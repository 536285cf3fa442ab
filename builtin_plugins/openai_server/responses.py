"""`POST /v1/responses`: the Responses API of OpenAI, text in and text out, nothing stored."""

from __future__ import annotations

from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint
from builtin_plugins.openai_server.generation import Job, answer_id, generate, generate_final
from builtin_plugins.openai_server.responses_answer import (
    finished_response,
    message_item,
    new_response,
    text_logprobs,
)
from builtin_plugins.openai_server.responses_input import (
    chat_messages,
    check_features,
    wants_logprobs,
)
from builtin_plugins.openai_server.responses_stream import ResponseStream
from builtin_plugins.openai_server.responses_types import OutputText, ResponseObject, ResponsesBody
from builtin_plugins.openai_server.sampling import (
    check_model,
    request_arguments,
    sampling_params,
)
from builtin_plugins.openai_server.sse import EventStream
from hookspecs.types.sampling import OutputKind

__all__ = ["ENDPOINTS", "create_response"]


async def create_response(call: Call[ResponsesBody]) -> Response:
    """Answer the input. What fails before the first token is an HTTP error; what fails later in a
    stream is the event `response.failed`."""
    body, service = call.body, call.service
    check_model(service, body.model)
    check_features(body)
    job = _job(call)
    service.engine.check_admission()
    prompt = await service.engine.chat_prompt(chat_messages(body))
    response = new_response(job, body)
    if body.stream:
        stream = ResponseStream(service.engine, response)
        events = stream.events(generate(job, [prompt]))
        return EventStream(events, call.limit, error_event=stream.failed, last=b"")
    (output,) = await generate_final(job, [prompt])
    (part,) = output.outputs
    logprobs = text_logprobs(service.engine, part, response.top_logprobs)
    item = message_item(response, part, OutputText(text=part.text, logprobs=logprobs))
    return json_answer(finished_response(response, output, item, len(part.token_ids)))


def _job(call: Call[ResponsesBody]) -> Job:
    body = call.body
    given = {
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "seed": body.seed,
        "logprobs": (body.top_logprobs or 0) if wants_logprobs(body) else None,
        "n": 1,
        "output_kind": OutputKind.DELTA if body.stream else OutputKind.FINAL_ONLY,
    }
    return Job(
        service=call.service,
        call_id=answer_id("resp", call),
        params=sampling_params(call.service, given),
        arguments=request_arguments(call),
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path="/v1/responses",
        handler=create_response,
        summary="Answer a text or a conversation (Responses API)",
        body=ResponsesBody,
        answer=ResponseObject,
        streams=True,
    ),
)

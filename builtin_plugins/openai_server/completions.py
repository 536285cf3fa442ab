"""`POST /v1/completions`."""

from __future__ import annotations

import time
from typing import Any, Final

from msgspec import UNSET
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.chunk_stream import chunk_events
from builtin_plugins.openai_server.chunks import Envelope
from builtin_plugins.openai_server.completion_choices import (
    ChoiceBuilder,
    join_choices,
    only_scores,
)
from builtin_plugins.openai_server.completion_stream import CompletionChunks
from builtin_plugins.openai_server.completion_types import (
    Completion,
    CompletionBody,
    CompletionChoice,
)
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.features import SHARED, refuse_features
from builtin_plugins.openai_server.generation import Job, answer_id, generate_final
from builtin_plugins.openai_server.limits import SEQUENCES, check_limit
from builtin_plugins.openai_server.prompts import prompt_list
from builtin_plugins.openai_server.sampling import check_model, deadline, request_arguments
from builtin_plugins.openai_server.sse import EventStream
from builtin_plugins.openai_server.text_fields import text_params
from builtin_plugins.openai_server.usage import Usage, UsageCounter
from hookspecs.types.outputs import CompletionOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["ENDPOINTS"]

DEFAULT_MAX_TOKENS: Final = 16
"""As the OpenAI API has it."""


async def create_completion(call: Call[CompletionBody]) -> Response:
    """Text after each prompt."""
    service, body = call.service, call.body
    check_model(service, body.model)
    refuse_features(body, SHARED)
    prompts = prompt_list(service, "prompt", body.prompt)
    params = _params(service, body, len(prompts))
    n = params.n
    if body.best_of is not None:
        _apply_best_of(params, body, len(prompts))
    service.engine.check_admission(len(prompts) * params.n)
    job = Job(
        service=service,
        call_id=answer_id("cmpl", call),
        params=params,
        arguments=request_arguments(call),
        deadline=deadline(body),
    )
    created, model = int(time.time()), service.model_names[0]
    builder = ChoiceBuilder(service.engine, body, n=n)
    if body.stream:
        envelope = Envelope(id=job.call_id, object="text_completion", created=created, model=model)
        form = CompletionChunks(builder)
        return EventStream(chunk_events(job, prompts, body, envelope, form), call.limit)
    choices, usage = await _choices(job, prompts, builder, n)
    return json_answer(
        Completion(id=job.call_id, created=created, model=model, choices=choices, usage=usage)
    )


async def _choices(
    job: Job, prompts: list[Any], builder: ChoiceBuilder, n: int
) -> tuple[list[CompletionChoice], Usage]:
    counter = UsageCounter()
    choices = []
    for prompt_index, output in enumerate(await generate_final(job, prompts)):
        builder.prepare(output)
        counter.add(prompt_index, output)
        openings = await builder.openings(prompt_index, output)
        for opening, completion in zip(openings, _best(output.outputs, n), strict=True):
            choices.append(join_choices(opening, builder.choice(opening.index, completion)))
    return choices, counter.usage()


def _params(service: Service, body: CompletionBody, num_prompts: int) -> SamplingParams:
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is UNSET else body.max_tokens
    params = text_params(
        service,
        body,
        num_prompts=num_prompts,
        max_tokens=1 if only_scores(body) else max_tokens,
        logprobs=body.logprobs,
    )
    if body.echo and body.logprobs is not None:
        # The prompt's tokens get as many; more only if asked for.
        params.prompt_logprobs = max(body.logprobs, body.prompt_logprobs or 0)
    return params


def _apply_best_of(params: SamplingParams, body: CompletionBody, num_prompts: int) -> None:
    """More outputs than are given, and their logprobs to choose by."""
    best_of = body.best_of or 0
    if best_of < params.n:
        raise ApiError(
            400, f"best_of is {best_of}; it must be at least n ({params.n})", param="best_of"
        )
    if best_of == params.n:
        return
    if body.stream:
        raise ApiError(
            400,
            f"best_of is {best_of}, more than n ({params.n}): which outputs are best is known "
            "only at their end, so that can not be streamed",
            param="best_of",
        )
    if params.greedy:
        raise ApiError(
            400,
            f"best_of is {best_of} with temperature {params.temperature:g}: greedy outputs of "
            "one prompt are all equal",
            param="best_of",
        )
    check_limit(SEQUENCES, num_prompts * best_of, "best_of")
    params.n = best_of
    if params.logprobs is None:
        params.logprobs = 0


def _best(outputs: list[CompletionOutput], n: int) -> list[CompletionOutput]:
    """The n outputs with the highest mean logprob of a token; all, in their order, if n are."""
    if len(outputs) == n:
        return outputs
    return sorted(outputs, key=_mean_logprob, reverse=True)[:n]


def _mean_logprob(output: CompletionOutput) -> float:
    if output.cumulative_logprob is None or not output.token_ids:
        return float("-inf")
    return output.cumulative_logprob / len(output.token_ids)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/completions",
        create_completion,
        "Text after a prompt",
        body=CompletionBody,
        answer=Completion,
        streams=True,
    ),
)

"""Running a conversation that gets one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.generation import Job, generate, generate_final
from hookspecs.types.outputs import RequestOutput

__all__ = ["final_output", "output_stream"]


async def final_output(job: Job, prompt: Any) -> RequestOutput:
    """The whole answer. Raises as `output_stream`."""
    (output,) = await generate_final(job, [prompt])
    _check(output)
    return output


async def output_stream(job: Job, prompt: Any) -> AsyncGenerator[RequestOutput, None]:
    """The answer as it comes. The consumer must close this generator.

    Raises as `generate`, and ApiError (503) for an answer that the engine gave up: the forms of
    answers that this is for have no word for it, and a part must not pass for the whole."""
    async with aclosing(generate(job, [prompt])) as outputs:
        async for _, output in outputs:
            _check(output)
            yield output


def _check(output: RequestOutput) -> None:
    if output.outputs[0].finish_reason == "abort":
        raise ApiError(
            503,
            "the engine gave the request up before its end; send it again",
            kind="service_unavailable_error",
            code="aborted",
        )

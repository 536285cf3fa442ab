"""Streaming input: one request whose prompt comes in pieces, each answered before the next.

Every piece is a request to the engine core of its own, whose prompt is everything so far: what was
given and what was generated. The prefix cache makes that cheap, and nothing of a session has to
live in an engine core.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from framework.frontend.checks import invalid
from framework.frontend.prompts import Prompt
from hookspecs.errors import InvalidRequestError
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["check_session", "run_session"]


def check_session(params: SamplingParams) -> None:
    """InvalidRequestError for parameters that a session can not have."""
    if params.n != 1:
        raise invalid("n", params.n, "1 with streaming input")
    if params.output_kind is not OutputKind.DELTA:
        raise invalid("output_kind", params.output_kind, "DELTA with streaming input")
    if params.prompt_logprobs is not None:
        raise invalid("prompt_logprobs", params.prompt_logprobs, "None with streaming input")


async def run_session(
    pieces: AsyncIterator[Prompt],
    *,
    request_id: str,
    tokenize: Callable[[Prompt, bool], Awaitable[list[int]]],
    generate: Callable[[list[int], str], AsyncGenerator[RequestOutput, None]],
) -> AsyncGenerator[RequestOutput, None]:
    """Outputs of all pieces under one id. The last of each piece has the finish reason of its
    answer; after the last piece comes an empty one, which is `finished`.

    `tokenize`: (piece, whether it is the first). `generate`: (prompt, id of the piece's own
    request). What the caller's iterator raises comes out as it is. Closing this iterator ends
    what runs.
    """
    context: list[int] = []
    number = 0
    last: RequestOutput | None = None
    async for piece in pieces:
        context += await tokenize(piece, number == 0)
        async with aclosing(generate(list(context), f"{request_id}/{number}")) as outputs:
            async for output in outputs:
                last = msgspec.structs.replace(output, request_id=request_id, finished=False)
                context += output.outputs[0].token_ids
                yield last
        number += 1
        if last is None or last.outputs[0].finish_reason not in ("stop", "length"):
            break
    if last is None:
        raise InvalidRequestError(
            "the prompt was an iterator that gave nothing; give at least one piece", param="prompt"
        )
    end = msgspec.structs.replace(last.outputs[0], text="", token_ids=[], logprobs=None)
    yield msgspec.structs.replace(last, outputs=[end], finished=True)

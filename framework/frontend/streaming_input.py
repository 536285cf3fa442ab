"""Streaming input: one request whose prompt comes in pieces, each answered before the next.

Every piece is a request to the engine core of its own, whose prompt is everything so far: what was
given and what was generated. The prefix cache makes that cheap, and nothing of a session has to
live in an engine core. Event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from framework.frontend.checks import invalid
from framework.frontend.prompts import Prompt
from hookspecs.errors import EngineDeadError, InvalidRequestError
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["PieceReader", "check_session", "run_session"]

_GOES_ON = (str(FinishReason.STOP), str(FinishReason.LENGTH))
"""After an answer that ended like this the next piece is asked for."""


def check_session(params: SamplingParams) -> None:
    """InvalidRequestError for parameters that a session can not have."""
    if not isinstance(params, SamplingParams):
        raise invalid("params", params, "SamplingParams")
    if params.n != 1:
        raise invalid("n", params.n, "1 with streaming input")
    if params.output_kind is not OutputKind.DELTA:
        raise invalid("output_kind", params.output_kind, "DELTA with streaming input")
    if params.prompt_logprobs is not None:
        raise invalid("prompt_logprobs", params.prompt_logprobs, "None with streaming input")


class PieceReader:
    """Reads the caller's iterator, in one task from beginning to end, so that its `async with`
    blocks and time limits work as in any task, and so that waiting for it can be given up."""

    def __init__(self, pieces: AsyncIterator[Prompt]) -> None:
        self._asked = asyncio.Event()
        self._answer: asyncio.Future[Prompt | None] | None = None
        self.ended = False
        """`end` was called."""
        self._failure: EngineDeadError | None = None
        self._task = asyncio.create_task(self._read(pieces), name="pieces of a prompt")

    async def next(self) -> Prompt | None:
        """The next piece; None after the last, or after `end`. Raises what the iterator raises,
        and EngineDeadError after `fail`."""
        if self._failure is not None:
            raise EngineDeadError(str(self._failure)) from self._failure
        if self.ended:
            return None
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.set()
        return await self._answer

    def end(self) -> None:
        """No more pieces are wanted."""
        self.ended = True
        self._tell(None)

    def fail(self, error: EngineDeadError) -> None:
        """No more pieces can be answered."""
        self._failure = error
        self._tell(EngineDeadError(str(error)))

    async def close(self) -> None:
        """Leave the iterator; where it is being waited for, it is cancelled."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _read(self, pieces: AsyncIterator[Prompt]) -> None:
        try:
            await self._wait_asked()
            async for piece in pieces:
                self._tell(piece)
                await self._wait_asked()
        except BaseException as error:  # to whoever waits; also a CancelledError of its own
            if not self._tell(error):
                raise
        else:
            self._tell(None)
        finally:
            # Here and now, and not when the interpreter finds it, in another task.
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def _wait_asked(self) -> None:
        await self._asked.wait()
        self._asked.clear()

    def _tell(self, answer: Prompt | BaseException | None) -> bool:
        """Whether somebody waited for it."""
        waiting, self._answer = self._answer, None
        if waiting is None or waiting.done():
            return False
        if isinstance(answer, BaseException):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
        return True


async def run_session(
    pieces: PieceReader,
    *,
    request_id: str,
    tokenize: Callable[[Prompt, bool], Awaitable[list[int]]],
    generate: Callable[[list[int], bool], AsyncGenerator[RequestOutput, None]],
) -> AsyncGenerator[RequestOutput, None]:
    """Outputs of all pieces. The last of each piece has the finish reason of its answer; after
    the last piece comes an empty one, which is `finished`. Ended by `pieces.end()`, its reason
    is `abort`.

    `tokenize`, `generate`: (piece or prompt, whether it is the first). What the caller's iterator
    raises comes out as it is. Closing this iterator ends what runs.
    """
    context: list[int] = []
    last: RequestOutput | None = None
    while (piece := await pieces.next()) is not None:
        context += await tokenize(piece, last is None)
        async with aclosing(generate(list(context), last is None)) as outputs:
            async for output in outputs:
                last = msgspec.structs.replace(output, finished=False)
                context += output.outputs[0].token_ids
                yield last
        if last is None or last.outputs[0].finish_reason not in _GOES_ON:
            break
    yield _end(request_id, last, aborted=pieces.ended)


def _end(request_id: str, last: RequestOutput | None, *, aborted: bool) -> RequestOutput:
    """The last output. InvalidRequestError when there was no piece at all."""
    if last is None and not aborted:
        raise InvalidRequestError(
            "the prompt was an iterator that gave nothing; give at least one piece", param="prompt"
        )
    part = CompletionOutput(index=0) if last is None else last.outputs[0]
    end = msgspec.structs.replace(part, text="", token_ids=[], logprobs=part.logprobs and [])
    if aborted:
        end.finish_reason, end.stop_reason = str(FinishReason.ABORT), None
    if last is None:
        return RequestOutput(
            request_id=request_id,
            prompt=None,
            prompt_token_ids=[],
            outputs=[end],
            finished=True,
        )
    return msgspec.structs.replace(last, outputs=[end], finished=True)

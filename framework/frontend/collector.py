"""`Collector`: what a consumer has not taken yet, merged into one output.

A slow consumer gets larger outputs, not a longer queue: memory is bounded by what the request
itself can produce. Event loop.
"""

from __future__ import annotations

import asyncio

import msgspec

from hookspecs.errors import EngineDeadError, EngineUnavailableError
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["Collector"]


class Collector:
    """Between the task that handles all outputs and the one consumer of a request."""

    __slots__ = ("_delta", "_failure", "_merged", "_output", "_waiting", "finished")

    def __init__(self, *, delta: bool) -> None:
        """`delta`: outputs add to each other; otherwise the newest holds everything."""
        self._delta = delta
        self._output: RequestOutput | None = None
        self._merged = False
        """The output is this object's own, to which the next can be added in place."""
        self._failure: EngineDeadError | EngineUnavailableError | None = None
        self._waiting: asyncio.Future[None] | None = None
        """Of the consumer, while there is nothing for it."""
        self.finished = False
        """The consumer has got the last output."""

    def put(self, output: RequestOutput) -> None:
        """A new output; never waits."""
        if self._output is None or not self._delta:
            self._output, self._merged = output, False
        else:
            if not self._merged:
                self._output, self._merged = _own(self._output), True
            _add(self._output, output)
        self._wake()

    def fail(self, error: EngineDeadError | EngineUnavailableError) -> None:
        """Nothing more will come; what was put before is still given."""
        self._failure = error
        self._wake()

    async def get(self) -> RequestOutput:
        """The next output; after `fail` an error of that class."""
        while self._output is None:
            if self._failure is not None:
                # One of its own for each consumer: they all add to their error's traceback.
                raise type(self._failure)(str(self._failure)) from self._failure
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        output, self._output = self._output, None
        self.finished = output.finished
        return output

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def _own(output: RequestOutput) -> RequestOutput:
    """A copy whose parts nobody else has: plugins may keep what they have seen."""
    return msgspec.structs.replace(output, outputs=[_own_part(part) for part in output.outputs])


def _own_part(part: CompletionOutput) -> CompletionOutput:
    return msgspec.structs.replace(
        part,
        token_ids=list(part.token_ids),
        logprobs=None if part.logprobs is None else list(part.logprobs),
    )


def _add(total: RequestOutput, output: RequestOutput) -> None:
    """Add what a later output brings. The cost is that of the new part, not of the total, but
    for its text."""
    parts = {part.index: part for part in total.outputs}
    for part in output.outputs:
        before = parts.get(part.index)
        if before is None:
            parts[part.index] = _own_part(part)
            continue
        before.text += part.text
        before.token_ids += part.token_ids
        if before.logprobs is not None:
            before.logprobs += part.logprobs or ()
        before.cumulative_logprob = part.cumulative_logprob
        before.finish_reason = part.finish_reason
        before.stop_reason = part.stop_reason
        before.error = part.error
    total.outputs = [parts[index] for index in sorted(parts)]
    total.finished = output.finished
    total.num_cached_tokens = output.num_cached_tokens
    total.metrics = output.metrics
    total.embedding = output.embedding
    if output.prompt_logprobs is not None:
        total.prompt_logprobs = output.prompt_logprobs

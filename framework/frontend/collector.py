"""`Collector`: what a consumer has not taken yet, merged into one output.

A slow consumer gets larger outputs, not a longer queue: memory is bounded by what the request
itself can produce. Event loop.
"""

from __future__ import annotations

import asyncio

import msgspec

from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["Collector", "merge_deltas"]


class Collector:
    """Between the task that handles all outputs and the consumer of one request."""

    __slots__ = ("_delta", "_error", "_news", "_output")

    def __init__(self, *, delta: bool) -> None:
        """`delta`: outputs add to each other; otherwise the newest holds everything."""
        self._delta = delta
        self._output: RequestOutput | None = None
        self._error: BaseException | None = None
        self._news = asyncio.Event()

    def put(self, output: RequestOutput) -> None:
        """A new output; never waits."""
        waiting = self._output
        self._output = (
            output if waiting is None or not self._delta else merge_deltas(waiting, output)
        )
        self._news.set()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come; what was put before is still given."""
        self._error = error
        self._news.set()

    async def get(self) -> RequestOutput:
        """The next output; raises what `fail` was given."""
        while self._output is None:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        output, self._output = self._output, None
        return output


def merge_deltas(first: RequestOutput, second: RequestOutput) -> RequestOutput:
    """One output that brings what both brought, in order."""
    parts = {part.index: part for part in first.outputs}
    for part in second.outputs:
        before = parts.get(part.index)
        parts[part.index] = part if before is None else _joined(before, part)
    prompt_logprobs = first.prompt_logprobs
    return msgspec.structs.replace(
        second,
        outputs=[parts[index] for index in sorted(parts)],
        prompt_logprobs=second.prompt_logprobs if prompt_logprobs is None else prompt_logprobs,
    )


def _joined(first: CompletionOutput, second: CompletionOutput) -> CompletionOutput:
    logprobs = second.logprobs
    if first.logprobs is not None:
        logprobs = first.logprobs + (second.logprobs or [])
    return msgspec.structs.replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=logprobs,
    )

"""Running the prompts of one call at once.

Front-end process, its event loop. Whatever ends a call early (an error of one prompt, the client
going away) closes the others, which aborts them in the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from builtin_plugins.openai_server.endpoint import Call, Service
from builtin_plugins.openai_server.errors import NO_RETRY, ApiError
from builtin_plugins.openai_server.sampling import RequestArguments
from hookspecs.contracts.frontend import EngineClient
from hookspecs.errors import RequestFailedError
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["Job", "Outputs", "answer_id", "gather", "generate", "generate_final"]

T = TypeVar("T")

Outputs: TypeAlias = AsyncGenerator[tuple[int, RequestOutput], None]
"""Outputs with the index of their prompt. The consumer must close it."""
_Queue: TypeAlias = asyncio.Queue[tuple[int, RequestOutput] | Exception | None]
"""Outputs with the index of their prompt, None for the end of one; or why the call failed."""

FAILURES: Final = frozenset({"abort", "error", "timeout"})
"""Finish reasons that are errors of the whole call. Nobody waits for what its own client has
aborted, so `abort` is the operator's: a part of an answer must not pass for the whole."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompts of one call have in common."""

    service: Service
    call_id: str
    """The answer's id; the engine's ids begin with it."""
    params: SamplingParams
    arguments: RequestArguments
    deadline: float | None = None
    """Latest time to start, seconds of the monotonic clock."""


def answer_id(prefix: str, call: Call[Any]) -> str:
    """An id for the answer to a call. Clients may send one x-request-id several times, so that
    alone is not an id."""
    return f"{prefix}-{call.request_id}-{secrets.token_hex(4)}"


def generate(job: Job, prompts: Sequence[Any]) -> Outputs:
    """Outputs as they come; of one prompt in order.

    A slow consumer leaves at most one output a prompt in here; the rest waits, merged, in the
    engine. Raises what the first failing prompt raises: for outputs with finish reason `error`
    RequestFailedError, with `timeout` and `abort` ApiError (504 and 503).
    """
    if len(prompts) == 1:
        return _outputs(job, 0, job.call_id, prompts[0])
    return _all_outputs(job, prompts)


async def generate_final(job: Job, prompts: Sequence[Any]) -> list[RequestOutput]:
    """The last output of each prompt, in their order. Raises as `generate`."""
    async with aclosing(generate(job, prompts)) as outputs:
        finals = {index: output async for index, output in outputs}
    return [finals[index] for index in range(len(prompts))]


async def _all_outputs(job: Job, prompts: Sequence[Any]) -> Outputs:
    # Each pump waits until its output is taken, so none can crowd out another.
    queue: _Queue = asyncio.Queue()
    taken = [asyncio.Event() for _ in prompts]
    tasks = [
        asyncio.create_task(_pump(job, index, prompt, queue, taken[index]))
        for index, prompt in enumerate(prompts)
    ]
    running = len(tasks)
    try:
        while running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
                continue
            yield item
            taken[item[0]].set()
    finally:
        await _cancel(tasks)


async def gather(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order. The first failure is raised, after the others were cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _cancel(tasks)


async def _outputs(job: Job, index: int, request_id: str, prompt: Any) -> Outputs:
    """The outputs of one prompt. Raises its failure, after what was made before that."""
    engine: EngineClient = job.service.engine
    made = engine.generate(
        prompt, job.params, request_id=request_id, deadline=job.deadline, **job.arguments
    )
    async with aclosing(made) as outputs:
        async for output in outputs:
            for completion in output.outputs:
                if completion.finish_reason in FAILURES:
                    break
            else:
                yield index, output
                continue
            failed = [each for each in output.outputs if each.finish_reason in FAILURES]
            failure = _failure(output.request_id, failed[0])
            # For a slow consumer the last tokens and the failure are one output.
            for completion in failed:
                completion.finish_reason = None
            if any(completion.token_ids for completion in output.outputs):
                yield index, output
            raise failure


async def _pump(
    job: Job,
    index: int,
    prompt: Any,
    queue: _Queue,
    taken: asyncio.Event,
) -> None:
    try:
        async with aclosing(_outputs(job, index, f"{job.call_id}-{index}", prompt)) as outputs:
            async for item in outputs:
                queue.put_nowait(item)
                await taken.wait()
                taken.clear()
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _failure(request_id: str, completion: CompletionOutput) -> Exception:
    if completion.finish_reason == "timeout":
        message = completion.error or "the request did not start before its deadline"
        return ApiError(
            504, message, kind="timeout_error", code="deadline_exceeded", headers=NO_RETRY
        )
    if completion.finish_reason == "abort":
        return ApiError(
            503,
            "the engine gave the request up before its end; send it again",
            kind="service_unavailable_error",
            code="aborted",
        )
    return RequestFailedError(
        completion.error or "the request failed in the engine", request_id=request_id
    )

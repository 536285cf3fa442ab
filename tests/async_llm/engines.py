"""Engines for an event loop with the scripted worker, its core in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import framework
from framework import CompletionOutput, OutputKind, RequestOutput, SamplingParams
from framework.launcher.asynchronous import AsyncLaunch

__all__ = ["LIMIT_S", "greedy", "joined", "launch", "run_alone", "settings", "streamed"]

LIMIT_S = 60
"""For one test; after that it hangs."""


def settings(**sections: Any) -> dict[str, Any]:
    """Small blocks, all checks on; sections override. `plugins_options`: of plugins, by name."""
    made: dict[str, Any] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "cache": {"block_size": 4, "num_blocks": 256},
        "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 64},
        "stats": {"loggers": []},
        "engine": {"debug": True},
    }
    made["plugins"] = {"options": sections.pop("plugins_options", {})}
    for section, values in sections.items():
        made[section] = {**made.get(section, {}), **values}
    return made


def launch(*, plugins: Sequence[object] = (), **sections: Any) -> AsyncLaunch:
    """See `settings`."""
    return framework.launch_async(settings(**sections), plugins=plugins)


def greedy(max_tokens: int, script: dict[str, Any] | None = None, **fields: Any) -> SamplingParams:
    """Greedy parameters, with a script for the worker; token-only deltas unless said."""
    fields.setdefault("ignore_eos", True)
    fields.setdefault("temperature", 0)
    fields.setdefault("detokenize", False)
    fields.setdefault("output_kind", OutputKind.DELTA)
    return SamplingParams(
        max_tokens=max_tokens, extensions={} if script is None else {"scripted": script}, **fields
    )


async def streamed(outputs: AsyncIterator[RequestOutput]) -> list[RequestOutput]:
    """All outputs of a request."""
    return [output async for output in outputs]


def joined(outputs: Sequence[RequestOutput], index: int = 0) -> CompletionOutput:
    """Deltas of one of the n outputs, put together."""
    total = CompletionOutput(index=index)
    for part in (each for output in outputs for each in output.outputs if each.index == index):
        total.text += part.text
        total.token_ids += part.token_ids
        if part.logprobs is not None:
            total.logprobs = (total.logprobs or []) + part.logprobs
        total.cumulative_logprob = part.cumulative_logprob
        total.finish_reason, total.stop_reason = part.finish_reason, part.stop_reason
        total.error = part.error
    return total


def run_alone(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own, for a limited time."""
    asyncio.run(asyncio.wait_for(coroutine, LIMIT_S))

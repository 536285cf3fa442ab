"""One event of every sort, as the kernel makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hookspecs.events import (
    CacheReset,
    EngineFailed,
    EngineStarted,
    EngineStopping,
    Event,
    PluginFailed,
    RequestAdmitted,
    RequestFinished,
    StepFinished,
    WorkerReady,
)
from hookspecs.info import ProcessRole
from hookspecs.types.request import FinishReason

__all__ = ["observed"]


def observed(hook: str, number: int) -> Event:
    """The event of an observer hook; `number` tells one from the next. KeyError for another."""
    return _MAKERS[hook](number)


def _finished(number: int) -> Event:
    reasons = list(FinishReason)
    reason = reasons[number % len(reasons)]
    return RequestFinished(
        request_id=f"r{number}",
        finish_reason=reason,
        num_prompt_tokens=7,
        num_output_tokens=number % 5,
        num_preemptions=number % 3,
        error="it went wrong" if reason is FinishReason.ERROR else None,
        tenant="red" if number % 2 else "",
        labels={"team": "blue"} if number % 3 else {},
    )


def _step(number: int) -> Event:
    return StepFinished(
        step=number + 1,
        num_scheduled_tokens=12,
        num_rows=3,
        num_sampled_tokens=2,
        num_running=3,
        num_waiting=number % 4,
        preempted_request_ids=("r1",) if number % 5 == 0 else (),
        schedule_s=1e-4,
        execute_s=2e-3,
        update_s=1e-4,
    )


_MAKERS: Final[dict[str, Callable[[int], Event]]] = {
    "on_plugin_failed": lambda number: PluginFailed(
        plugin="another",
        hook="on_step_finished",
        error="ValueError: no",
        action="logged",
        role=ProcessRole.CORE,
    ),
    "on_engine_started": lambda number: EngineStarted(
        engine_index=number % 2,
        model="scripted",
        max_model_len=1024,
        num_blocks=64,
        block_size=4,
        plugins={"scheduler": "continuous"},
    ),
    "on_engine_stopping": lambda number: EngineStopping(engine_index=0, reason="shutdown"),
    "on_engine_failed": lambda number: EngineFailed(
        engine_index=0, error="the device is gone", plugin="another" if number % 2 else None
    ),
    "on_worker_ready": lambda number: WorkerReady(
        rank=number, device="cuda:0", plugins=("another",)
    ),
    "on_request_admitted": lambda number: RequestAdmitted(
        request_id=f"r{number}",
        num_prompt_tokens=7,
        num_cached_tokens=4,
        queue_time=0.25,
        tenant="red",
    ),
    "on_request_finished": _finished,
    "on_step_finished": _step,
    "on_cache_reset": lambda number: CacheReset(engine_index=0),
}

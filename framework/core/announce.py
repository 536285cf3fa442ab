"""What an engine core tells observers; no event is made when nobody listens. Core process, main
thread."""

from __future__ import annotations

from collections.abc import Iterable

from framework.core.request import Request
from framework.plugins.calls import Calls
from hookspecs.errors import FrameworkError, InternalError
from hookspecs.events import (
    CacheReset,
    EngineFailed,
    EngineStopping,
    PluginFailed,
    RequestAdmitted,
    RequestFinished,
    StepFinished,
)
from hookspecs.info import ProcessRole
from hookspecs.types.step import RowFailure, SchedulerOutput

__all__ = ["Announcer"]


class Announcer:
    """Events of one engine core."""

    def __init__(self, calls: Calls, engine_index: int) -> None:
        self._calls = calls
        self._engine_index = engine_index

    def request_admitted(self, request: Request) -> None:
        """It was scheduled for the first time."""
        if self._calls.has_observers("on_request_admitted"):
            self._calls.on_request_admitted(
                RequestAdmitted(
                    request_id=request.request_id,
                    num_prompt_tokens=request.num_prompt_tokens,
                    num_cached_tokens=request.num_cached_tokens,
                    queue_time=(request.scheduled_at or 0.0) - request.queued_at,
                    tenant=request.tenant,
                )
            )

    def request_finished(self, request: Request) -> None:
        """It ended; once a request."""
        if request.finish_reason is None:
            raise InternalError(f"request {request.request_id!r} has not ended")
        if self._calls.has_observers("on_request_finished"):
            self._calls.on_request_finished(
                RequestFinished(
                    request_id=request.request_id,
                    finish_reason=request.finish_reason,
                    num_prompt_tokens=request.num_prompt_tokens,
                    num_output_tokens=request.num_output_tokens,
                    num_preemptions=request.num_preemptions,
                    error=request.error,
                    tenant=request.tenant,
                    labels=request.wire.labels,
                )
            )

    def rows_failed(self, failures: Iterable[RowFailure]) -> None:
        """Those that are faults of plugins, in a worker: counted, and told."""
        for failure in failures:
            if failure.plugin is None or failure.hook is None:
                continue
            self._calls.counter(failure.plugin, failure.hook).errors += 1
            self._calls.on_plugin_failed(
                PluginFailed(
                    plugin=failure.plugin,
                    hook=failure.hook,
                    error=failure.message,
                    action="request failed",
                    role=ProcessRole.WORKER,
                )
            )

    @property
    def wants_steps(self) -> bool:
        """Whether anyone hears `step_finished`."""
        return self._calls.has_observers("on_step_finished")

    def step_finished(
        self,
        scheduled: SchedulerOutput,
        *,
        num_sampled: int,
        num_running: int,
        num_waiting: int,
        times: tuple[float, float, float, float],
    ) -> None:
        """`times`: seconds at which the step began, was decided, had run, and ended."""
        begin, decided, ran, end = times
        self._calls.on_step_finished(
            StepFinished(
                step=scheduled.step,
                num_scheduled_tokens=scheduled.total_num_scheduled_tokens,
                num_rows=scheduled.num_rows,
                num_sampled_tokens=num_sampled,
                num_running=num_running,
                num_waiting=num_waiting,
                preempted_request_ids=tuple(scheduled.preempted_request_ids),
                schedule_s=decided - begin,
                execute_s=ran - decided,
                update_s=end - ran,
            )
        )

    def cache_reset(self) -> None:
        """All cached blocks were forgotten."""
        if self._calls.has_observers("on_cache_reset"):
            self._calls.on_cache_reset(CacheReset(engine_index=self._engine_index))

    def engine_stopping(self, reason: str) -> None:
        """It is about to stop in an orderly way."""
        if self._calls.has_observers("on_engine_stopping"):
            self._calls.on_engine_stopping(
                EngineStopping(engine_index=self._engine_index, reason=reason)
            )

    def engine_failed(self, error: FrameworkError) -> None:
        """It stops because of an error."""
        if self._calls.has_observers("on_engine_failed"):
            self._calls.on_engine_failed(
                EngineFailed(
                    engine_index=self._engine_index,
                    error=f"{type(error).__name__}: {error}",
                    plugin=getattr(error, "plugin", None),
                )
            )

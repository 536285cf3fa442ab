"""A plugin whose stat loggers and tracers keep what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.stats import (
    FinishedRequest,
    StatLogger,
    StatLoggerContext,
    Tracer,
    TracerContext,
)
from hookspecs.types.stats import IterationStats, SchedulerStats

__all__ = ["Recorder", "Spans", "plugin"]


class Recorder(StatLogger):
    """Keeps all records."""

    last: ClassVar[Recorder]
    """The one that was made last."""

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self.iterations: list[IterationStats] = []
        self.num_bundles = 0
        self.rejections: list[str] = []
        self.num_reports = 0
        self.num_closed = 0
        self.broken = False
        Recorder.last = self

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        if self.broken:
            raise OSError("disk full")
        self.num_bundles += scheduler is not None
        if iteration is not None:
            self.iterations.append(iteration)

    def record_rejection(self, reason: str) -> None:
        self.rejections.append(reason)

    def report(self) -> None:
        self.num_reports += 1

    def close(self) -> None:
        self.num_closed += 1

    @property
    def finished(self) -> list[str]:
        """Ids of the requests that ended, as the engine knows them, once a record."""
        return [each.request_id for one in self.iterations for each in one.finished]


class Spans(Tracer):
    """Keeps what ended."""

    last: ClassVar[Spans]

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        self.ended: list[FinishedRequest] = []
        self.broken = False
        self.num_closed = 0
        Spans.last = self

    def on_request_finished(self, request: FinishedRequest) -> None:
        if self.broken:
            raise OSError("no collector")
        self.ended.append(request)

    def close(self) -> None:
        self.num_closed += 1


class Recording(EngineHooks):
    """Offers them as `recorder` and `spans`."""

    PLUGIN = PluginInfo(name="recording", api=">=1.0,<2")

    @hookimpl
    def register_stat_loggers(self) -> Iterator[Provider[Any]]:
        yield Provider("recorder", f"{__name__}:Recorder")

    @hookimpl
    def register_tracers(self) -> Iterator[Provider[Any]]:
        yield Provider("spans", f"{__name__}:Spans")


plugin = Recording()

"""The entry point: one method for each observer hook. Core process, main thread; a worker that
has a process of its own tells its recorder there."""

from __future__ import annotations

from hookspecs import EngineHooks, PluginInfo, ProcessRole, hookimpl
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import PluginConfigError
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

from flight_recorder.directory import RecordDirectory
from flight_recorder.options import FlightRecorderOptions
from flight_recorder.recorder import Recorder

__all__ = ["FlightRecorderPlugin", "plugin"]


class FlightRecorderPlugin(EngineHooks):
    """Hears everything, and keeps the last of it."""

    PLUGIN = PluginInfo(
        name="flight-recorder",
        api=">=1.0,<2",
        description="Observers: the last events before an engine failed, in a file",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE, ProcessRole.WORKER}),
        options=FlightRecorderOptions,
    )

    def __init__(self, options: FlightRecorderOptions | None = None) -> None:
        """PluginConfigError for a directory in which no record can be written."""
        self._options = options or FlightRecorderOptions()
        self._recorder: Recorder | None = None
        if self._options.directory is None:
            return
        directory = RecordDirectory(self._options.directory, self._options.max_files)
        why = directory.unusable()
        if why is not None:
            raise PluginConfigError(
                f"plugins.options.flight-recorder.directory is {self._options.directory!r}, where "
                f"no record can be written: {why}. Give another, or change its permissions",
                plugin=self.PLUGIN.name,
            )
        self._recorder = Recorder(directory, self._options.max_events)

    def configured(self, context: PluginContext) -> FlightRecorderPlugin:
        """A recorder with the options, and with the events of one engine. Of the directory only
        its permissions are looked at: this is called for `framework plugins list`, too."""
        return FlightRecorderPlugin(context.options)

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """Often the beginning of it."""
        self._note(event)

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        """What the engine is made of."""
        self._note(event)

    @hookimpl
    def on_worker_ready(self, event: WorkerReady) -> None:
        """On which device it runs. Comes before `on_engine_started`."""
        self._note(event)

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        """The request that kills an engine is mostly among the last."""
        self._note(event)

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        """And is not among those that ended."""
        self._note(event)

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        """Every step: here it has to be cheap."""
        self._note(event)

    @hookimpl
    def on_cache_reset(self, event: CacheReset) -> None:
        """After it, times change."""
        self._note(event)

    @hookimpl
    def on_engine_stopping(self, event: EngineStopping) -> None:
        """The end, as it should be."""
        self._note(event)
        if self._recorder is not None and self._options.at_stop:
            self._recorder.write(event)

    @hookimpl
    def on_engine_failed(self, event: EngineFailed) -> None:
        """The end. Written at once and here: nobody waits for a thread of a process that dies."""
        self._note(event)
        if self._recorder is not None:
            self._recorder.write(event)

    def _note(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.note(event)


plugin = FlightRecorderPlugin()

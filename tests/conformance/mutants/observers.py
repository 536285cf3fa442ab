"""Broken observers."""

from __future__ import annotations

import threading
from typing import Any

from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.events import PluginFailed, RequestAdmitted, RequestFinished, StepFinished
from tests.conformance.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


class _Observer(EngineHooks):
    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")


class KnowsEveryRequest(_Observer):
    """Takes for granted that a request that ends was admitted."""

    def __init__(self) -> None:
        self.running: dict[str, float] = {}

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.running[event.request_id] = event.queue_time

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        del self.running[event.request_id]


class WritesLabels(_Observer):
    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        event.labels["seen"] = "yes"


class WaitsForever(_Observer):
    """Blocks in an observer, once in a while."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        if event.step % 50 == 0:
            self.lock.acquire()


class FailsForNoReason(_Observer):
    """Does not know that a request may fail."""

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        if event.error is not None and not event.request_id.startswith("r"):
            raise ValueError(event.error)


class CountsWhatItIsNotTold(_Observer):
    """Raises in the hook that tells of failures."""

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        raise RuntimeError("one more")


def _mutant(fault: str, plugin: Any, *caught_by: str) -> Mutant:
    return Mutant("observers", fault, plugin, caught_by)


MUTANTS = [
    _mutant("relies on an order of events", KnowsEveryRequest(), "test_every_event_is_taken"),
    _mutant("raises when told of a failure", CountsWhatItIsNotTold(), "test_every_event_is_taken"),
    _mutant("changes its event", WritesLabels(), "test_events_are_not_changed"),
    _mutant("blocks", WaitsForever(), "test_observers_return_promptly"),
    _mutant("raises for requests that fail", FailsForNoReason(), "test_an_engine_runs_as_without"),
]

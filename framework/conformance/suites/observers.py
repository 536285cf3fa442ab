"""Suite of plugins that implement observer hooks (`on_*`)."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, cast

import msgspec

from framework.conformance.base import Conformance
from framework.conformance.subject import PluginSubject
from framework.conformance.worlds.engines import greedy, run_prompts
from framework.conformance.worlds.events import observed
from framework.conformance.worlds.patience import within
from framework.plugins.specs import HOOKS
from framework.plugins.validate import HookMethod
from hookspecs.events import Event
from hookspecs.info import HookKind
from hookspecs.types.outputs import RequestOutput

__all__ = ["ObserversConformance"]

EVENTS = 100
PROMPT_S = 3.0
"""Seconds for a hundred events: forty times what writing each to a file takes."""


class ObserversConformance(Conformance):
    """Observers are told, and change nothing."""

    kind = "observers"

    def test_every_event_is_taken(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: calls each observer with events of all sorts, in an order that no engine keeps.
        Must: not raise; an event may come before, after or without any other.
        """
        observers = _observers(subject)
        for number in range(EVENTS):
            for method in reversed(observers):
                event = observed(method.spec.name, number)
                try:
                    method.function(event)
                except Exception as error:
                    raise AssertionError(f"{method.spec.name} raised for {event}") from error

    def test_events_are_not_changed(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: compares each event before and after the observer has seen it.
        Must: leave it as it is, with what is in it; the next observer gets the same object.
        """
        for method in _observers(subject):
            for number in range(12):
                event = observed(method.spec.name, number)
                before = msgspec.msgpack.encode(event)
                method.function(event)
                assert msgspec.msgpack.encode(event) == before, (
                    f"{method.spec.name} changed its event to {event}"
                )

    def test_observers_return_promptly(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: gives each observer a hundred events.
        Must: return from all of them within seconds: the step waits, and every request with it.
        What takes long belongs into a thread.
        """
        for method in _observers(subject):
            hook = method.spec.name
            events = [observed(hook, number) for number in range(EVENTS)]

            within(partial(_tell, method, events), f"{hook}, given {EVENTS} events,", PROMPT_S)

    def test_an_engine_runs_as_without(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: generates with the plugin and without, with preemptions, aborts, a request that
        fails and a cache reset in between.
        Must: change no token, and raise in no hook.
        """
        small: dict[str, Any] = {"cache": {"num_blocks": 12}}
        with subject.launch(**small) as engine:
            watched = run_prompts(engine, 3)
            engine.reset_prefix_cache()
            stream = cast("Generator[RequestOutput]", engine.stream([1, 2, 3], greedy(20)))
            next(stream)
            stream.close()
            failing = greedy(4, extensions={"scripted": {"fail_at": 1}})
            list(engine.generate([[1, 2], [3, 4]], [failing, greedy(2)]))
            (report,) = (each for each in engine.plugins() if each.name == subject.name)
        errors = {hook: count for hook, count in report.errors.items() if count}
        assert not errors, f"observers raised: {errors}"
        with subject.launch_without(**small) as engine:
            unwatched = run_prompts(engine, 3)
        assert watched == unwatched, "tokens change when the plugin observes"


def _tell(method: HookMethod, events: list[Event]) -> None:
    for event in events:
        method.function(event)


def _observers(subject: PluginSubject) -> list[HookMethod]:
    return [
        method
        for hook, method in subject.loaded.hooks.items()
        if HOOKS[hook].meta.kind is HookKind.OBSERVER
    ]

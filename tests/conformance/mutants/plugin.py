"""Plugins that are broken as a whole. Those that other processes import have names here."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.events import ConfigResolved, EngineStarted, StepFinished
from tests.conformance.mutants.mutant import Mutant, providing
from tests.conformance.mutants.wrappers import ChangesTokens

__all__ = ["MUTANTS"]


class _Plugin(EngineHooks):
    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")


class CountsRegistrations(_Plugin):
    """Offers another implementation each time."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    @hookimpl
    def register_scheduling_policies(self) -> Iterable[Provider[Any]]:
        names = ("fcfs:FcfsPolicy", "deadline:DeadlinePolicy")
        target = f"builtin_plugins.policies.{names[next(self.numbers) % 2]}"
        yield Provider("mutant", target)


class IsNotWhereItIsCalled(EngineHooks):
    """Observes the core, but only the launcher imports it."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2", roles=frozenset({ProcessRole.LAUNCHER}))

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        return


class LooseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Takes whatever is given."""

    depth: Annotated[int, msgspec.Meta(ge=1, description="How deep.")] = 3


class HasLooseOptions(EngineHooks):
    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2", options=LooseOptions)

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        return None


class ForgetfulOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tuple that is no tuple: it comes back as what the type says."""

    levels: Annotated[Any, msgspec.Meta(description="Levels.")] = (1, 2)


class HasForgetfulOptions(EngineHooks):
    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2", options=ForgetfulOptions)

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        return None


class LeavesAThread(_Plugin):
    """Starts a thread with each engine, and stops none; its name hides it."""

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        name = "conformance: nothing"
        threading.Thread(target=threading.Event().wait, name=name, daemon=True).start()


class HandlesSignals(_Plugin):
    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def made_elsewhere() -> object:
    """A plugin that no other process can import."""

    class Local(_Plugin):
        @hookimpl
        def on_step_finished(self, event: StepFinished) -> None:
            return

    return Local()


counts_registrations = CountsRegistrations()
is_not_where_it_is_called = IsNotWhereItIsCalled()
has_loose_options = HasLooseOptions()
has_forgetful_options = HasForgetfulOptions()
leaves_a_thread = LeavesAThread()
handles_signals = HandlesSignals()


def _mutant(fault: str, plugin: Any, *caught_by: str) -> Mutant:
    return Mutant("plugin", fault, plugin, caught_by)


MUTANTS = [
    _mutant(
        "a provider that can not be imported",
        providing("scheduler", "nowhere:Scheduler"),
        "test_check_finds_nothing",
    ),
    _mutant(
        "offers something else each time",
        counts_registrations,
        "test_it_registers_the_same_again",
    ),
    _mutant(
        "names no process in which it is called",
        is_not_where_it_is_called,
        "test_it_takes_part_in_the_processes_it_names",
    ),
    _mutant("takes unknown options", has_loose_options, "test_check_finds_nothing"),
    _mutant(
        "options that change on their way",
        has_forgetful_options,
        "test_options_survive_the_way_to_another_process",
    ),
    _mutant("leaves a thread behind", leaves_a_thread, "test_an_engine_starts_and_stops_with_it"),
    _mutant("handles signals", handles_signals, "test_the_process_stays_as_it_was"),
    _mutant("acts unasked", ChangesTokens(), "test_it_does_nothing_unless_selected"),
    _mutant("can not be imported elsewhere", made_elsewhere(), "test_every_process_has_it"),
]

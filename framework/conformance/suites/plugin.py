"""Suite of every plugin, whatever it provides: packaging, options, life cycle, processes."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Final

import msgspec

from framework.conformance.base import Conformance
from framework.conformance.subject import PluginSubject
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.patience import KitThread, within
from framework.plugins.check import check_plugin
from framework.plugins.loading import LoadedPlugin
from framework.plugins.report import PluginState
from framework.plugins.specs import HOOKS
from hookspecs.info import HookKind, ProcessRole

__all__ = ["PluginConformance"]


class PluginConformance(Conformance):
    """What holds of a plugin as a whole."""

    kind = "plugin"

    # Packaging

    def test_check_finds_nothing(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: what `framework plugins check` does: imports all that the plugin names, in this
        process and its entry module in a fresh one.
        Must: import fast, load neither torch, transformers nor numpy with its entry module,
        implement its contracts completely, and describe its options, which refuse unknown keys.
        """
        findings = check_plugin(subject.plugin)
        assert not findings, "\n".join(["framework plugins check finds:", *findings])

    def test_it_registers_the_same_again(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: loads the plugin twice more in this process.
        Must: offer the same hooks and providers each time, since every process loads it anew.
        """
        first, second = (_offers(_loaded(subject)) for _ in range(2))
        assert first == second, f"it registered {first}, then {second}"
        assert first == _offers(subject.loaded), "what it registers depends on how often it did"

    def test_it_takes_part_in_the_processes_it_names(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: compares the processes in which its hooks are called with those it names as roles;
        the launcher imports every plugin.
        Must: name a process for each hook that it implements, in which that is called; elsewhere
        it is not imported. Without the processes that need what it provides it is not loaded.
        """
        roles = subject.loaded.info.roles | {ProcessRole.LAUNCHER}
        for hook in _hooks(subject):
            called = set(HOOKS[hook].meta.roles)
            assert called & roles, (
                f"{hook} is called in {', '.join(sorted(called))}, but PLUGIN.roles names only "
                f"{', '.join(sorted(roles))}"
            )

    # Options

    def test_options_survive_the_way_to_another_process(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: encodes the defaults of its options and reads them again.
        Must: give the same options; they are sent to every process.
        """
        for struct in _structs(subject.loaded):
            try:
                defaults = struct()
            except TypeError:
                continue  # An option without a default: there is nothing to compare with.
            data = msgspec.msgpack.encode(defaults)
            again = msgspec.msgpack.decode(data, type=struct)
            assert again == defaults, f"{struct.__name__} comes back as {again}, not {defaults}"

    # Life cycle

    def test_an_engine_starts_and_stops_with_it(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: starts an engine with the plugin enabled, generates, shuts down twice, and all of it
        again.
        Must: work the second time as the first, and leave no thread behind.
        """
        before = set(threading.enumerate())
        results = []
        for _ in range(2):
            engine = within(subject.launch, "starting an engine")
            try:
                results.append(run_prompts(engine, 0))
                state = _state(engine.plugins(), subject.name)
                assert state in (PluginState.ACTIVE, PluginState.UNUSED), f"the plugin is {state}"
            finally:
                within(engine.shutdown, "the shutdown of an engine")
                within(engine.shutdown, "a second shutdown")
        assert results[0] == results[1], "the second engine gave other tokens than the first"
        # A thread that ends by itself is given the time to.
        for thread in set(threading.enumerate()) - before:
            if not isinstance(thread, KitThread):
                thread.join(2)
        left = {thread for thread in threading.enumerate() if thread not in before}
        names = [thread.name for thread in left if not isinstance(thread, KitThread)]
        assert not names, f"these threads live on after the shutdown: {', '.join(names)}"

    def test_the_process_stays_as_it_was(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: compares environment, current directory, signal handlers and file mode mask before
        and after an engine ran with the plugin.
        Must: leave them alone; they belong to the program that uses the engine.
        """
        before = _process()
        with within(subject.launch, "starting an engine") as engine:
            run_prompts(engine, 0)
        changed = [name for name, value in _process().items() if value != before[name]]
        assert not changed, f"the plugin changed these of the process: {', '.join(changed)}"

    def test_it_does_nothing_unless_selected(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: generates with the plugin and without it, none of its providers selected.
        Must: change no token. Plugins with request or output filters, which may, pass; so do
        those whose providers are the default, without which no engine is.
        """
        filters = any(HOOKS[hook].meta.kind is HookKind.FILTER for hook in _hooks(subject))
        if filters or subject.is_default():
            return
        with subject.launch_unused() as engine:
            there = run_prompts(engine, 1)
        with subject.launch_without() as engine:
            absent = run_prompts(engine, 1)
        assert there == absent, "tokens change when the plugin is installed, though nothing uses it"

    # Processes

    def test_every_process_has_it(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: runs an engine in a process of its own, which loads the plugins of its roles and
        tells its parent which.
        Must: be importable there, register the same, and give the same tokens.
        """
        with subject.launch() as engine:
            here = run_prompts(engine, 2)
        with subject.launch(engine={"process": "separate"}) as engine:
            there = run_prompts(engine, 2)
        assert here == there, "tokens depend on which process the engine runs in"


def _process() -> dict[str, object]:
    mask = os.umask(0o077)
    os.umask(mask)
    # Libraries note in the environment that they are there; what was there before must stay.
    return {
        "the environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
        "the current directory": os.getcwd(),
        "signal handlers": [signal.getsignal(each) for each in signal.valid_signals()],
        "the file mode mask": mask,
    }


_ENVIRONMENT: Final = tuple(os.environ)
"""What was there when the kit was loaded."""


def _loaded(subject: PluginSubject) -> LoadedPlugin:
    return subject.manager().loaded[subject.name]


def _hooks(subject: PluginSubject) -> list[str]:
    return [*subject.loaded.hooks, *subject.loaded.withheld]


def _offers(plugin: LoadedPlugin) -> tuple[list[str], list[str]]:
    offered = [
        f"{found.kind.name}:{found.provider.name} -> {found.provider.target} "
        f"{sorted(map(str, found.provider.capabilities))}"
        for found in plugin.providers
    ]
    return sorted([*plugin.hooks, *plugin.withheld]), offered


def _structs(plugin: LoadedPlugin) -> set[type[msgspec.Struct]]:
    structs = {plugin.info.options}
    for found in plugin.providers:
        structs |= {found.provider.options, found.provider.request_options}
    return {struct for struct in structs if struct is not None}


def _state(reports: Any, name: str) -> PluginState:
    found: list[PluginState] = [report.state for report in reports if report.name == name]
    return found[0]

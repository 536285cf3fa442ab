"""The state of each plugin, as `framework plugins list` and the log show it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

from framework.plugins.activation import acts_unselected
from framework.plugins.counters import Counters
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.loading import LoadedPlugin
from framework.plugins.specs import HOOKS
from hookspecs.info import ProcessRole

__all__ = ["PluginReport", "PluginState", "absent_report", "loaded_report"]


class PluginState(StrEnum):
    """What a plugin does."""

    ACTIVE = "active"
    """It observes, filters, wraps or adds commands, or one of its providers is selected."""
    UNUSED = "unused"
    """It is loaded, and nothing selects it."""
    DISABLED = "disabled"
    """It is blocked, or all it has is kept out by `plugins.activation`."""
    BROKEN = "broken"
    """It could not be loaded."""


class PluginReport(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin in one process. Counts are since the start of that process."""

    name: str
    state: PluginState
    source: Source
    distribution: str | None = None
    version: str | None = None
    description: str = ""
    api: str = ""
    """Contract versions it was written for; empty when it was not loaded."""
    roles: tuple[ProcessRole, ...] = ()
    providers: tuple[str, ...] = ()
    """`kind:name` each."""
    hooks: tuple[str, ...] = ()
    """Hooks that it implements and that take part."""
    reached: tuple[str, ...] = ()
    """Those of `hooks` that were called at least once in this process."""
    withheld: tuple[str, ...] = ()
    """Hooks that it implements but activation keeps out."""
    calls: dict[str, int] = {}
    """Hook to number of calls."""
    errors: dict[str, int] = {}
    """Hook to number of calls that raised."""
    seconds: dict[str, float] = {}
    """Hook to seconds spent in it."""
    error: str | None = None
    """Why it is broken or disabled."""


def loaded_report(plugin: LoadedPlugin, counters: Counters, used: Collection[str]) -> PluginReport:
    """Report of a loaded plugin; `used`: names of plugins with a selected provider."""
    ref, hooks = plugin.ref, tuple(plugin.hooks)
    by_hook = {hook: counters.of(ref.name, hook) for hook in hooks}
    if ref.name in used or any(acts_unselected(HOOKS[hook]) for hook in hooks):
        state = PluginState.ACTIVE
    elif plugin.withheld and not hooks:
        state = PluginState.DISABLED
    else:
        state = PluginState.UNUSED
    return PluginReport(
        name=ref.name,
        state=state,
        source=ref.source,
        distribution=ref.distribution,
        version=ref.version,
        description=plugin.info.description,
        api=plugin.info.api,
        roles=tuple(role for role in ProcessRole if role in plugin.info.roles),
        providers=tuple(f"{found.kind.name}:{found.provider.name}" for found in plugin.providers),
        hooks=hooks,
        reached=tuple(hook for hook, counter in by_hook.items() if counter.calls),
        withheld=plugin.withheld,
        calls={hook: counter.calls for hook, counter in by_hook.items()},
        errors={hook: counter.errors for hook, counter in by_hook.items()},
        seconds={hook: counter.seconds for hook, counter in by_hook.items()},
    )


def absent_report(ref: PluginRef, state: PluginState, reason: str) -> PluginReport:
    """Report of a plugin that is not loaded."""
    return PluginReport(
        name=ref.name,
        state=state,
        source=ref.source,
        distribution=ref.distribution,
        version=ref.version,
        error=reason,
    )

"""The state of each plugin, as `framework plugins list` and the log show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from framework.plugins.activation import acts_unselected
from framework.plugins.counters import Counters
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.loading import LoadedPlugin
from framework.plugins.specs import HOOKS
from hookspecs.info import HookKind, ProcessRole
from hookspecs.types.stats import PluginCallStats

__all__ = [
    "PluginReport",
    "PluginState",
    "absent_report",
    "call_stats",
    "loaded_report",
    "merged_reports",
]


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
    """Those of `hooks` that were called at least once in this process; provider hooks are, when
    the plugin is loaded."""
    withheld: tuple[str, ...] = ()
    """Hooks that it implements but activation keeps out."""
    calls: dict[str, int] = {}
    """Hook to number of calls; of a provider hook, of its providers by the kernel."""
    errors: dict[str, int] = {}
    """Hook to number of calls that raised."""
    seconds: dict[str, float] = {}
    """Hook to seconds spent in it."""
    error: str | None = None
    """Why it is broken or disabled."""


def loaded_report(plugin: LoadedPlugin, counters: Counters, used: Collection[str]) -> PluginReport:
    """Report of a loaded plugin; `used`: names of plugins with a selected provider."""
    ref, hooks = plugin.ref, tuple(plugin.hooks)
    by_hook = {hook: counters.total(ref.name, hook) for hook in hooks}
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
        reached=tuple(
            hook for hook, counter in by_hook.items() if counter.calls or counter.registered
        ),
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


def call_stats(reports: Iterable[PluginReport], process: str) -> list[PluginCallStats]:
    """Counts of all hooks, but not of provider hooks for whose providers nothing is counted.
    `process`: where the reports come from."""
    found = []
    for report in reports:
        for hook, calls in report.calls.items():
            registers = HOOKS[hook].meta.kind is HookKind.PROVIDER
            if registers and not calls and not report.errors[hook]:
                continue
            found.append(
                PluginCallStats(
                    plugin=report.name,
                    hook=hook,
                    process=process,
                    calls=calls,
                    errors=report.errors[hook],
                    seconds=report.seconds[hook],
                )
            )
    return found


def merged_reports(
    reports: Sequence[PluginReport], elsewhere: Iterable[PluginCallStats]
) -> list[PluginReport]:
    """The reports of this process with the counts of others added."""
    merged = {report.name: report for report in reports}
    for stats in elsewhere:
        report = merged.get(stats.plugin)
        if report is None or stats.hook not in report.hooks:
            continue
        merged[stats.plugin] = msgspec.structs.replace(
            report,
            reached=tuple(
                hook
                for hook in report.hooks
                if hook in report.reached or (hook == stats.hook and stats.calls)
            ),
            calls=_added(report.calls, stats.hook, stats.calls),
            errors=_added(report.errors, stats.hook, stats.errors),
            seconds=_added(report.seconds, stats.hook, stats.seconds),
        )
    return list(merged.values())


N = TypeVar("N", int, float)


def _added(counts: dict[str, N], hook: str, count: N) -> dict[str, N]:
    return {**counts, hook: counts[hook] + count}

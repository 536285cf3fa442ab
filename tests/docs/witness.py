"""A plugin that implements every hook that an engine calls, and notes which it heard."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from framework.plugins.specs import WRAP_PREFIX, hooks_of_kind
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import CacheReset
from hookspecs.info import HookKind

__all__ = ["Clumsy", "Witness"]

Wrapper = Generator[None, Any, Any]


class Witness:
    """Wrappers are written out, since each has arguments of its own; filters and observers follow
    below, whichever there are."""

    PLUGIN = PluginInfo(
        name="witness",
        api=">=1.0,<2",
        provides=tuple(WRAP_PREFIX + phase for phase in hooks_of_kind(HookKind.STEP)),
    )

    def __init__(self, heard: set[str]) -> None:
        self.heard = heard

    @hookimpl(wrapper=True)
    def schedule(self) -> Wrapper:
        self.heard.add("schedule")
        return (yield)

    @hookimpl(wrapper=True)
    def execute_model(self, scheduled: Any) -> Wrapper:
        self.heard.add("execute_model")
        return (yield)

    @hookimpl(wrapper=True)
    def sample_tokens(self, grammar: Any) -> Wrapper:
        self.heard.add("sample_tokens")
        return (yield)

    @hookimpl(wrapper=True)
    def update_from_output(self, scheduled: Any, applied: Any) -> Wrapper:
        self.heard.add("update_from_output")
        return (yield)


def _hearing(hook: str) -> Callable[[Witness, Any], None]:
    def hear(self: Witness, event: Any) -> None:
        self.heard.add(hook)

    return hookimpl(specname=hook)(hear)


for _hook in (*hooks_of_kind(HookKind.FILTER), *hooks_of_kind(HookKind.OBSERVER)):
    setattr(Witness, _hook, _hearing(_hook))


class Clumsy:
    """A plugin that raises, so that others are told."""

    PLUGIN = PluginInfo(name="clumsy", api=">=1.0,<2")

    @hookimpl
    def on_cache_reset(self, event: CacheReset) -> None:
        raise ValueError("no cache")

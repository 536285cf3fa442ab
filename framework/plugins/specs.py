"""The hook specification as tables: name to metadata, arguments and plugin kind."""

from __future__ import annotations

import inspect
from typing import Final

import msgspec

from hookspecs.hooks import EngineHooks
from hookspecs.info import HookKind
from hookspecs.kinds import PLUGIN_KINDS, PluginKind
from hookspecs.markers import HookMeta, hook_meta

__all__ = ["HOOKS", "KIND_OF_HOOK", "WRAP_PREFIX", "HookSpec", "hooks_of_kind"]

WRAP_PREFIX: Final = "wrap:"
"""In `PluginInfo.provides`, followed by a step phase: the plugin may wrap it."""


class HookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of the specification class."""

    name: str
    meta: HookMeta
    arguments: tuple[str, ...]
    """Names, without `self`."""


def _read() -> dict[str, HookSpec]:
    specs = {}
    for name, function in vars(EngineHooks).items():
        if hasattr(function, "__hook_meta__"):
            arguments = tuple(inspect.signature(function).parameters)[1:]
            specs[name] = HookSpec(name=name, meta=hook_meta(function), arguments=arguments)
    return specs


HOOKS: Final[dict[str, HookSpec]] = _read()
"""Every hook, in the order of the specification."""

KIND_OF_HOOK: Final[dict[str, PluginKind]] = {kind.hook: kind for kind in PLUGIN_KINDS.values()}
"""Provider hook to the kind of plugin it registers."""


def hooks_of_kind(kind: HookKind) -> list[str]:
    """Names of all hooks of one kind, in the order of the specification."""
    return [name for name, spec in HOOKS.items() if spec.meta.kind is kind]

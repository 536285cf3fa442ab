"""The decorators: `hookimpl` for plugins, `hookspec` for the specification class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import pluggy

from hookspecs.info import Activation, HookKind, ProcessRole, Tier

__all__ = ["PROJECT_NAME", "HookMeta", "hook_meta", "hookimpl", "hookspec"]

PROJECT_NAME: Final = "framework"
F = TypeVar("F", bound=Callable[..., Any])

hookimpl: Final = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a plugin's method as the implementation of the hook of that name."""

_pluggy_hookspec: Final = pluggy.HookspecMarker(PROJECT_NAME)


class HookMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader, the dispatcher and the docs generator know about a hook."""

    kind: HookKind
    roles: tuple[ProcessRole, ...]
    """The processes in which it is called; for a provider hook, those in which the kernel makes
    or needs the providers: `PluginInfo.roles` must name them all."""
    since: str
    hot: bool = False
    """Called every step: its fan-out is resolved when the plugin manager freezes."""
    tier: Tier = Tier.STABLE
    activation: Activation = Activation.AUTO
    contract: str | None = None
    """For a provider hook: the contract its providers implement."""


def hookspec(
    *,
    kind: HookKind,
    roles: tuple[ProcessRole, ...],
    since: str = "1.0",
    hot: bool = False,
    tier: Tier = Tier.STABLE,
    activation: Activation = Activation.AUTO,
    contract: str | None = None,
) -> Callable[[F], F]:
    """Declare a hook, with everything about it that is not its signature."""
    meta = HookMeta(
        kind=kind,
        roles=roles,
        since=since,
        hot=hot,
        tier=tier,
        activation=activation,
        contract=contract,
    )

    def mark(function: F) -> F:
        function.__hook_meta__ = meta  # type: ignore[attr-defined]
        return _pluggy_hookspec(firstresult=kind is HookKind.STEP)(function)

    return mark


def hook_meta(function: Callable[..., Any]) -> HookMeta:
    """The metadata of a hook of the specification class. AttributeError if it is none."""
    meta: HookMeta = function.__hook_meta__  # type: ignore[attr-defined]
    return meta

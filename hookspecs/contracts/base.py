"""What all contracts share: the context a provider is constructed with."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.config import EngineConfig

__all__ = ["Context", "PluginContext"]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The one argument of every provider's constructor.

    Each contract has its own subclass, to which later versions add fields with defaults: a
    provider's signature never changes.
    """

    config: EngineConfig
    options: Any = None
    """An instance of the provider's options struct, validated; None if it declares none."""
    plugin: str = ""
    """Name of the plugin that registered the provider."""
    name: str = ""
    """Name of the provider."""


class PluginContext(Context, frozen=True, kw_only=True):
    """The one argument of `EngineHooks.configured`.

    `options` is an instance of `PluginInfo.options`, `name` the same as `plugin`.
    """

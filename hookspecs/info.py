"""What a plugin says about itself: `PluginInfo`, and what it offers: `Provider`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Activation", "HookKind", "PluginInfo", "ProcessRole", "Provider", "Tier"]

T = TypeVar("T")


class ProcessRole(StrEnum):
    """The processes in which hooks run."""

    LAUNCHER = "launcher"
    """The process that read the configuration; runs once, before any other exists."""
    FRONTEND = "frontend"
    """Processes that take requests from users and give them outputs."""
    CORE = "core"
    """The process of one engine core: scheduler, step loop."""
    WORKER = "worker"
    """The processes that own a device."""


class HookKind(StrEnum):
    """The four kinds of hook. The verb of a hook's name tells its kind."""

    PROVIDER = "provider"
    STEP = "step"
    FILTER = "filter"
    OBSERVER = "observer"


class Tier(StrEnum):
    """How much of a promise stands behind a hook or contract."""

    STABLE = "stable"
    """Changes only additively within a major version."""
    PROVISIONAL = "provisional"
    """May change in a minor version; the loader says so once."""
    INTERNAL = "internal"
    """No promise."""


class Activation(StrEnum):
    """When a hook of a third-party plugin takes part."""

    AUTO = "auto"
    """As soon as the plugin is installed, unless `plugins.activation` says otherwise."""
    LISTED = "listed"
    """Only when the plugin is named in `plugins.enable`: for hooks that add network surface
    or see the content of requests."""


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who a plugin is. Carried by a plugin object (or module) as the attribute `PLUGIN`.

    The module of a plugin must import in milliseconds and without torch: what is heavy is
    named as a string in a `Provider`.
    """

    name: str
    """Unique among all plugins; lower case, digits and `-`."""
    api: str
    """The contract versions it was written for, e.g. `">=1.0,<2"` (PEP 440 specifiers)."""
    description: str = ""
    roles: frozenset[ProcessRole] = frozenset(ProcessRole)
    """The processes that import it, besides the launcher, which imports all. A plugin that offers
    providers names every process that the provider hook names; the front end too, where they
    have `request_options`."""
    provides: tuple[str, ...] = ()
    """Capabilities of the plugin itself. `wrap:<phase>` lets it wrap a step phase."""
    requires: tuple[str, ...] = ()
    """Names of plugins that must be active too."""
    before: tuple[str, ...] = ()
    """Plugins that this one's filters and observers come before."""
    after: tuple[str, ...] = ()
    """Plugins that this one's filters and observers come after."""
    options: type[msgspec.Struct] | None = None
    """The struct of `plugins.options.<name>`: frozen, keyword-only, `forbid_unknown_fields`.
    Providers without a struct of their own get it in their context, hooks by
    `EngineHooks.configured`."""


class Provider(msgspec.Struct, Generic[T], frozen=True):
    """One implementation of one contract, offered under a name; nothing is constructed.

    `target` is imported only when the configuration selects `name`. It is called with the
    context of its contract as the only argument, in the process its contract states.
    """

    name: str
    """What the configuration selects; unique per kind; lower case, digits, `-` and `_`."""
    target: str
    """`"package.module:attribute"`, the class (or factory) that implements the contract."""
    options: type[msgspec.Struct] | None = None
    """Struct of `plugins.options.<name>` for this provider; the plugin's own when None."""
    capabilities: frozenset[str] = frozenset()
    """Members of the contract's closed set of capabilities."""
    description: str = ""
    extra: str | None = None
    """The extra that installs what it needs, named when its import fails."""
    request_options: type[msgspec.Struct] | None = None
    """Struct of `SamplingParams.extensions[<name>]`: options of a single request. Frozen,
    keyword-only, `forbid_unknown_fields`. The front end checks a request against it and sends
    what it checked on as plain values, defaults filled in; None: requests may give none."""


AnyProvider = Provider[Any]

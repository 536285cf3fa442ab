"""Loading one plugin: import, manifest, hooks, providers. All or nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pluggy

from framework.plugins.counters import Counters
from framework.plugins.discovery import PluginRef
from framework.plugins.failure import describe
from framework.plugins.imports import load_object
from framework.plugins.manifest import read_manifest
from framework.plugins.registry import RegisteredProvider, collect_providers
from framework.plugins.specs import HookSpec
from framework.plugins.validate import HookMethod, register_hooks
from hookspecs.errors import PluginError, PluginLoadError
from hookspecs.info import HookKind, PluginInfo, ProcessRole

__all__ = ["LoadedPlugin", "load_plugin"]


class LoadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is registered in this process."""

    ref: PluginRef
    info: PluginInfo
    instance: object
    """The plugin object that is registered."""
    hooks: dict[str, HookMethod]
    """Those that take part."""
    withheld: tuple[str, ...]
    """Hooks that it implements but activation keeps out."""
    providers: tuple[RegisteredProvider, ...]


def load_plugin(
    ref: PluginRef,
    registrar: pluggy.PluginManager,
    counters: Counters,
    *,
    role: ProcessRole,
    takes_part: Callable[[HookSpec], bool],
    instance: object = None,
) -> LoadedPlugin:
    """Import the plugin (unless `instance` is it), check it, ask for its providers once.

    Whatever goes wrong comes out as a PluginError that names plugin, distribution, process
    and cause; nothing of the plugin stays registered then.
    """
    where = f"in the {role} process"
    plugin = _import(ref, where) if instance is None else instance
    try:
        info = read_manifest(plugin, ref)
        methods = register_hooks(registrar, plugin, info, ref)
    except PluginError as error:
        raise _located(error, where) from error
    hooks = {name: method for name, method in methods.items() if takes_part(method.spec)}
    offers = [method for method in hooks.values() if method.spec.meta.kind is HookKind.PROVIDER]
    try:
        providers = collect_providers(offers, info, ref)
    except PluginError as error:
        registrar.unregister(plugin)
        raise _located(error, where) from error
    for method in offers:
        counters.of(ref.name, method.spec.name).registered = True
    return LoadedPlugin(
        ref=ref,
        info=info,
        instance=plugin,
        hooks=hooks,
        withheld=tuple(name for name in methods if name not in hooks),
        providers=tuple(providers),
    )


def _import(ref: PluginRef, where: str) -> object:
    try:
        return load_object(ref.value)
    except (Exception, SystemExit) as error:
        raise PluginLoadError(
            f"{ref} could not be imported from {ref.value} {where}: {describe(error)}",
            plugin=ref.name,
            distribution=ref.distribution,
        ) from error


def _located(error: PluginError, where: str) -> PluginError:
    return type(error)(
        f"{error} ({where})", plugin=error.plugin, distribution=error.distribution, hook=error.hook
    )

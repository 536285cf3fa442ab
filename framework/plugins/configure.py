"""Giving a plugin's hooks their options: `EngineHooks.configured`."""

from __future__ import annotations

import msgspec

from framework.plugins.failure import describe
from framework.plugins.loading import LoadedPlugin
from framework.plugins.specs import HOOKS
from framework.plugins.validate import HookMethod
from hookspecs.config import EngineConfig
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import ContractViolation, FrameworkError, PluginError
from hookspecs.hooks import EngineHooks
from hookspecs.info import HookKind

__all__ = ["configured", "wants_configuration"]


def wants_configuration(plugin: LoadedPlugin) -> bool:
    """Whether there is anyone to ask: a class that says more of it than `EngineHooks`, with
    observers, filters or wrappers that take part. Provider hooks have been called by then."""
    own = getattr(type(plugin.instance), "configured", None)
    return own not in (None, EngineHooks.configured) and any(
        HOOKS[hook].meta.kind is not HookKind.PROVIDER for hook in plugin.hooks
    )


def configured(
    plugin: LoadedPlugin, config: EngineConfig, options: msgspec.Struct | None
) -> LoadedPlugin:
    """The plugin with its hooks bound to the object that it makes for this configuration.

    ContractViolation when that is of another class, whose hooks nobody has checked; PluginError
    for an exception, but errors of `hookspecs.errors` come out as they are.
    """
    ref, instance = plugin.ref, plugin.instance
    context = PluginContext(config=config, options=options, plugin=ref.name, name=ref.name)
    try:
        made = instance.configured(context)  # type: ignore[attr-defined]
    except FrameworkError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{ref} raised in configured: {describe(error)}",
            plugin=ref.name,
            distribution=ref.distribution,
        ) from error
    if type(made) is not type(instance):
        raise ContractViolation(
            f"{ref}: configured gave {made!r}; it must return an object of the class "
            f"{type(instance).__name__}",
            plugin=ref.name,
            distribution=ref.distribution,
        )
    hooks = {hook: _of(made, method) for hook, method in plugin.hooks.items()}
    return msgspec.structs.replace(plugin, hooks=hooks)


def _of(made: object, method: HookMethod) -> HookMethod:
    """The same hook of the object that was made, whatever kind of attribute it is."""
    try:
        function = getattr(made, method.attribute)
    except Exception as error:
        raise ContractViolation(
            f"{method.ref}: configured gave an object of which the hook {method.attribute} can not "
            f"be read: {describe(error)}",
            plugin=method.ref.name,
            distribution=method.ref.distribution,
            hook=method.spec.name,
        ) from error
    return msgspec.structs.replace(method, function=function)

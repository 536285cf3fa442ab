"""Giving a plugin's hooks their options: `EngineHooks.configured`."""

from __future__ import annotations

from types import MethodType

import msgspec

from framework.plugins.failure import describe
from framework.plugins.loading import LoadedPlugin
from framework.plugins.validate import HookMethod
from hookspecs.config import EngineConfig
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import ContractViolation, FrameworkError, PluginError
from hookspecs.hooks import EngineHooks

__all__ = ["configured", "wants_configuration"]


def wants_configuration(plugin: LoadedPlugin) -> bool:
    """Whether there is anyone to ask: a class that says more of it than `EngineHooks`, with hooks
    that take part."""
    own = getattr(type(plugin.instance), "configured", None)
    return bool(plugin.hooks) and own is not None and own is not EngineHooks.configured


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
    hooks = {hook: _bound_to(made, instance, method) for hook, method in plugin.hooks.items()}
    return msgspec.structs.replace(plugin, hooks=hooks)


def _bound_to(made: object, instance: object, method: HookMethod) -> HookMethod:
    function = method.function
    if not isinstance(function, MethodType) or type(function.__self__) is not type(instance):
        return method  # a static or class method
    return msgspec.structs.replace(method, function=MethodType(function.__func__, made))

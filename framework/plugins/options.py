"""Checking `plugins.options` against the structs of plugins and providers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from framework.config.complaint import WrongField, convert_struct
from framework.config.suggest import suggestion
from framework.plugins.discovery import PluginRef
from framework.plugins.failure import describe
from framework.plugins.loading import LoadedPlugin
from framework.plugins.registry import RegisteredProvider
from hookspecs.errors import ContractViolation, PluginConfigError

__all__ = ["OptionsTable"]

logger = logging.getLogger("framework.plugins")

Options = type[msgspec.Struct]


class _NoOptions(msgspec.Struct, frozen=True):
    """Those of a plugin that takes none."""


class OptionsTable:
    """The options of one process's plugins.

    A key of `plugins.options` is the name of a plugin, the name of a provider, or
    `distribution:name` of a provider. A provider without a struct of its own uses its
    plugin's, with the values under its own name if there are any, else with the plugin's.
    """

    def __init__(
        self, raw: Mapping[str, Mapping[str, Any]], plugins: Sequence[LoadedPlugin]
    ) -> None:
        self._raw = raw
        self._plugins = {plugin.ref.name: plugin for plugin in plugins}
        self._providers: dict[str, list[RegisteredProvider]] = {}
        for plugin in plugins:
            for found in plugin.providers:
                self._providers.setdefault(found.provider.name, []).append(found)
                self._providers.setdefault(found.choice, []).append(found)

    def check(self, absent: Mapping[str, str], *, lenient: bool) -> None:
        """Check every key of the configuration.

        `absent`: name of each installed plugin that is not loaded, and why; its options can not
        be checked, which is said. A key that nobody knows is a PluginConfigError, or, if
        `lenient`, a warning, because a plugin that is not loaded may know it.
        """
        for key, values in self._raw.items():
            claims = self._claims(key)
            if len(claims) > 1:
                raise _ambiguous(key, claims)
            if claims:
                _convert(key, values, *claims[0])
            elif key in absent:
                logger.warning("plugins.options.%s is not checked: %s", key, absent[key])
            elif lenient:
                logger.warning("plugins.options.%s belongs to no loaded plugin", key)
            else:
                raise self._unknown(key, absent)

    def of(self, found: RegisteredProvider) -> msgspec.Struct | None:
        """The checked options of a provider; None when it takes none.

        PluginConfigError when an option is wrong, or one without a default is missing.
        """
        name, ref = found.provider.name, found.ref
        keys = [found.choice, name]
        options = found.provider.options
        if options is None:
            options = found.plugin.options
            keys.append(ref.name)
        if options is None:
            return None
        key = next((key for key in keys if key in self._raw), keys[-1])
        return _convert(key, self._raw.get(key, {}), options, ref)

    def of_plugin(self, plugin: LoadedPlugin) -> msgspec.Struct | None:
        """The checked options of a plugin itself; None when it takes none. PluginConfigError."""
        if plugin.info.options is None:
            return None
        name = plugin.ref.name
        return _convert(name, self._raw.get(name, {}), plugin.info.options, plugin.ref)

    def _claims(self, key: str) -> list[tuple[Options | None, PluginRef]]:
        """The structs that the values under a key must fit, each once. A plugin comes before
        providers of the same name, unless it takes no options itself."""
        claims: dict[Options | None, PluginRef] = {}
        plugin = self._plugins.get(key)
        if plugin is not None:
            claims[plugin.info.options] = plugin.ref
        for found in self._providers.get(key, ()):
            claims.setdefault(found.provider.options or found.plugin.options, found.ref)
        if len(claims) > 1:
            claims.pop(None, None)
        return list(claims.items())

    def _unknown(self, key: str, absent: Mapping[str, str]) -> PluginConfigError:
        names = sorted(
            name
            for name in {*self._plugins, *self._providers}
            if ":" not in name and self._takes_options(name)
        )
        reasons = "".join(f" {reason}." for reason in absent.values())
        return PluginConfigError(
            f"plugins.options.{key}: no plugin or provider has this name; with options there "
            f"are: {', '.join(names) or 'none'}.{suggestion(key, names)}{reasons}"
        )

    def _takes_options(self, name: str) -> bool:
        return any(options is not None for options, _ in self._claims(name))


def _ambiguous(key: str, claims: Sequence[tuple[Options | None, PluginRef]]) -> PluginConfigError:
    return PluginConfigError(
        f"plugins.options.{key} may mean options of {' or '.join(str(ref) for _, ref in claims)}; "
        "write distribution:name in place of the name, or block one plugin with plugins.block",
        plugin=claims[0][1].name,
        distribution=claims[0][1].distribution,
    )


def _convert(
    key: str, values: Mapping[str, Any], options: Options | None, ref: PluginRef
) -> msgspec.Struct | None:
    struct = _NoOptions if options is None else options
    try:
        made = convert_struct(struct, values, f"plugins.options.{key}")
    except WrongField as error:
        raise PluginConfigError(
            f"{error} ({ref})", plugin=ref.name, distribution=ref.distribution
        ) from error
    except Exception as error:  # as of annotations, see `unreadable`
        raise ContractViolation(
            f"{ref}: its options struct {struct.__name__} can not be read: {describe(error)}",
            plugin=ref.name,
            distribution=ref.distribution,
        ) from error
    return None if options is None else made

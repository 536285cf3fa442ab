"""What is under test: a plugin, or one provider of it, and the configuration it is tested in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from framework.config import load_config
from framework.launcher import Engine, launch
from framework.plugins.activation import selected_providers
from framework.plugins.check import installed_plugins
from framework.plugins.discovery import Source, discover
from framework.plugins.loading import LoadedPlugin
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from hookspecs.config import EngineConfig
from hookspecs.errors import PluginLoadError, ProviderNotFoundError
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

__all__ = ["Examples", "PluginSubject", "Settings", "Subject", "merged"]

Settings = Mapping[str, Any]
"""Sections of a configuration, each a mapping."""
Examples = Mapping[str, Any]
"""Plain values that a suite can not guess, such as the arguments of a command; which, the
docstring of the suite says."""

SMALL: Final[Settings] = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted"},
    "cache": {"block_size": 4, "num_blocks": 64},
    "scheduler": {"max_num_seqs": 8, "max_num_batched_tokens": 32},
    "stats": {"loggers": []},
    "engine": {"debug": True},
    "plugins": {"activation": "listed"},
}
"""An engine without a model, with small blocks, all checks, and no part of other plugins that
happen to be installed: what kits run in."""


def merged(*settings: Settings) -> dict[str, Any]:
    """Of each key the last one that gives it; tables merge."""
    result: dict[str, Any] = {}
    for tree in settings:
        for key, value in tree.items():
            before = result.get(key)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                result[key] = merged(before, value)
            else:
                result[key] = value
    return result


class PluginSubject:
    """A plugin under test."""

    def __init__(
        self,
        plugin: str | object,
        settings: Settings | None = None,
        *,
        loaded: LoadedPlugin | None = None,
    ) -> None:
        """`plugin`: the name of an installed plugin, or a plugin object. `settings`: sections of
        the configuration that it needs, such as its options. `loaded`: the same plugin, if it
        was loaded in that configuration before. PluginError when it can not be loaded."""
        self.plugin = plugin
        """Name or object, as given."""
        if isinstance(plugin, str):
            installed_plugins(plugin)
        self.objects: tuple[object, ...] = () if isinstance(plugin, str) else (plugin,)
        """To be given to `launch`: the plugin, if it is not installed."""
        self.name: str = plugin if isinstance(plugin, str) else plugin.PLUGIN.name  # type: ignore[attr-defined]
        self.given: Settings = settings or {}
        self._others = [
            ref.name
            for ref in discover()
            if ref.source is Source.ENTRY_POINT and ref.name != self.name
        ]
        self._base = merged(SMALL, self.given, self._plugins())
        self.loaded: LoadedPlugin = loaded or self._load()

    def _plugins(self, *, there: bool = True) -> Settings:
        """Of the installed plugins only this one takes part, with all that it has, and those that
        the given settings enable: the others are not even imported."""
        lists = {
            key: value
            for key, value in self.given.get("plugins", {}).items()
            if key in ("enable", "block")
        }
        given = load_config({"plugins": lists}, environ={}).config.plugins
        own = () if self.objects else (self.name,)
        enable = (*given.enable, *(own if there else ()))
        block = (*given.block, *(() if there else own), *self._others)
        return {"plugins": {"enable": enable, "block": [n for n in block if n not in enable]}}

    def _load(self) -> LoadedPlugin:
        plugin = self.manager().loaded.get(self.name)
        if plugin is not None:
            return plugin
        raise PluginLoadError(
            f"no plugin {self.name!r} is loaded; `framework plugins list` shows those that are "
            "installed",
            plugin=self.name,
        )

    @property
    def capabilities(self) -> frozenset[str]:
        """What is declared."""
        return frozenset(self.loaded.info.provides)

    def settings(self, **sections: Any) -> dict[str, Any]:
        """The configuration in which it is tested, with `sections` on top."""
        return merged(self._base, sections)

    def config(self, **sections: Any) -> EngineConfig:
        """The same, checked. The environment is not read."""
        return load_config(self.settings(**sections), environ={}).config

    def manager(self, **sections: Any) -> PluginManager:
        """All plugins of this process, in that configuration."""
        return PluginManager.build(self.config(**sections), objects=self.objects)

    def launch(self, *, beside: Sequence[object] = (), **sections: Any) -> Engine:
        """An engine in that configuration; `beside`: further plugin objects. The caller shuts it
        down."""
        return launch(self.config(**sections), plugins=[*self.objects, *beside])

    def launch_without(self, *, beside: Sequence[object] = (), **sections: Any) -> Engine:
        """An engine in the configuration that tests begin with, without the plugin."""
        settings = merged(SMALL, sections, self._plugins(there=False))
        return launch(load_config(settings, environ={}).config, plugins=beside)

    def launch_unused(self) -> Engine:
        """An engine in the configuration that tests begin with, with the plugin and its options,
        none of its providers selected; see `is_default`."""
        plugins = {"plugins": self.given.get("plugins", {})}
        config = load_config(merged(SMALL, plugins, self._plugins()), environ={}).config
        return launch(config, plugins=self.objects)

    def is_default(self) -> bool:
        """Whether the configuration that tests begin with selects a provider of the plugin."""
        chosen = selected_providers(load_config(SMALL, environ={}).config)
        return any(
            found.provider.name in chosen.get(found.kind.name, ())
            for found in self.loaded.providers
        )


class Subject(PluginSubject):
    """One provider of a plugin under test, selected in the configuration."""

    def __init__(
        self,
        plugin: str | object,
        kind: str,
        provider: str | None = None,
        settings: Settings | None = None,
        examples: Examples | None = None,
        *,
        loaded: LoadedPlugin | None = None,
    ) -> None:
        """`provider` may be left out where the plugin has one of that kind."""
        self.kind: PluginKind = PLUGIN_KINDS[kind]
        self.examples: Examples = examples or {}
        super().__init__(plugin, settings, loaded=loaded)
        self.found: RegisteredProvider = self._find(provider)
        self._base = merged(
            self._base, _selecting(self.kind, self.provider), self.given, self._plugins()
        )

    def _find(self, provider: str | None) -> RegisteredProvider:
        own = [found for found in self.loaded.providers if found.kind is self.kind]
        chosen = [found for found in own if provider in (None, found.provider.name)]
        if len(chosen) != 1:
            names = ", ".join(found.provider.name for found in own) or "none"
            asked = "one is wanted" if provider is None else f"{provider!r} is wanted"
            raise ProviderNotFoundError(
                f"plugin {self.name!r} registers as {self.kind.name}: {names}; {asked}",
                plugin=self.name,
            )
        return chosen[0]

    @property
    def provider(self) -> str:
        """Its name."""
        return self.found.provider.name

    @property
    def capabilities(self) -> frozenset[str]:
        return self.found.provider.capabilities

    def create(self, sections: Settings | None = None, /, **fields: Any) -> Any:
        """A new object of it, as the kernel would make one; `fields` of its context."""
        return self.manager(**(sections or {})).create(self.kind.name, self.provider, **fields)


def _selecting(kind: PluginKind, name: str) -> dict[str, Any]:
    """The sections that select a provider; none where its kind is selected in another way."""
    if kind.setting is None:
        return {}
    section, _, key = kind.setting.partition(".")
    several = isinstance(getattr(getattr(EngineConfig(), section), key), tuple)
    return {section: {key: [name] if several else name}}

"""Loading many plugins: which failures stop the start, and which leave a plugin out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial

from framework.plugins.activation import takes_part
from framework.plugins.counters import Counters
from framework.plugins.deprecation import warn_of_hook
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.loading import LoadedPlugin, load_plugin
from framework.plugins.specs import HOOKS
from framework.plugins.validate import new_registrar
from hookspecs.config import PluginsConfig
from hookspecs.errors import PluginError, PluginLoadError
from hookspecs.info import ProcessRole, Tier

__all__ = ["Loader"]

logger = logging.getLogger("framework.plugins")


class Loader:
    """Loads plugins one by one into this process."""

    def __init__(
        self, config: PluginsConfig, role: ProcessRole, instances: Mapping[str, object]
    ) -> None:
        """`instances`: plugin objects that need no import, by plugin name."""
        self.loaded: dict[str, LoadedPlugin] = {}
        self.broken: dict[PluginRef, PluginError] = {}
        self.counters = Counters()
        self._config = config
        self._role = role
        self._instances = instances
        self._registrar = new_registrar()

    def load(self, ref: PluginRef) -> None:
        """Load one plugin. A failure is raised as PluginError if the operator named the plugin
        (`required`, `enable`, a local object), else logged and kept in `broken`."""
        try:
            plugin = self.load_required(ref)
        except PluginError as error:
            self._fail(ref, error)
            return
        for hook, method in plugin.hooks.items():
            warn_of_hook(method)
            if HOOKS[hook].meta.tier is not Tier.STABLE:
                logger.warning(
                    "%s uses the hook %s, which is %s: this version may make no use of it, and a "
                    "minor version may change it",
                    ref,
                    hook,
                    HOOKS[hook].meta.tier,
                )

    def load_required(self, ref: PluginRef) -> LoadedPlugin:
        """Load one plugin; any failure is raised as PluginError."""
        plugin = load_plugin(
            ref,
            self._registrar,
            self.counters,
            role=self._role,
            takes_part=partial(takes_part, ref, config=self._config),
            instance=self._instances.get(ref.name),
        )
        self.loaded[ref.name] = plugin
        return plugin

    def drop_unmet(self) -> None:
        """Treat as broken every plugin whose `requires` names one that is not loaded, until
        none is left."""
        while unmet := next(self._unmet(), None):
            plugin, missing = unmet
            del self.loaded[plugin.ref.name]
            self._registrar.unregister(name=plugin.ref.name)
            self._fail(
                plugin.ref,
                PluginLoadError(
                    f"{plugin.ref} requires the plugin {missing!r}, which is not loaded; install "
                    "or repair that one, or block this one with plugins.block",
                    plugin=plugin.ref.name,
                    distribution=plugin.ref.distribution,
                ),
            )

    def _unmet(self) -> Iterator[tuple[LoadedPlugin, str]]:
        for plugin in self.loaded.values():
            for name in plugin.info.requires:
                if name not in self.loaded:
                    yield plugin, name

    def _fail(self, ref: PluginRef, error: PluginError) -> None:
        for field in ("required", "enable"):
            if ref.name in getattr(self._config, field):
                raise type(error)(
                    f"plugins.{field} names {ref.name!r}, which can not be loaded: {error}",
                    plugin=ref.name,
                    distribution=ref.distribution,
                    hook=error.hook,
                ) from error
        if ref.source is Source.LOCAL:
            raise error
        logger.warning("a broken plugin is left out: %s", error, exc_info=_root(error))
        self.broken[ref] = error


def _root(error: BaseException) -> BaseException:
    """What was raised first: its traceback is the one that shows the plugin's own code."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error

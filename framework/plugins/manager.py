"""`PluginManager`: the plugins of one process, from discovery to calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from framework.plugins.activation import (
    check_plugin_names,
    disabled_plugins,
    explicit_providers,
    is_rescue,
    selected_providers,
)
from framework.plugins.blame import Owners
from framework.plugins.boot import (
    Boot,
    BootPlugin,
    BootReply,
    check_versions,
    require_importable,
)
from framework.plugins.calls import Calls
from framework.plugins.configure import configured, wants_configuration
from framework.plugins.construct import Construction
from framework.plugins.discovery import (
    PluginRef,
    check_unique_names,
    discover,
    installed_version,
    local_ref,
)
from framework.plugins.loader import Loader
from framework.plugins.loading import LoadedPlugin
from framework.plugins.manifest import name_of
from framework.plugins.options import OptionsTable
from framework.plugins.ordering import order_plugins
from framework.plugins.registry import RegisteredProvider, Registry
from framework.plugins.report import PluginReport, PluginState, absent_report, loaded_report
from framework.plugins.specs import KIND_OF_HOOK
from hookspecs.config import EngineConfig
from hookspecs.errors import InternalError
from hookspecs.events import ConfigResolved
from hookspecs.info import ProcessRole

__all__ = ["PluginManager"]


class PluginManager:
    """The plugins of one process. Complete when made; afterwards only counters change.

    Made by `build` in the process that read the configuration, and by `from_boot`, once, in
    each process that the kernel starts.
    """

    calls: Calls
    """All hook calls."""
    registry: Registry
    """All providers."""

    def __init__(
        self,
        config: EngineConfig,
        loader: Loader,
        *,
        roles: tuple[ProcessRole, ...],
        disabled: Mapping[PluginRef, str],
        objects: Mapping[str, object],
    ) -> None:
        """From plugins that a loader has loaded; `build` and `from_boot` call this.

        PluginOrderError when the plugins' constraints form a circle.
        """
        self.config = config
        self.roles = roles
        self._counters = loader.counters
        self._broken = loader.broken
        self._disabled = disabled
        self._objects = objects
        self._used: set[str] = set()
        names = order_plugins([plugin.info for plugin in loader.loaded.values()])
        self._plugins = [loader.loaded[name] for name in names]
        self._boot_plugins = tuple(
            BootPlugin(
                ref=plugin.ref,
                roles=tuple(role for role in ProcessRole if role in plugin.info.roles),
            )
            for plugin in self._plugins
        )
        self.registry = self._make_registry()
        self._owners = Owners(self._plugins)
        self._apply(config)

    @classmethod
    def build(
        cls,
        config: EngineConfig,
        *,
        role: ProcessRole = ProcessRole.LAUNCHER,
        objects: Sequence[object] = (),
        environ: Mapping[str, str] | None = None,
    ) -> PluginManager:
        """Discover, load, order, adjust the configuration, check conflicts and options.

        `objects` are plugin objects that are not installed; they count as enabled. All plugins
        are loaded here, whatever their roles: what a child process needs is checked before
        there is one. Raises ConfigError or PluginError; an optional plugin that is broken is
        logged and left out.
        """
        rescue = is_rescue(os.environ if environ is None else environ)
        given = [(local_ref(plugin, name_of(plugin)), plugin) for plugin in objects]
        refs = [*discover(), *(ref for ref, _ in given)]
        check_plugin_names(config.plugins, {ref.name for ref in refs})
        disabled = disabled_plugins(refs, config.plugins, rescue=rescue)
        wanted = [ref for ref in refs if ref not in disabled]
        check_unique_names(wanted)
        by_name = {ref.name: plugin for ref, plugin in given}
        loader = Loader(config.plugins, role, by_name)
        for ref in wanted:
            loader.load(ref)
        loader.drop_unmet()
        manager = cls(config, loader, roles=(role,), disabled=disabled, objects=by_name)
        manager._apply(manager.calls.adjust_config(ConfigResolved(config=config)).config)
        manager._check(lenient=rescue)
        return manager

    @classmethod
    def from_boot(cls, boot: Boot) -> PluginManager:
        """Import and register exactly the plugins that a child of these roles needs.

        Nothing is optional here: the parent has loaded them, so a failure is a difference,
        raised as PluginError.
        """
        check_versions(boot.api)
        loader = Loader(boot.config.plugins, boot.role, {})
        for ref in boot.expected():
            loader.load_required(ref)
        manager = cls(boot.config, loader, roles=boot.roles, disabled={}, objects={})
        manager._boot_plugins = boot.plugins
        return manager

    @property
    def loaded(self) -> Mapping[str, LoadedPlugin]:
        """Name to plugin, in call order; without those that are disabled or broken."""
        return {plugin.ref.name: plugin for plugin in self._plugins}

    # Providers

    def resolve(self, kind: str, name: str) -> RegisteredProvider:
        """The provider that the configuration means by `name` or `distribution:name`.

        ProviderNotFoundError lists the choices, PluginConflictError the owners of one name.
        """
        return self.registry.resolve(kind, name)

    def providers(self, kind: str) -> list[RegisteredProvider]:
        """All of one kind, sorted by name."""
        return self.registry.providers(kind)

    def capabilities(self, kind: str, name: str) -> frozenset[str]:
        """What a provider declares it can do; nothing is imported."""
        return self.resolve(kind, name).provider.capabilities

    def request_options(self) -> dict[str, type[msgspec.Struct]]:
        """Provider name to the struct of its options of a single request.

        PluginConflictError when two providers of one name have different ones."""
        return self.registry.request_options(selected_providers(self.config))

    def options(self, kind: str, name: str) -> msgspec.Struct | None:
        """The checked options of a provider, None where it has none. PluginConfigError."""
        return self._options.of(self.resolve(kind, name))

    def create(self, kind: str, name: str, /, **fields: Any) -> Any:
        """Construct a selected provider, with `fields` in the context of its kind.

        The object is an instance of the kind's contract. ProviderError, MissingDependencyError
        or ContractViolation name the plugin; see `Construction`.
        """
        made = self.try_out(kind, name, **fields)
        self.mark_used(kind, name)
        return made

    def try_out(self, kind: str, name: str, /, **fields: Any) -> Any:
        """`create`, for a provider that may not be the one to be used."""
        return self.factory(kind, name)(**fields)

    def factory(self, kind: str, name: str) -> Callable[..., Any]:
        """`try_out` of a provider, to be called with the fields often: its target is imported,
        its class checked and its options converted once. Raises what doing so raises."""
        found = self.resolve(kind, name)
        factory = self._factories.get((kind, found.choice))
        if factory is None:
            options, make = self._options.of(found), Construction(found)
            factory = partial(self._make, found, options, make)
            self._factories[kind, found.choice] = factory
        return factory

    def _make(
        self,
        found: RegisteredProvider,
        options: msgspec.Struct | None,
        make: Construction,
        **fields: Any,
    ) -> Any:
        try:
            context = found.kind.context(
                config=self.config,
                options=options,
                plugin=found.ref.name,
                name=found.provider.name,
                **fields,
            )
        except TypeError as error:
            raise InternalError(
                f"the context of a {found.kind.name} can not be made: {error}"
            ) from error
        return make(context)

    def mark_used(self, kind: str, name: str) -> None:
        """A provider is used that neither the configuration names nor `create` made here."""
        self._used.add(self.resolve(kind, name).ref.name)

    @property
    def used(self) -> frozenset[str]:
        """Names of the plugins whose providers were made here, or are known to be used."""
        return frozenset(self._used)

    def note_used(self, names: Iterable[str]) -> None:
        """Plugins that another process uses."""
        self._used.update(names)

    def plugin_of(self, error: BaseException) -> str | None:
        """The plugin in whose code an exception was raised, None if in no plugin's."""
        return self._owners.of(error)

    # Other processes

    def boot(self, *roles: ProcessRole) -> Boot:
        """The message for a child that is of these roles, the first its name.

        PluginLoadError when a plugin object can not be imported in the child.
        """
        if not roles:
            raise InternalError("a child process has at least one role")
        boot = Boot(roles=roles, plugins=self._boot_plugins, config=self.config)
        for ref in boot.expected():
            require_importable(ref, self._objects.get(ref.name))
        return boot

    def reply(self) -> BootReply:
        """What a child made by `from_boot` answers its parent."""
        refs = [plugin.ref for plugin in self._plugins]
        return BootReply(
            roles=self.roles,
            plugins={
                ref.name: installed_version(ref.distribution) if ref.distribution else None
                for ref in refs
            },
        )

    # Report

    def report(self) -> list[PluginReport]:
        """Every plugin that is installed or was given: loaded ones in call order, then the
        others by name."""
        used = self._used | {
            found.ref.name
            for kind, names in selected_providers(self.config).items()
            for name in names
            for found in self.registry.find(kind, name)
        }
        absent = [
            *(absent_report(ref, PluginState.DISABLED, why) for ref, why in self._disabled.items()),
            *(absent_report(ref, PluginState.BROKEN, str(e)) for ref, e in self._broken.items()),
        ]
        return [
            *(loaded_report(plugin, self._counters, used) for plugin in self._plugins),
            *sorted(absent, key=lambda report: report.name),
        ]

    # How it is made

    def _make_registry(self) -> Registry:
        registry = Registry()
        for plugin in self._plugins:
            for found in plugin.providers:
                registry.add(found)
            for kind in (KIND_OF_HOOK[hook] for hook in plugin.withheld if hook in KIND_OF_HOOK):
                registry.note_absent(
                    f"{plugin.ref} has some, but plugins.enable does not name it", kind.name
                )
        for reason in self._disabled.values():
            registry.note_absent(reason)
        for error in self._broken.values():
            registry.note_absent(f"A broken plugin may provide it: {error}")
        return registry

    def _apply(self, config: EngineConfig) -> None:
        """Make what depends on the configuration."""
        self.config = config
        self._factories: dict[tuple[str, str], Callable[..., Any]] = {}
        self._options = OptionsTable(config.plugins.options, self._plugins)
        self._plugins = [
            configured(plugin, config, self._options.of_plugin(plugin))
            if wants_configuration(plugin)
            else plugin
            for plugin in self._plugins
        ]
        self.calls = Calls(
            [method for plugin in self._plugins for method in plugin.hooks.values()],
            role=self.roles[0],
            strict=config.engine.debug,
            counters=self._counters,
        )

    def _check(self, *, lenient: bool) -> None:
        """What the final configuration says about plugins, before anything is made from it."""
        selected = selected_providers(self.config)
        self.registry.check_conflicts(selected)
        self.registry.request_options(selected)
        absent = {ref.name: reason for ref, reason in self._disabled.items()}
        absent |= {ref.name: str(error) for ref, error in self._broken.items()}
        self._options.check(absent, lenient=lenient)
        for kind, names in explicit_providers(self.config).items():
            for name in names:
                self.registry.resolve(kind, name)
        for kind, choices in selected.items():
            for choice in choices:
                for found in self.registry.find(kind, choice):
                    self._options.of(found)

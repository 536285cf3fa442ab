"""Which hooks of which plugins take part, and what the configuration selects by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final

from framework.config.suggest import suggestion
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.specs import HookSpec
from hookspecs.config import EngineConfig, PluginActivation, PluginsConfig
from hookspecs.errors import ConfigError, PluginLoadError
from hookspecs.info import Activation, HookKind
from hookspecs.kinds import PLUGIN_KINDS

__all__ = [
    "acts_unselected",
    "check_plugin_names",
    "disabled_plugins",
    "explicit_providers",
    "is_rescue",
    "selected_providers",
    "takes_part",
]

AUTO: Final = "auto"
RESCUE_VARIABLE: Final = "FRAMEWORK_PLUGINS"
RESCUE: Final = "none"


def is_rescue(environ: Mapping[str, str]) -> bool:
    """Whether `FRAMEWORK_PLUGINS=none` asks for the built-in plugins alone."""
    value = environ.get(RESCUE_VARIABLE, "")
    if value not in ("", RESCUE):
        raise ConfigError(
            f"environment variable {RESCUE_VARIABLE} is {value!r}; the only value is {RESCUE!r}: "
            "load no installed plugin but the built-in ones. Use plugins.enable and "
            "plugins.block in the configuration to choose plugins"
        )
    return value == RESCUE


def acts_unselected(spec: HookSpec) -> bool:
    """Whether an implementation does something without being selected by name: every hook but
    the provider hooks, and of these the ones that add commands or network surface."""
    return (
        spec.meta.kind is not HookKind.PROVIDER
        or spec.meta.activation is Activation.LISTED
        or spec.name == "register_cli_commands"
    )


def takes_part(ref: PluginRef, spec: HookSpec, config: PluginsConfig) -> bool:
    """Whether a hook of a loaded plugin is called.

    Built-in plugins take part, and so do local objects, which the caller chose. Of other
    plugins the providers are always available; the rest follows `plugins.activation`, and
    hooks declared `listed` are called only for plugins in `plugins.enable`.
    """
    if ref.source is not Source.ENTRY_POINT or not acts_unselected(spec):
        return True
    if config.activation == PluginActivation.NONE:
        return False
    if ref.name in config.enable:
        return True
    return config.activation == PluginActivation.AUTO and spec.meta.activation is Activation.AUTO


def selected_providers(config: EngineConfig) -> dict[str, tuple[str, ...]]:
    """Plugin kind to the provider names that the configuration selects; `auto` selects none."""
    selected: dict[str, tuple[str, ...]] = {}
    for kind in PLUGIN_KINDS.values():
        if kind.setting is not None:
            value: str | tuple[str, ...] = attrgetter(kind.setting)(config)
            names = (value,) if isinstance(value, str) else value
            selected[kind.name] = tuple(name for name in names if name != AUTO)
    return selected


def check_plugin_names(config: PluginsConfig, known: Collection[str]) -> None:
    """ConfigError when `plugins.enable`, `block` or `required` names a plugin that is not
    installed: a misspelt `block` would let the plugin run."""
    for field in ("enable", "block", "required"):
        for name in getattr(config, field):
            if name not in known:
                raise ConfigError(
                    f"plugins.{field} names {name!r}, which is not installed; there are: "
                    f"{', '.join(sorted(known)) or 'none'}.{suggestion(name, known)}"
                )


def disabled_plugins(
    refs: Iterable[PluginRef], config: PluginsConfig, *, rescue: bool
) -> dict[PluginRef, str]:
    """The plugins that are never imported, and why. `plugins.block` wins over everything but
    `plugins.required`: naming one plugin in both is a PluginLoadError."""
    disabled: dict[PluginRef, str] = {}
    for ref in refs:
        if ref.name in config.block:
            disabled[ref] = f"{ref} is not loaded: plugins.block names it"
        elif rescue and ref.source is Source.ENTRY_POINT:
            disabled[ref] = f"{ref} is not loaded: {RESCUE_VARIABLE}={RESCUE}"
        else:
            continue
        if ref.name in config.required:
            raise PluginLoadError(
                f"plugins.required names {ref.name!r}, but {disabled[ref]}",
                plugin=ref.name,
                distribution=ref.distribution,
            )
    return disabled


def explicit_providers(config: EngineConfig) -> dict[str, list[str]]:
    """Of `selected_providers`, the names that are not the default of their setting."""
    defaults = selected_providers(EngineConfig())
    return {
        kind: [name for name in names if name not in defaults[kind]]
        for kind, names in selected_providers(config).items()
    }

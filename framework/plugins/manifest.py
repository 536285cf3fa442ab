"""Reading and checking what a plugin says about itself: its `PLUGIN` attribute."""

from __future__ import annotations

import re
from typing import Final, NoReturn

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from framework.config.suggest import suggestion
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.specs import WRAP_PREFIX, hooks_of_kind
from hookspecs.errors import ApiVersionError, PluginLoadError
from hookspecs.info import HookKind, PluginInfo, ProcessRole
from hookspecs.version import API_VERSION

__all__ = ["api_text", "is_options_struct", "is_plugin_name", "name_of", "read_manifest"]

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def api_text(version: tuple[int, int] = API_VERSION) -> str:
    """`major.minor`."""
    return ".".join(map(str, version))


def is_plugin_name(name: str) -> bool:
    """Whether a plugin may be called so."""
    return _NAME.fullmatch(name) is not None


def name_of(plugin: object) -> str:
    """Name in the `PLUGIN` of an object; PluginLoadError when it has none."""
    info = getattr(plugin, "PLUGIN", None)
    if not isinstance(info, PluginInfo):
        raise PluginLoadError(
            f"{plugin!r} is no plugin: its attribute PLUGIN is {info!r}; it must be a "
            "hookspecs.PluginInfo"
        )
    if not isinstance(info.name, str):
        raise PluginLoadError(f"{plugin!r}: PLUGIN.name is {info.name!r}; it must be a string")
    return info.name


def read_manifest(plugin: object, ref: PluginRef) -> PluginInfo:
    """The checked `PluginInfo` of an imported plugin object.

    ApiVersionError when it was written for another version of the contract, PluginLoadError
    for anything else that is wrong.
    """
    if isinstance(plugin, type):
        _fail(
            ref,
            f"{ref.value} is the class {plugin.__name__}; export an instance of it",
        )
    name_of(plugin)
    info: PluginInfo = plugin.PLUGIN  # type: ignore[attr-defined]
    if not is_plugin_name(info.name):
        _fail(
            ref,
            f"the name {info.name!r} is not lower case letters, digits and single '-' between",
        )
    if info.name != ref.name:
        _fail(
            ref,
            f"its entry point is called {ref.name!r} but PLUGIN.name is {info.name!r}; "
            "they must be equal",
        )
    for field in ("provides", "requires", "before", "after"):
        words = getattr(info, field)
        if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
            _fail(ref, f"PLUGIN.{field} is {words!r}; it must be a tuple of strings")
    _check_api(info, ref)
    _check_roles(info, ref)
    _check_provides(info, ref)
    if info.options is not None and not is_options_struct(info.options):
        _fail(ref, f"PLUGIN.options is {info.options!r}; it must be a msgspec.Struct class")
    return info


def is_options_struct(options: object) -> bool:
    """Whether it is a struct class, as options must be."""
    return isinstance(options, type) and issubclass(options, msgspec.Struct)


def _check_api(info: PluginInfo, ref: PluginRef) -> None:
    try:
        specifiers = SpecifierSet(info.api)
    except InvalidSpecifier:
        specifiers = SpecifierSet()
    if not len(specifiers):
        _fail(ref, f"PLUGIN.api is {info.api!r}; it must be PEP 440 specifiers like '>=1.0,<2'")
    if not specifiers.contains(api_text(), prereleases=True):
        remedy = (
            "Install another version of the plugin"
            if ref.source is not Source.LOCAL
            else "Adapt it, then widen PLUGIN.api"
        )
        raise ApiVersionError(
            f"{ref} was written for contract version {info.api}; this is {api_text()}. {remedy}",
            plugin=ref.name,
            distribution=ref.distribution,
        )


def _check_roles(info: PluginInfo, ref: PluginRef) -> None:
    allowed = ", ".join(ProcessRole)
    if not isinstance(info.roles, frozenset) or not info.roles:
        _fail(ref, f"PLUGIN.roles is {info.roles!r}; it must be a frozenset of some of: {allowed}")
    for role in info.roles:
        if not isinstance(role, ProcessRole):
            _fail(ref, f"PLUGIN.roles contains {role!r}; ProcessRole has {allowed}")


def _check_provides(info: PluginInfo, ref: PluginRef) -> None:
    phases = hooks_of_kind(HookKind.STEP)
    for capability in info.provides:
        phase = capability.removeprefix(WRAP_PREFIX)
        if phase != capability and phase not in phases:
            _fail(
                ref,
                f"PLUGIN.provides names the unknown step phase {phase!r}; there are "
                f"{', '.join(phases)}.{suggestion(phase, phases)}",
            )


def _fail(ref: PluginRef, what: str) -> NoReturn:
    raise PluginLoadError(f"{ref}: {what}", plugin=ref.name, distribution=ref.distribution)

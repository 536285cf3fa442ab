"""Checks of a plugin's hook implementations that pluggy does not make."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec
import pluggy

from framework.config.suggest import suggestion
from framework.plugins.discovery import PluginRef
from framework.plugins.specs import HOOKS, WRAP_PREFIX, HookSpec
from hookspecs.errors import PluginLoadError
from hookspecs.hooks import EngineHooks
from hookspecs.info import HookKind, PluginInfo
from hookspecs.markers import PROJECT_NAME

__all__ = ["HookMethod", "new_registrar", "register_hooks"]


class HookMethod(msgspec.Struct, frozen=True, kw_only=True):
    """One checked implementation of one hook by one plugin."""

    spec: HookSpec
    ref: PluginRef
    attribute: str
    """The plugin object's attribute, which `specname` may let differ from the hook's name."""
    function: Callable[..., Any]
    """Bound; takes the arguments of the specification, by position."""


class _Registrar(pluggy.PluginManager):
    """Does not look at what plugins inherit: the defaults of EngineHooks are many, and pluggy's
    look at each attribute takes longer than all the rest of loading."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if _is_inherited(plugin, name):
            return None
        return super().parse_hookimpl_opts(plugin, name)


_INHERITED: Final = {name: getattr(EngineHooks, name) for name in dir(EngineHooks)}


def _is_inherited(plugin: object, name: str) -> bool:
    default = _INHERITED.get(name)
    return (
        default is not None
        and getattr(type(plugin), name, None) is default
        and name not in getattr(plugin, "__dict__", ())
    )


def new_registrar() -> pluggy.PluginManager:
    """A pluggy manager that knows the hook specification; holds the plugins of one process."""
    registrar = _Registrar(PROJECT_NAME)
    registrar.add_hookspecs(EngineHooks)
    return registrar


def register_hooks(
    registrar: pluggy.PluginManager, plugin: object, info: PluginInfo, ref: PluginRef
) -> dict[str, HookMethod]:
    """Check and register all marked methods of a plugin object; hook name to implementation.

    Raises PluginLoadError with plugin, distribution and hook; then nothing is registered.
    """
    methods: dict[str, HookMethod] = {}
    for attribute in dir(plugin):
        marks = registrar.parse_hookimpl_opts(plugin, attribute)
        if marks is None:
            _check_not_forgotten(plugin, attribute, ref)
            continue
        hook = marks.get("specname") or attribute
        spec = HOOKS.get(hook)
        if spec is None:
            if marks.get("optionalhook"):
                continue  # the author's word for: a hook of another contract version
            _fail(ref, hook, f"there is no such hook.{suggestion(hook, HOOKS)}")
        if hook in methods:
            _fail(ref, hook, "it is implemented twice")
        function: Callable[..., Any] = getattr(plugin, attribute)
        _check_marks(spec, marks, ref)
        _check_function(spec, function, info, ref, wrapper=bool(marks.get("wrapper")))
        methods[hook] = HookMethod(spec=spec, ref=ref, attribute=attribute, function=function)
    try:
        registrar.register(plugin, ref.name)
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginLoadError(
            f"{ref}: {error}", plugin=ref.name, distribution=ref.distribution
        ) from error
    return methods


def _check_not_forgotten(plugin: object, attribute: str, ref: PluginRef) -> None:
    """A subclass of EngineHooks that overrides a hook meant to implement it."""
    if attribute not in HOOKS or not isinstance(plugin, EngineHooks):
        return
    if getattr(type(plugin), attribute, None) is not getattr(EngineHooks, attribute):
        _fail(ref, attribute, "it is overridden without @hookimpl, so it would never be called")


def _check_marks(spec: HookSpec, marks: pluggy.HookimplOpts, ref: PluginRef) -> None:
    if marks.get("hookwrapper"):
        _fail(ref, spec.name, "hookwrapper=True is the old form; declare wrapper=True")
    if marks.get("tryfirst") or marks.get("trylast"):
        _fail(
            ref,
            spec.name,
            "order is declared for the whole plugin with PLUGIN.before and PLUGIN.after, "
            "not with tryfirst or trylast",
        )


def _check_function(
    spec: HookSpec, function: Callable[..., Any], info: PluginInfo, ref: PluginRef, *, wrapper: bool
) -> None:
    name = spec.name
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        _fail(ref, name, "it is async; hooks are called synchronously")
    generator = inspect.isgeneratorfunction(function)
    if spec.meta.kind is HookKind.STEP:
        if not wrapper:
            _fail(
                ref,
                name,
                "a step phase is implemented by the selected object; a plugin may only wrap it, "
                "with hookimpl(wrapper=True)",
            )
        if not generator:
            _fail(ref, name, "a wrapper must be a generator function with one yield")
        if WRAP_PREFIX + name not in info.provides:
            _fail(ref, name, f"wrapping needs {WRAP_PREFIX + name!r} in PLUGIN.provides")
    elif wrapper:
        _fail(ref, name, "only step phases can be wrapped")
    elif generator and spec.meta.kind is not HookKind.PROVIDER:
        _fail(ref, name, "it is a generator function; its body would never run")
    _check_arguments(spec, function, ref)


def _check_arguments(spec: HookSpec, function: Callable[..., Any], ref: PluginRef) -> None:
    found = inspect.signature(function).parameters.values()
    for parameter in found:
        if parameter.default is not parameter.empty:
            _fail(ref, spec.name, f"the argument {parameter.name!r} has a default; remove it")
    names = [parameter.name for parameter in found]
    plain = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in found)
    if not plain or names != list(spec.arguments):
        given = ", ".join(str(parameter).partition(":")[0] for parameter in found)
        _fail(
            ref,
            spec.name,
            f"its arguments are ({given}); they must be ({', '.join(spec.arguments)})",
        )


def _fail(ref: PluginRef, hook: str, what: str) -> NoReturn:
    raise PluginLoadError(
        f"{ref}, hook {hook}: {what}", plugin=ref.name, distribution=ref.distribution, hook=hook
    )

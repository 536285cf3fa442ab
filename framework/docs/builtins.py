"""The page of built-in plugins, as installed: found through entry points, never by name."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from framework.config.keys import allowed
from framework.docs.config import value_text
from framework.docs.links import kind_page
from framework.docs.markdown import code, join, prose, table
from framework.docs.source import fields_of
from framework.plugins.activation import RESCUE, RESCUE_VARIABLE
from framework.plugins.discovery import Source
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from framework.plugins.report import PluginState
from hookspecs.config import EngineConfig
from hookspecs.errors import PluginLoadError
from hookspecs.info import Provider
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

__all__ = ["builtin_manager", "builtin_plugins_page"]


def builtin_manager() -> PluginManager:
    """The built-in plugins alone, whatever else is installed."""
    return PluginManager.build(EngineConfig(), environ={RESCUE_VARIABLE: RESCUE})


def builtin_plugins_page() -> str:
    """Every provider of the built-in plugins, by kind, and the plugins they come from.

    PluginLoadError when none is installed, or one is broken: the page would be incomplete.
    """
    manager = builtin_manager()
    reports = [report for report in manager.report() if report.source is Source.BUILTIN]
    broken = [f"{r.name}: {r.error}" for r in reports if r.state is PluginState.BROKEN]
    if broken or not reports:
        raise PluginLoadError(
            "the page of built-in plugins can not be made: "
            + ("; ".join(broken) or "none is installed; install this project first")
        )
    rows = [
        (
            code(report.name),
            prose(report.description),
            ", ".join(code(provider) for provider in report.providers),
        )
        for report in sorted(reports, key=lambda report: report.name)
    ]
    blocks = [
        "# Built-in plugins",
        "Default plugins, without any privilege that another package lacks. A provider is "
        "selected by its name in the setting of its kind.",
        table(("plugin", "description", "providers"), rows),
    ]
    for kind in PLUGIN_KINDS.values():
        providers = manager.providers(kind.name)
        if providers:
            blocks += [f"## {kind.name}", _selected_by(kind)]
        for found in providers:
            blocks += _entry(found)
    return join(blocks)


def _selected_by(kind: PluginKind) -> str:
    setting = f", selected by `{kind.setting}`" if kind.setting else ""
    return f"Contract: [{code(kind.contract.__name__)}]({kind_page(kind)}){setting}."


def _entry(found: RegisteredProvider) -> list[str]:
    provider, options = found.provider, found.provider.options or found.plugin.options
    capabilities = ", ".join(code(str(word)) for word in sorted(provider.capabilities))
    return [
        f"### {code(provider.name)}",
        prose(provider.description),
        table(
            ("", ""),
            [
                ("plugin", code(found.ref.name)),
                ("capabilities", capabilities or "none"),
                ("target", code(provider.target)),
            ],
        ),
        "" if options is None else _options(_options_key(found), options),
        *_request_options(provider),
    ]


def _request_options(provider: Provider[Any]) -> list[str]:
    if provider.request_options is None:
        return []
    return [
        "Options of a single request, in `SamplingParams.extensions`:",
        _options(f"extensions.{provider.name}", provider.request_options),
    ]


def _options_key(found: RegisteredProvider) -> str:
    own = found.provider.options is not None
    return f"plugins.options.{found.provider.name if own else found.ref.name}"


def _options(prefix: str, options: type[msgspec.Struct]) -> str:
    docs = {field.name: field.doc for field in fields_of(options)}
    rows = [
        (
            code(f"{prefix}.{field.encode_name}"),
            prose(allowed(inspect.type_info(field.type))),
            _default(field),
            prose(docs[field.name]),
        )
        for field in msgspec.structs.fields(options)
    ]
    return table(("option", "allowed", "default", "meaning"), rows) if rows else ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    return "-" if value is msgspec.NODEFAULT else code(value_text(value))

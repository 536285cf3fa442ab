"""Which suites there are, and which of them fit a plugin."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Final

from framework.conformance import suites
from framework.conformance.base import Conformance
from framework.conformance.subject import Examples, PluginSubject, Settings, Subject
from framework.plugins.specs import HOOKS
from hookspecs.errors import ConfigError
from hookspecs.info import HookKind

__all__ = ["HOOK_SUITES", "PLUGIN_SUITE", "Run", "runs_of", "suite_of", "suites_by_kind"]

PLUGIN_SUITE: Final = "plugin"
"""The suite that every plugin passes."""
HOOK_SUITES: Final = {
    HookKind.OBSERVER: "observers",
    HookKind.FILTER: "filters",
    HookKind.STEP: "wrappers",
}
"""The suites for plugins that implement such hooks."""


class Run:
    """One suite over one subject."""

    def __init__(self, suite: type[Conformance], subject: PluginSubject, label: str) -> None:
        self.suite = suite
        self.subject = subject
        self.label = label
        """`plugin`, `observers`, `filters`, `wrappers`, or `kind:provider`."""


def suites_by_kind() -> dict[str, type[Conformance]]:
    """All suites, by the name of their module."""
    names = sorted(module.name for module in pkgutil.iter_modules(suites.__path__))
    return {name: _load(name) for name in names}


def suite_of(kind: str) -> type[Conformance] | None:
    """The suite of a kind; None when there is none."""
    names = {module.name for module in pkgutil.iter_modules(suites.__path__)}
    return _load(kind) if kind in names else None


def _load(kind: str) -> type[Conformance]:
    module = importlib.import_module(f"{suites.__name__}.{kind}")
    name = "".join(part.capitalize() for part in kind.split("_")) + "Conformance"
    suite: type[Conformance] = getattr(module, name)
    return suite


def runs_of(
    plugin: str | object, settings: Settings, examples: Mapping[str, Examples]
) -> tuple[list[Run], list[str]]:
    """What to run for a plugin, and `kind:provider` of what has no suite yet. `examples`: by
    `kind:provider`. ConfigError when they name what the plugin does not provide, or have a key
    that the suite of the kind does not know."""
    whole = PluginSubject(plugin, settings)
    runs = [Run(_load(PLUGIN_SUITE), whole, PLUGIN_SUITE)]
    hooks = [*whole.loaded.hooks, *whole.loaded.withheld]
    kinds = {HOOKS[hook].meta.kind for hook in hooks}
    runs += [
        Run(_load(suite), whole, suite) for kind, suite in HOOK_SUITES.items() if kind in kinds
    ]
    offered = [f"{found.kind.name}:{found.provider.name}" for found in whole.loaded.providers]
    if unknown := examples.keys() - set(offered):
        raise ConfigError(
            f"examples are given for {', '.join(sorted(unknown))}; plugin {whole.name!r} provides "
            f"{', '.join(offered) or 'nothing'}"
        )
    untested = []
    for found in whole.loaded.providers:
        kind, name = found.kind.name, found.provider.name
        label = f"{kind}:{name}"
        suite = suite_of(kind)
        if suite is None:
            untested.append(label)
        else:
            given = examples.get(label, {})
            suite.check_examples(label, given)
            subject = Subject(plugin, kind, name, settings, given, loaded=whole.loaded)
            runs.append(Run(suite, subject, label))
    return runs, untested

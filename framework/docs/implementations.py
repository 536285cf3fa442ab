"""Who implements each hook: the built-in plugins as installed, the samples as they are written."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Final

from framework.docs.builtins import builtin_manager
from framework.plugins.discovery import GROUP, Source
from framework.plugins.specs import HOOKS
from framework.plugins.usage import implemented_hooks
from hookspecs.errors import ConfigError

__all__ = ["SAMPLES", "builtins_by_hook", "samples_by_hook"]

SAMPLES: Final = Path(__file__).parents[2] / "sample_plugins"
"""Of this checkout: whether they are installed does not matter, and none is imported."""


def builtins_by_hook() -> dict[str, list[str]]:
    """Hook to the names of the built-in plugins that implement it, sorted."""
    plugins = builtin_manager().loaded.values()
    return {
        hook: sorted(
            plugin.ref.name
            for plugin in plugins
            if plugin.ref.source is Source.BUILTIN and hook in plugin.hooks
        )
        for hook in HOOKS
    }


def samples_by_hook() -> dict[str, list[str]]:
    """Hook to the packages of `sample_plugins` whose entry modules implement it, sorted.

    ConfigError when there are none: this is no checkout.
    """
    projects = sorted(SAMPLES.glob("*/pyproject.toml"))
    if not projects:
        raise ConfigError(
            f"{SAMPLES} has no sample plugins, which the page of hooks names; run this in a "
            "checkout, where the project is installed editable"
        )
    by_hook: dict[str, list[str]] = {hook: [] for hook in HOOKS}
    for project in projects:
        for hook in _hooks_of(project):
            if hook in by_hook:
                by_hook[hook].append(project.parent.name)
    return by_hook


def _hooks_of(project: Path) -> set[str]:
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    values = declared.get("entry-points", {}).get(GROUP, {}).values()
    modules = [value.partition(":")[0].split(".") for value in values]
    files = [Path(project.parent, "src", *module).with_suffix(".py") for module in modules]
    trees = [ast.parse(file.read_bytes()) for file in files]
    return {hook for tree in trees for node in ast.walk(tree) for hook in implemented_hooks(node)}

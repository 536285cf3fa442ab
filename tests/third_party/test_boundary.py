"""The kernel knows no built-in plugin by name: they are found as any other."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import framework
import hookspecs
from framework.plugins.manager import PluginManager
from hookspecs.config import EngineConfig
from hookspecs.kinds import PLUGIN_KINDS

DISTRIBUTION = "engine-framework"
PACKAGE = "builtin_plugins"
OTHER_MEANINGS = {
    "policies": "a setting",
    "cpu": "a torch device",
    "deadline": "a field of a request",
    "default": "an ordinary word",
    "priority": "a field of a request",
    "requests": "an ordinary word",
    "transformers": "a package that is heavy to import",
}
"""Names of built-in plugins and providers that also mean something else."""

ABOVE_THE_KERNEL = ("framework/conformance/", "framework/scaffold/")
"""Tools for plugin authors, which run plugins in an engine with the scripted worker."""


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of each module of the kernel and the contract."""
    for package in (framework, hookspecs):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            yield path.relative_to(root.parent).as_posix(), path.read_text(encoding="utf-8")


def built_in() -> dict[str, str]:
    """Entry point name to module, of this distribution."""
    return {
        entry_point.name: entry_point.module
        for entry_point in importlib.metadata.entry_points(group="framework.plugins")
        if entry_point.dist is not None and entry_point.dist.name == DISTRIBUTION
    }


def test_no_module_names_a_built_in_plugin_or_its_package() -> None:
    plugins = built_in()
    assert plugins
    assert all(module.startswith(f"{PACKAGE}.") for module in plugins.values())
    names = {PACKAGE, *plugins, *(module.split(".")[1] for module in plugins.values())}
    words = "|".join(map(re.escape, sorted(names - set(OTHER_MEANINGS))))
    pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
    found = [(path, pattern.findall(text)) for path, text in sources() if pattern.search(text)]
    assert not found


def test_names_of_built_in_providers_are_defaults_of_the_configuration_and_no_more() -> None:
    manager = PluginManager.build(EngineConfig(), environ={"FRAMEWORK_PLUGINS": "none"})
    providers = {
        found.provider.name for kind in PLUGIN_KINDS for found in manager.providers(kind)
    } - set(OTHER_MEANINGS)
    assert {"continuous", "paged", "uniproc"} <= providers
    found = {
        (path, node.value)
        for path, text in sources()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in providers and not path.startswith(ABOVE_THE_KERNEL)
    }
    assert {path for path, _ in found} == {"hookspecs/config.py"}

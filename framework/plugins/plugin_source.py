"""The modules of a plugin as syntax trees. Nothing is imported, so it works for a plugin that the
running contract refuses."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Module", "PluginSource", "read_plugin"]

NOT_ITS_OWN: Final = frozenset({"hookspecs", "framework"})


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module."""

    name: str
    package: str
    """What relative imports are relative to."""
    tree: ast.Module


class PluginSource(msgspec.Struct, frozen=True, kw_only=True):
    """All modules of the packages that hold a plugin and its providers."""

    packages: tuple[str, ...]
    modules: dict[str, Module]
    unread: tuple[str, ...]
    """Modules whose source can not be read, and packages without source."""


def read_plugin(value: str) -> PluginSource:
    """`value` is that of the entry point, `module:object`. Read are the package that the entry
    module lies in, and those of the targets of its providers, as far as they are string literals.
    """
    modules: dict[str, Module] = {}
    unread: list[str] = []
    todo, seen = [_home(value)], set[str]()
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        sources = dict(_sources(package))
        if not sources:
            unread.append(package)
        for name, path in sources.items():
            if name in modules:
                continue
            try:
                tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError):
                unread.append(name)
                continue
            is_package = path.name == "__init__.py"
            parent = name if is_package else name.rpartition(".")[0]
            modules[name] = Module(name=name, package=parent, tree=tree)
            homes = map(_home, _targets(tree))
            todo += [home for home in homes if home.partition(".")[0] not in NOT_ITS_OWN]
    return PluginSource(packages=tuple(sorted(seen)), modules=modules, unread=tuple(sorted(unread)))


def _home(value: str) -> str:
    """The package of the module in `module:object`; the module itself where it has none."""
    module = value.partition(":")[0]
    return module.rpartition(".")[0] or module


def _sources(package: str) -> Iterator[tuple[str, Path]]:
    """Names and files of a package's modules, or of a module by itself."""
    top, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: imports nothing
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return
    for place in spec.submodule_search_locations or ():
        folder = Path(place, *rest)
        if folder.is_dir():
            for path in sorted(folder.rglob("*.py")):
                inner = path.relative_to(folder).with_suffix("").parts
                yield ".".join((package, *(part for part in inner if part != "__init__"))), path
        elif (alone := folder.with_suffix(".py")).is_file():
            yield package, alone
    if spec.submodule_search_locations is None and spec.origin and spec.origin.endswith(".py"):
        yield top, Path(spec.origin)


def _targets(tree: ast.Module) -> Iterator[str]:
    """Second arguments of `Provider(…)`, where they are written out."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Provider") | ast.Attribute(attr="Provider")):
                given = [word.value for word in node.keywords if word.arg == "target"]
                for argument in [*node.args[1:2], *given]:
                    match argument:
                        case ast.Constant(value=str(target)) if ":" in target:
                            yield target

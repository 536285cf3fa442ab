"""Where each public class of the contract is documented, for links between pages."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any

import hookspecs.contracts
import hookspecs.types
from framework.docs.markdown import anchor
from framework.docs.source import class_source, fields_of, public_classes
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

__all__ = ["kind_page", "links", "related", "type_modules", "used_elsewhere"]


def kind_page(kind: PluginKind) -> str:
    """Path of a plugin kind's page below `docs/reference`."""
    return f"contracts/{kind.name}.md"


def _submodules(package: ModuleType) -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def type_modules() -> list[ModuleType]:
    """Modules whose classes are on the page of types: those that belong to no plugin kind."""
    of_kinds = {kind.contract.__module__ for kind in PLUGIN_KINDS.values()}
    contracts = [m for m in _submodules(hookspecs.contracts) if m.__name__ not in of_kinds]
    info = importlib.import_module("hookspecs.info")
    return [info, *_submodules(hookspecs.types), *contracts]


def _own(kind: PluginKind) -> set[type[Any]]:
    return {kind.contract, kind.context, *([kind.capabilities] if kind.capabilities else [])}


def _words(cls: type[Any]) -> set[str]:
    """Every name in the signatures and annotations of a class."""
    source = class_source(cls)
    fields = fields_of(cls) if hasattr(cls, "__struct_fields__") else source.fields
    texts = [*(f.annotation for f in fields), *(m.signature for m in source.methods)]
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _reached(kind: PluginKind, classes: Iterable[type[Any]]) -> set[type[Any]]:
    """Those of `classes` that the contract of a kind leads to, through others too."""
    by_name = {cls.__name__: cls for cls in classes}
    reached: set[type[Any]] = set()
    todo: list[type[Any]] = list(_own(kind))
    while todo:
        for word in _words(todo.pop()):
            cls = by_name.get(word)
            if cls is not None and cls not in reached:
                reached.add(cls)
                todo.append(cls)
    return reached


def related(kind: PluginKind) -> list[type[Any]]:
    """Other classes of the contract's module that belong to this kind: what its contract leads
    to, and what none of the module's contracts does."""
    module = importlib.import_module(kind.contract.__module__)
    siblings = [k for k in PLUGIN_KINDS.values() if k.contract.__module__ == module.__name__]
    taken = {cls for sibling in siblings for cls in _own(sibling)}
    others = [cls for cls in public_classes(module) if cls not in taken]
    reached_by_any = {cls for sibling in siblings for cls in _reached(sibling, others)}
    mine = _reached(kind, others)
    return [cls for cls in others if cls in mine or cls not in reached_by_any]


@cache
def links() -> dict[str, str]:
    """Class name to page and fragment below `docs/reference`."""
    found = {
        cls.__name__: f"types.md#{anchor(cls.__name__)}"
        for module in type_modules()
        for cls in public_classes(module)
    }
    for kind in PLUGIN_KINDS.values():
        found.setdefault(kind.contract.__name__, kind_page(kind))
        for cls in related(kind):
            found.setdefault(cls.__name__, f"{kind_page(kind)}#{anchor(cls.__name__)}")
    for name in importlib.import_module("hookspecs.errors").__all__:
        found.setdefault(name, f"errors.md#{anchor(name)}")
    found["EngineConfig"] = "config.md"
    return found


def used_elsewhere(kind: PluginKind) -> list[tuple[str, str]]:
    """Names in the signatures and docstrings of a kind that another page documents, and where;
    sorted."""
    here = [*_own(kind), *related(kind)]
    words = {word for cls in here for word in _words(cls)}
    words |= {
        w for cls in here for m in class_source(cls).methods for w in re.findall(r"\w+", m.doc)
    }
    own = {cls.__name__ for cls in here}
    return sorted((name, at) for name, at in links().items() if name in words - own)

"""`framework.sdk` as data: what its modules export.

Read from the source, since some of its modules import torch.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import framework.sdk

__all__ = ["sdk_sections"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sdk_sections() -> dict[str, dict[str, Any]]:
    """Section to entries: `classes`, `functions`, `constants`, `exports`."""
    sections: dict[str, dict[str, Any]] = {
        "classes": {},
        "functions": {},
        "constants": {},
        "exports": {},
    }
    for module, tree in _modules():
        nodes = dict(_named(tree))
        match nodes.get("__all__"):
            case ast.Assign(value=exported):
                for name in ast.literal_eval(exported):
                    section, entry = _entry(nodes.get(name))
                    sections[section][f"{module}.{name}"] = entry
    return sections


def _modules() -> Iterator[tuple[str, ast.Module]]:
    prefix = f"{framework.sdk.__name__}."
    todo = [(prefix, path) for path in framework.sdk.__path__]
    while todo:
        prefix, folder = todo.pop()
        for found in pkgutil.iter_modules([folder]):
            name = prefix + found.name
            path = Path(folder, found.name)
            file = path / "__init__.py" if found.ispkg else path.with_suffix(".py")
            yield name, ast.parse(importlib.util.decode_source(file.read_bytes()))
            if found.ispkg:
                todo.append((f"{name}.", str(path)))


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Top-level definitions by name."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node


def _entry(node: ast.stmt | None) -> tuple[str, Any]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return "functions", _signature(node)
        case ast.ClassDef():
            return "classes", _class(node)
        case ast.AnnAssign(annotation=annotation, value=ast.expr() as value):
            return "constants", {"type": ast.unparse(annotation), "value": ast.unparse(value)}
        case ast.Assign(value=value):
            return "constants", {"type": "", "value": ast.unparse(value)}
    return "exports", {}


def _class(node: ast.ClassDef) -> dict[str, Any]:
    """In the form of a struct: its fields are what its body annotates."""
    fields: dict[str, dict[str, str]] = {}
    for child in node.body:
        match child:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                fields[name] = {"type": ast.unparse(child.annotation)}
                if child.value is not None:
                    fields[name]["default"] = ast.unparse(child.value)
    makers = [ast.unparse(maker) for maker in (*node.bases, *node.decorator_list)]
    is_tuple = "NamedTuple" in makers
    has_init = is_tuple or any("Struct" in maker or "dataclass" in maker for maker in makers)
    settings = {
        word.arg
        for call in [node, *node.decorator_list]
        if isinstance(call, ast.ClassDef | ast.Call)
        for word in call.keywords
        if isinstance(word.value, ast.Constant) and word.value.value is True
    }
    return {
        "tuple": is_tuple,
        "frozen": is_tuple or "frozen" in settings,
        "positional": list(fields) if has_init and "kw_only" not in settings else [],
        "fields": fields,
        "methods": {
            child.name: _method(child)
            for child in node.body
            if isinstance(child, Function) and _is_public(child.name)
        },
    }


def _is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def _method(node: Function) -> dict[str, Any]:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    shapes = [name for name in decorators if name in ("property", "classmethod", "staticmethod")]
    return {
        "shape": shapes[0] if shapes else "method",
        "signature": _signature(node),
        "abstract": "abstractmethod" in decorators,
    }


def _signature(node: Function) -> str:
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({ast.unparse(node.args)}){result}"

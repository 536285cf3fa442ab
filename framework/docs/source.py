"""What the source of a class says: fields, methods, and the docstrings of both.

A string that follows a field or an enumeration member documents it (PEP 257, attribute
docstrings). Python drops these strings, so they are read from the syntax tree. Annotations and
defaults come from there too: they need no import of what is imported for type checking only.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from types import ModuleType
from typing import Any, Final

import msgspec

from hookspecs.deprecated import deprecation_of

__all__ = [
    "ClassSource",
    "Field",
    "Method",
    "aliases",
    "class_source",
    "fields_of",
    "public_classes",
]

FACTORIES: Final = {"dict": "{}", "list": "[]"}
MAX_WIDTH: Final = 92
"""Characters of a signature in one line."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """An annotated name or an enumeration member."""

    name: str
    annotation: str = ""
    """As written, without `Annotated`; empty for enumeration members."""
    default: str | None = None
    """As written; None when there is none."""
    doc: str = ""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a class."""

    name: str
    signature: str
    """`def name(self, …) -> …`"""
    doc: str
    decorators: frozenset[str]


class ClassSource(msgspec.Struct, frozen=True, kw_only=True):
    """A class, without what it inherits."""

    doc: str
    fields: tuple[Field, ...]
    methods: tuple[Method, ...]
    """Public ones, in the order of the source."""


def class_source(cls: type[Any]) -> ClassSource:
    """Read the source of a top-level class. LookupError if its module does not define it."""
    for node in _tree(cls.__module__).body:
        for found in [node, *getattr(node, "body", ()), *getattr(node, "orelse", ())]:
            if isinstance(found, ast.ClassDef) and found.name == cls.__name__:
                return ClassSource(
                    doc=_noted(cls, "", ast.get_docstring(found) or ""),
                    fields=tuple(
                        msgspec.structs.replace(field, doc=_noted(cls, f".{field.name}", field.doc))
                        for field in _fields(found)
                    ),
                    methods=tuple(
                        _method(cls, child)
                        for child in found.body
                        if (
                            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                            and not child.name.startswith("_")
                        )
                        or (
                            isinstance(child, ast.FunctionDef)
                            and child.name in ("__len__", "__call__")
                        )
                    ),
                )
    raise LookupError(f"{cls.__module__} defines no class {cls.__name__}")


def fields_of(struct: type[msgspec.Struct]) -> list[Field]:
    """Fields of a struct, its own before those of its bases."""
    classes = [cls for cls in struct.__mro__ if cls.__module__.partition(".")[0] != "msgspec"]
    return [field for cls in classes if cls is not object for field in class_source(cls).fields]


def aliases(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Type aliases of a module: name to what it stands for and its docstring."""
    found: dict[str, tuple[str, str]] = {}
    body = _tree(module.__name__).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if not name.isupper() and isinstance(node.value, ast.Subscript | ast.BinOp):
            found[name] = (ast.unparse(node.value), _text(following))
    return found


def public_classes(module: ModuleType) -> list[type[Any]]:
    """The classes of `__all__`, in the order of the source."""
    found = [getattr(module, name) for name in module.__all__]
    own = [c for c in found if inspect.isclass(c) and c.__module__ == module.__name__]
    order = [
        child.name
        for node in _tree(module.__name__).body
        for child in [node, *getattr(node, "orelse", ())]
        if isinstance(child, ast.ClassDef)
    ]
    return sorted(own, key=lambda cls: order.index(cls.__name__))


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _fields(node: ast.ClassDef) -> list[Field]:
    found = []
    for child, following in zip(node.body, [*node.body[1:], None], strict=True):
        match child:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                bare, described = _unwrap(annotation)
                if name.startswith("_"):
                    continue
                found.append(
                    Field(
                        name=name,
                        annotation=ast.unparse(bare),
                        default=None if value is None else _default(value),
                        doc=_text(following) or described,
                    )
                )
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                found.append(Field(name=name, default=ast.unparse(value), doc=_text(following)))
    return found


def _unwrap(annotation: ast.expr) -> tuple[ast.expr, str]:
    """`Annotated[T, Meta(description="…")]` to T and the description; anything else as it is."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[bare, *metas])):
            described = (_description(meta) for meta in metas)
            return _Bare().visit(bare), next((text for text in described if text), "")
    return _Bare().visit(annotation), ""


class _Bare(ast.NodeTransformer):
    """Replaces `Annotated[T, …]` by T at any depth."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Called by `visit` for each subscript."""
        match node:
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[bare, *_])):
                inner: ast.AST = self.visit(bare)
                return inner
        return self.generic_visit(node)


def _description(meta: ast.expr) -> str:
    if isinstance(meta, ast.Call):
        for keyword in meta.keywords:
            if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return ""


def _default(value: ast.expr) -> str:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "msgspec.field":
        for keyword in value.keywords:
            if keyword.arg == "default_factory":
                factory = ast.unparse(keyword.value)
                return FACTORIES.get(factory, f"{factory}()")
    return ast.unparse(value)


def _text(node: ast.stmt | None) -> str:
    """The string that a statement consists of, or nothing."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


def _noted(cls: type[Any], member: str, doc: str) -> str:
    """The docstring of a class of the contract or of a member, with its deprecation."""
    sections = ("contracts", "structs", "enums", "errors")
    subjects = (f"{section} {cls.__module__}.{cls.__name__}{member}" for section in sections)
    rows = (row for row in map(deprecation_of, subjects) if row is not None)
    return " ".join([*([doc] if doc else []), *(f"It is {row}." for row in rows)])


def _method(cls: type[Any], node: ast.FunctionDef | ast.AsyncFunctionDef) -> Method:
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    arguments = ast.unparse(node.args)
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    signature = f"{word} {node.name}({arguments}){result}"
    if len(signature) > MAX_WIDTH:
        lines = "".join(f"    {argument},\n" for argument in _split(arguments))
        signature = f"{word} {node.name}(\n{lines}){result}"
    return Method(
        name=node.name,
        signature=signature,
        doc=_noted(cls, f".{node.name}", ast.get_docstring(node) or ""),
        decorators=frozenset(ast.unparse(decorator) for decorator in node.decorator_list),
    )


def _split(arguments: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]

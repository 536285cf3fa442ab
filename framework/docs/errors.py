"""The page of errors."""

from __future__ import annotations

import inspect

import hookspecs.errors
from framework.docs.markdown import anchor, code, code_block, join, prose
from framework.docs.source import class_source, public_classes

__all__ = ["errors_page"]


def errors_page() -> str:
    """Every error class, bases first."""
    blocks = ["# Errors", prose(inspect.cleandoc(hookspecs.errors.__doc__ or ""))]
    for error in public_classes(hookspecs.errors):
        source = class_source(error)
        constructor = [method for method in source.methods if method.name == "__init__"]
        blocks += [
            f"## {error.__name__}",
            f"A kind of {', '.join(map(_base, error.__bases__))}.",
            prose(source.doc),
            *(code_block(method.signature) for method in constructor),
        ]
    return join(blocks)


def _base(base: type[BaseException]) -> str:
    name = base.__name__
    if base.__module__ != hookspecs.errors.__name__:
        return code(name)
    return f"[{code(name)}](#{anchor(name)})"

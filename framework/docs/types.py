"""The page of data types."""

from __future__ import annotations

import inspect

from framework.docs.classes import alias_entries, class_entry
from framework.docs.links import type_modules
from framework.docs.markdown import code, join, prose
from framework.docs.source import public_classes

__all__ = ["types_page"]


def types_page() -> str:
    """Every type that belongs to no single plugin kind, module by module."""
    blocks = [
        "# Data types",
        "What crosses the boundary between kernel and plugins, and is not the concern of one "
        "plugin kind alone.",
    ]
    for module in type_modules():
        classes = public_classes(module)
        if not classes:
            continue
        blocks += [f"## {code(module.__name__)}", prose(inspect.cleandoc(module.__doc__ or ""))]
        blocks += alias_entries(module)
        for cls in classes:
            blocks += class_entry(cls, 3)
    return join(blocks)

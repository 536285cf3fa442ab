"""`module:attribute` to the object it names, and back."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

__all__ = ["load_object", "locate_object"]


def load_object(value: str) -> object:
    """The object named `package.module:attribute` (attribute may be dotted), or the module.

    Raises whatever the import raises; AttributeError when the module lacks the attribute,
    ValueError when `value` names no module.
    """
    module_name, _, path = value.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ValueError(f"{value!r} names no module; write it as 'package.module:attribute'")
    found: object = importlib.import_module(module_name)
    for attribute in path.split(".") if path else ():
        found = getattr(found, attribute)
    return found


def locate_object(found: object) -> str | None:
    """`module:attribute` under which another process can import this very object, or None.

    Looked for among the top-level names of the module that defines it (for an instance: its
    class). `__main__` is another module in every process, so what lives there has no location.
    """
    if isinstance(found, ModuleType):
        return found.__name__ if sys.modules.get(found.__name__) is found else None
    module_name = getattr(found, "__module__", None) or type(found).__module__
    module = sys.modules.get(module_name)
    if module is None or module_name == "__main__":
        return None
    for attribute, value in vars(module).items():
        if value is found:
            return f"{module_name}:{attribute}"
    return None

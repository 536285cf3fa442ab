"""`Mutant`: a small broken plugin, and the tests of the kit that must catch it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.kinds import PLUGIN_KINDS

__all__ = ["Mutant", "providing"]


class Mutant(NamedTuple):
    """One way to be wrong."""

    suite: str
    """The module of the suite: a kind, `plugin` or `hooks`."""
    fault: str
    """What it does wrong, in a few words."""
    plugin: object
    """Broken in that way and no other."""
    caught_by: tuple[str, ...]
    """Tests of the suite that must fail for it."""
    settings: Mapping[str, Any] = {}
    """Sections of the configuration that it is tested with."""
    examples: Mapping[str, Mapping[str, Any]] = {}
    """By `kind:provider`."""


def providing(kind: str, part: type[Any] | str, **fields: Any) -> object:
    """A plugin that provides a class, or what `module:attribute` names, as the provider `mutant`
    of a kind; `fields` of its Provider. Capabilities are those that the class declares."""
    target = part if isinstance(part, str) else f"{part.__module__}:{part.__qualname__}"
    if not isinstance(part, str):
        fields.setdefault("capabilities", frozenset(getattr(part, "capabilities", ())))
    hook = PLUGIN_KINDS[kind].hook

    def register(self: object) -> Iterable[Provider[Any]]:
        yield Provider("mutant", target, **fields)

    register.__name__ = hook
    members = {"PLUGIN": PluginInfo(name="mutant", api=">=1.0,<2"), hook: hookimpl(register)}
    return type("MutantPlugin", (), members)()

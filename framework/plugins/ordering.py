"""The order of plugins: a stable topological sort under `before` and `after`."""

from __future__ import annotations

from collections.abc import Sequence

from hookspecs.errors import PluginOrderError
from hookspecs.info import PluginInfo

__all__ = ["order_plugins"]


def order_plugins(plugins: Sequence[PluginInfo]) -> list[str]:
    """Names in the order in which filters and observers run; wrappers from the outside in.

    `plugins` come in the base order (built-ins, then sorted by distribution and name, then
    local objects), which is kept wherever no constraint says otherwise. Constraints on plugins
    that are not there mean nothing. PluginOrderError names a circle.
    """
    places = {plugin.name: at for at, plugin in enumerate(plugins)}
    behind: dict[str, set[str]] = {name: set() for name in places}
    for plugin in plugins:
        behind[plugin.name].update(name for name in plugin.after if name in places)
        for name in plugin.before:
            if name in places:
                behind[name].add(plugin.name)
    ordered: dict[str, None] = {}

    def place(name: str, path: list[str]) -> None:
        """After all that must come first, so that only these move forward."""
        if name in path:
            raise _circle([*path[path.index(name) :], name])
        for first in sorted(behind[name], key=places.__getitem__):
            if first not in ordered:
                place(first, [*path, name])
        ordered[name] = None

    for name in places:
        if name not in ordered:
            place(name, [])
    return list(ordered)


def _circle(path: list[str]) -> PluginOrderError:
    return PluginOrderError(
        f"the before/after constraints of plugins form a circle: {' after '.join(path)}. "
        "Remove one of these constraints, or block one of these plugins",
        plugin=path[0],
    )

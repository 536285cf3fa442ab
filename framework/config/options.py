"""Merging `plugins.options` from several sources, leaf by leaf."""

from __future__ import annotations

from typing import Any

from framework.config.keys import OPTIONS
from framework.config.sources import Setting

__all__ = ["OptionTree"]


class OptionTree:
    """Options by plugin or provider name, and the origin of each.

    Tables merge, so that a flag changes one option of a file's table. Whether a plugin has an
    option is checked by the plugin manager, which knows its struct.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.origins: dict[str, str] = {}
        """Dotted key to origin."""

    def put(self, setting: Setting) -> str | None:
        """Set one leaf, over what an earlier source said; or what is wrong with it."""
        below = setting.path[2:]
        if len(below) < 2 and setting.value != {}:
            return (
                f"{setting.place}: {setting.name} = {setting.value!r}; allowed is a table, "
                f"{OPTIONS}.<name>.<key> = value."
            )
        table: dict[str, Any] = self.values
        for level, name in enumerate(below[:-1], start=1):
            if not isinstance(table.get(name), dict):
                table[name] = {}
                self._forget((*setting.path[: 2 + level],))
            table = table[name]
        if not below or (setting.value == {} and isinstance(table.get(below[-1]), dict)):
            return None
        self._forget(setting.path)
        table[below[-1]] = setting.value
        self.origins[setting.name] = setting.origin
        return None

    def _forget(self, path: tuple[str, ...]) -> None:
        """Drop the origins of what stood at and below `path`."""
        name = ".".join(path)
        for key in [key for key in self.origins if key == name or key.startswith(f"{name}.")]:
            del self.origins[key]

"""Which plugin's code an exception came from."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from framework.plugins.loading import LoadedPlugin

__all__ = ["Owners"]


class Owners:
    """Python modules and packages to the plugins that they belong to.

    A plugin owns the package of its own module, and the modules that its providers name.
    """

    def __init__(self, plugins: Sequence[LoadedPlugin]) -> None:
        self._owners: dict[str, str] = {}
        for plugin in plugins:
            module = plugin.ref.value.partition(":")[0]
            self._owners.setdefault(module.rpartition(".")[0] or module, plugin.ref.name)
        for plugin in plugins:
            self._owners[plugin.ref.value.partition(":")[0]] = plugin.ref.name
            for found in plugin.providers:
                self._owners[found.provider.target.partition(":")[0]] = plugin.ref.name

    def of(self, error: BaseException) -> str | None:
        """The plugin in whose code the innermost frame lies that is any plugin's."""
        owner: str | None = None
        traceback: TracebackType | None = error.__traceback__
        while traceback is not None:
            owner = self._of_module(traceback.tb_frame.f_globals.get("__name__", "")) or owner
            traceback = traceback.tb_next
        return owner

    def _of_module(self, module: str) -> str | None:
        while module:
            if module in self._owners:
                return self._owners[module]
            module = module.rpartition(".")[0]
        return None

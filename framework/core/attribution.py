"""Which plugin a failure inside the engine core is put down to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from framework.plugins.failure import describe
from hookspecs.errors import FrameworkError, InternalError, PluginError, StepError

__all__ = ["Attribution"]


_ELSEWHERE: Final = frozenset({"execute_model", "sample_tokens"})
"""Phases whose work may be done in another process, so that no frame of the plugin is seen. In the
others, an exception that comes through no plugin's code is the kernel's own."""


class Attribution:
    """The plugin in whose code an exception was raised; else, by the phase: a wrapper of it, or
    the plugin that implements it. What implements a phase is checked before wrappers see its
    result, so a wrong result afterwards is theirs."""

    def __init__(
        self,
        implementers: Mapping[str, str],
        wrappers: Mapping[str, Sequence[str]],
        plugin_of: Callable[[BaseException], str | None],
        raised_inside: Callable[[str, BaseException], bool],
    ) -> None:
        """`raised_inside`: whether an exception of a phase came from what implements it."""
        self._implementers = implementers
        self._wrappers = wrappers
        self._plugin_of = plugin_of
        self._raised_inside = raised_inside

    def attribute(self, phase: str, error: BaseException) -> FrameworkError:
        """The error to stop the engine with: a PluginError is `error` itself, whose text names
        the plugin from now on."""
        candidates = (*self._wrappers[phase], self._implementers[phase])
        plugin = self._plugin_of(error)
        if plugin is None and self._raised_inside(phase, error):
            plugin = self._implementers[phase]
        if isinstance(error, PluginError):
            error.plugin = error.plugin or plugin or candidates[0]
            if repr(error.plugin) not in str(error):
                error.args = (f"plugin {error.plugin!r}: {error}",)
            return error
        if isinstance(error, InternalError):
            return error
        if not isinstance(error, Exception):
            return InternalError(f"{phase} was interrupted by {type(error).__name__}")
        if plugin is None and phase not in _ELSEWHERE:
            return InternalError(f"{phase}: {describe(error)}")
        plugin = plugin or candidates[0]
        return StepError(
            f"{phase}: plugin {plugin!r} raised {describe(error)}",
            plugin=plugin,
            hook=phase,
        )

    def attribute_command(self, command: str, error: BaseException) -> FrameworkError:
        """The error to stop the engine with after a worker's command that must not fail."""
        plugin = self._plugin_of(error) or self._implementers["execute_model"]
        if not isinstance(error, Exception):
            return InternalError(f"the workers' {command} was interrupted by {describe(error)}")
        return StepError(
            f"the workers' {command}: plugin {plugin!r} raised {describe(error)}; what is left of "
            "their memory is unknown, so the engine stops",
            plugin=plugin,
            hook="execute_model",
        )

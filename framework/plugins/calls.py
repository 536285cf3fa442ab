"""Every call of a hook, typed: the one place in the framework that calls plugins' hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

from framework.plugins.counters import Counter, Counters
from framework.plugins.dispatch import Clock, FilterChain, ObserverFanout, bind_wrappers
from framework.plugins.failure import describe
from framework.plugins.filters import judge_config, judge_output, judge_request
from framework.plugins.specs import hooks_of_kind
from framework.plugins.validate import HookMethod
from hookspecs.errors import (
    ContractViolation,
    FrameworkError,
    InternalError,
    PluginError,
    PluginLoadError,
    RequestFailedError,
)
from hookspecs.events import (
    CacheReset,
    ConfigResolved,
    EngineFailed,
    EngineStarted,
    EngineStopping,
    OutputReady,
    PluginFailed,
    RequestAdmitted,
    RequestFinished,
    RequestReceived,
    RequestRejected,
    StepFinished,
    WorkerReady,
)
from hookspecs.info import HookKind, ProcessRole, Provider

__all__ = ["Calls", "call_register"]

F = TypeVar("F", bound=Callable[..., Any])


def call_register(method: HookMethod) -> list[Provider[Any]]:
    """What one plugin offers at one provider hook, in its order.

    PluginLoadError when the plugin raises, ContractViolation when it offers no provider.
    """
    ref, hook = method.ref, method.spec.name
    try:
        offered = list(method.function())
    except (Exception, SystemExit) as error:
        raise PluginLoadError(
            f"{ref} raised in {hook}, which must give an iterable of hookspecs.Provider: "
            f"{describe(error)}",
            plugin=ref.name,
            distribution=ref.distribution,
            hook=hook,
        ) from error
    for provider in offered:
        if not isinstance(provider, Provider):
            raise ContractViolation(
                f"{ref}, hook {hook}: it gave {provider!r}; it must yield hookspecs.Provider",
                plugin=ref.name,
                distribution=ref.distribution,
                hook=hook,
            )
    return offered


class Calls:
    """One method for each filter and observer, and `bind_step` for the step phases.

    Observers return when all were told and raise nothing (unless `strict`). Ask
    `has_observers(hook)` first, so that no event is built when nobody listens.
    """

    def __init__(
        self,
        methods: Sequence[HookMethod],
        *,
        role: ProcessRole,
        strict: bool = False,
        counters: Counters | None = None,
        clock: Clock = perf_counter,
    ) -> None:
        """`methods`: all that take part, in the order of their plugins. `strict`: a raising
        observer raises PluginError."""
        counters = Counters() if counters is None else counters
        by_hook: dict[str, list[HookMethod]] = {}
        for method in methods:
            by_hook.setdefault(method.spec.name, []).append(method)
        self._role = role
        self._counters = counters
        self._clock = clock
        self._wrappers = {name: by_hook.get(name, []) for name in hooks_of_kind(HookKind.STEP)}
        self._observers: dict[str, ObserverFanout[Any]] = {
            hook: ObserverFanout(
                hook,
                by_hook.get(hook, ()),
                counters,
                role=role,
                strict=strict,
                announce=None if hook == "on_plugin_failed" else self.on_plugin_failed,
                clock=clock,
            )
            for hook in hooks_of_kind(HookKind.OBSERVER)
        }
        self._adjust_config = FilterChain(
            "adjust_config",
            by_hook.get("adjust_config", ()),
            counters,
            judge=judge_config,
            passes=(FrameworkError,),
            clock=clock,
        )
        self._adjust_request = FilterChain(
            "adjust_request",
            by_hook.get("adjust_request", ()),
            counters,
            judge=judge_request,
            final=RequestRejected,
            clock=clock,
        )
        self._adjust_output = FilterChain(
            "adjust_output",
            by_hook.get("adjust_output", ()),
            counters,
            judge=judge_output,
            clock=clock,
        )
        self._on_step_finished: ObserverFanout[StepFinished] = self._observers["on_step_finished"]
        self.has_request_filters = bool(self._adjust_request.filters)
        """Whether `adjust_request` does anything."""
        self.has_output_filters = bool(self._adjust_output.filters)
        """Whether `adjust_output` does anything."""

    def has_observers(self, hook: str) -> bool:
        """Whether an observer hook has anyone to tell. KeyError for a name that is none."""
        return bool(self._observers[hook].observers)

    def counter(self, plugin: str, hook: str) -> Counter:
        """Where calls of a provider are counted that the kernel makes: under the hook that offers
        it."""
        return self._counters.of(plugin, hook)

    def counter_of_thread(self, plugin: str, hook: str) -> Counter:
        """A new one for calls in a thread that may be another; reports add it to the others."""
        return self._counters.of_thread(plugin, hook)

    # Step phases

    def bind_step(self, phase: str, target: F) -> F:
        """What to call for a step phase: `target` itself, or `target` inside its wrappers.

        A wrapper that fails raises StepError; exceptions of `target` come out as they are.
        """
        if phase not in self._wrappers:
            raise InternalError(f"{phase!r} is no step phase; there are {list(self._wrappers)}")
        return bind_wrappers(self._wrappers[phase], target, self._counters, self._clock)

    def wrapped_by(self, phase: str) -> tuple[str, ...]:
        """Names of the plugins that wrap a step phase, outermost first."""
        return tuple(method.ref.name for method in self._wrappers[phase])

    # Filters

    def adjust_config(self, event: ConfigResolved) -> ConfigResolved:
        """Launcher, once. An exception stops the start: errors of `hookspecs.errors` as they are,
        as from constructors and `configured`; any other as PluginError."""
        adjusted: ConfigResolved = self._adjust_config(event)
        return adjusted

    def adjust_request(self, event: RequestReceived) -> RequestReceived | RequestRejected:
        """Front end. RequestFailedError when a filter raises or breaks its contract."""
        try:
            adjusted: RequestReceived | RequestRejected = self._adjust_request(event)
        except PluginError as error:
            raise self._request_failed(error, event.request_id) from error
        return adjusted

    def adjust_output(self, event: OutputReady) -> OutputReady:
        """Front end. RequestFailedError when a filter raises or breaks its contract."""
        try:
            adjusted: OutputReady = self._adjust_output(event)
        except PluginError as error:
            raise self._request_failed(error, event.output.request_id) from error
        return adjusted

    def _request_failed(self, error: PluginError, request_id: str) -> RequestFailedError:
        self.on_plugin_failed(
            PluginFailed(
                plugin=error.plugin or "",
                hook=error.hook or "",
                error=str(error),
                action="request failed",
                role=self._role,
            )
        )
        return RequestFailedError(str(error), request_id=request_id, plugin=error.plugin)

    # Observers

    def on_plugin_failed(self, event: PluginFailed) -> None:
        """A plugin raised in a hook."""
        self._observers["on_plugin_failed"](event)

    def on_engine_started(self, event: EngineStarted) -> None:
        """An engine core is ready for requests."""
        self._observers["on_engine_started"](event)

    def on_engine_stopping(self, event: EngineStopping) -> None:
        """An engine core is about to stop in an orderly way."""
        self._observers["on_engine_stopping"](event)

    def on_engine_failed(self, event: EngineFailed) -> None:
        """An engine core stops because of an error."""
        self._observers["on_engine_failed"](event)

    def on_worker_ready(self, event: WorkerReady) -> None:
        """A worker has loaded its model and allocated its cache."""
        self._observers["on_worker_ready"](event)

    def on_request_admitted(self, event: RequestAdmitted) -> None:
        """A request was scheduled for the first time."""
        self._observers["on_request_admitted"](event)

    def on_request_finished(self, event: RequestFinished) -> None:
        """A request ended in the engine core."""
        self._observers["on_request_finished"](event)

    def on_step_finished(self, event: StepFinished) -> None:
        """A step ran and its tokens were applied."""
        self._on_step_finished(event)

    def on_cache_reset(self, event: CacheReset) -> None:
        """The prefix cache was reset."""
        self._observers["on_cache_reset"](event)

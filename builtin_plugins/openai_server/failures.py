"""Telling the failures of plugins' code from what is to end a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["as_exception", "contained", "ends_task"]

T = TypeVar("T")


def ends_task(error: BaseException) -> bool:
    """Whether `error` must pass: an interrupt, or the cancellation or end of the running task
    itself. SystemExit, GeneratorExit, and the CancelledError of some other task or future, come
    from code that failed."""
    if not isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return isinstance(error, KeyboardInterrupt)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the coroutine is closed without an event loop
        return True
    return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)


def as_exception(error: BaseException) -> Exception:
    """`error`, as an Exception; raised, if it must pass. Anything else that leaves a task would
    end the event loop, or pass for a cancellation."""
    if isinstance(error, Exception):
        return error
    if ends_task(error):
        raise error
    failure = RuntimeError(f"{type(error).__name__} was raised")
    failure.__cause__ = error
    return failure


async def contained(begin: Callable[[], Awaitable[T]]) -> T:
    """The result of what `begin` begins. What it raises is `as_exception`."""
    try:
        return await begin()
    except Exception:
        raise
    except BaseException as error:
        failure = as_exception(error)
        raise failure from failure.__cause__

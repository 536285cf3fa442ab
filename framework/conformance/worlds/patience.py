"""Waiting for what may never come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["PATIENCE_S", "KitThread", "within"]

T = TypeVar("T")
PATIENCE_S = 20.0
"""Seconds after which a call hangs. Far beyond what any takes, also on a busy machine."""


class KitThread(threading.Thread):
    """A thread of the kit's own, which is no trace of the plugin."""


def within(work: Callable[[], T], what: str, seconds: float = PATIENCE_S) -> T:
    """The result of a call in another thread. AssertionError when it does not return; the thread
    is left behind then. What the call raises comes out."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    KitThread(target=run, name=f"conformance: {what}", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise AssertionError(f"{what} did not return within {seconds:.0f} s") from None

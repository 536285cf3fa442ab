"""How long a request may take (option `request_timeout_s`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from builtin_plugins.openai_server.errors import NO_RETRY, ApiError

__all__ = ["TimeLimit"]

T = TypeVar("T")


class TimeLimit:
    """Counts from when it is made, in the running event loop. None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.at: float | None = None
        """When the time has passed, by the event loop's clock, seconds."""
        if seconds is not None:
            self.at = asyncio.get_running_loop().time() + seconds

    async def within(self, begin: Callable[[], Awaitable[T]]) -> T:
        """The result of what `begin` begins. ApiError (504) when the time has passed, before or
        meanwhile; what was begun is then cancelled."""
        if self.at is None:
            return await begin()
        # What never waits would escape the timeout below.
        if asyncio.get_running_loop().time() >= self.at:
            raise self._passed()
        try:
            async with asyncio.timeout_at(self.at) as timeout:
                return await begin()
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._passed() from None

    def _passed(self) -> ApiError:
        return ApiError(
            504,
            f"the request took longer than {self._seconds:g} s",
            kind="timeout_error",
            code="request_timeout",
            headers=NO_RETRY,
        )

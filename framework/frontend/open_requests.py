"""`OpenRequests`: the requests of an event loop from their call to their last output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from framework.frontend.collector import Collector
from framework.frontend.output_processor import id_in_use
from framework.frontend.streaming_input import PieceReader
from hookspecs.errors import EngineDeadError, EngineUnavailableError
from hookspecs.types.outputs import RequestOutput

__all__ = ["OpenRequest", "OpenRequests"]


class OpenRequest:
    """One request. What arrives before it is handed over, such as an abort, waits here."""

    __slots__ = ("aborted", "collector", "pieces", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.collector: Collector | None = None
        """Once it was handed over; of the piece that runs, when its prompt comes in pieces."""
        self.pieces: PieceReader | None = None
        """Where its prompt comes from, when that is an iterator."""
        self.aborted = False

    def abort(self) -> None:
        """Its consumer gets a last output as soon as there can be one."""
        self.aborted = True
        if self.pieces is not None:
            self.pieces.end()

    def fail(self, error: EngineDeadError) -> None:
        """Its consumer gets an error."""
        if self.collector is not None:
            self.collector.fail(error)
        if self.pieces is not None:
            self.pieces.fail(error)


class OpenRequests:
    """By the user's id, which is unique among them."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRequest] = {}
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def ids(self) -> list[str]:
        """Of all of them."""
        return list(self._open)

    def __contains__(self, request: object) -> bool:
        """Whether this very request has not ended; its id may have another since."""
        return isinstance(request, OpenRequest) and self._open.get(request.request_id) is request

    def open(self, request_id: str) -> OpenRequest:
        """A new one. InvalidRequestError if its id is in use."""
        if request_id in self._open:
            raise id_in_use(request_id)
        request = self._open[request_id] = OpenRequest(request_id)
        return request

    def close(self, request: OpenRequest) -> None:
        """It has ended: its id is free. Does nothing the second time."""
        if request in self:
            del self._open[request.request_id]
            if not self._open:
                self._idle.set()

    def deliver(self, outputs: Iterable[RequestOutput]) -> None:
        """To their consumers; with the last output a request has ended, read or not."""
        for output in outputs:
            request = self._open.get(output.request_id)
            if request is None or request.collector is None:
                continue
            request.collector.put(output)
            if output.finished and request.pieces is None:
                self.close(request)

    def refuse(self, request_id: str, error: EngineUnavailableError) -> None:
        """The engine core has not taken it, or the piece of its prompt that runs: its consumer
        gets an error."""
        request = self._open.get(request_id)
        if request is not None and request.collector is not None:
            request.collector.fail(error)
            if request.pieces is None:
                self.close(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Also those that have not been handed over."""
        for request_id in request_ids:
            request = self._open.get(request_id)
            if request is not None:
                request.abort()

    def fail_all(self, error: EngineDeadError) -> None:
        """None of them will get anything more."""
        requests, self._open = self._open, {}
        for request in requests.values():
            request.fail(error)
        self._idle.set()

    async def wait_idle(self, timeout_s: float) -> None:
        """Until there are none, or the time is over."""
        if self._open:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)

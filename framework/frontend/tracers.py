"""`TracerManager`: tells all tracers of requests that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from framework.frontend.sinks import Sinks
from framework.plugins.calls import Calls
from hookspecs.contracts.stats import FinishedRequest, Tracer

__all__ = ["TracerManager"]


class TracerManager(Sinks[Tracer]):
    """Front-end process, one thread."""

    def __init__(self, tracers: Mapping[str, Tracer], *, calls: Calls) -> None:
        """`tracers`: by provider name."""
        super().__init__(tracers, calls=calls, kind="tracer", hook="register_tracers")

    def on_requests_finished(self, requests: Sequence[FinishedRequest]) -> None:
        """Outputs of requests that ended, once each."""

        def tell(tracer: Tracer) -> None:
            for request in requests:
                tracer.on_request_finished(request)

        if requests:
            self._each(tell)

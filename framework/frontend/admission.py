"""Whether a front end takes a new request: states, draining, the bounded queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from framework.core.transitions import LATE_REFUSALS
from hookspecs.config import EngineConfig
from hookspecs.errors import EngineUnavailableError, InvalidRequestError, QueueFullError
from hookspecs.types.control import EngineState
from hookspecs.types.stats import RejectionReason

__all__ = ["Admission"]

_REASONS: Final = {
    EngineState.SLEEPING: RejectionReason.SLEEPING,
    EngineState.WAKING: RejectionReason.WAKING,
    EngineState.DRAINING: RejectionReason.DRAINING,
}
_RETRY_S: Final = 1.0


class Admission:
    """Checked before a request costs anything. One event loop."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        num_engines: int,
        rejected: Callable[[str], None],
    ) -> None:
        """`rejected`: told the reason of each refusal, for statistics."""
        serving = config.serving
        self._num_engines = num_engines
        self._capacity: int | None = None
        if serving.max_waiting_requests is not None:
            # Front ends do not know of each other's requests: each has its share.
            running = config.scheduler.max_num_seqs * num_engines
            whole = running + serving.max_waiting_requests
            self._capacity = max(1, whole // serving.processes)
        self._rejected = rejected
        self.draining = False
        """The front end is being stopped."""

    def check(
        self,
        num_unfinished: int,
        count: int,
        states: Sequence[EngineState],
        *,
        draining: bool = False,
    ) -> None:
        """EngineUnavailableError, of which QueueFullError, when `count` more engine requests
        are not taken while `num_unfinished` have not ended; InvalidRequestError for more than
        ever would be. `draining`: they belong to a user's
        request that was taken before, so they are also taken while the front end stops."""
        if self.draining and not draining:
            self._rejected(RejectionReason.DRAINING)
            raise EngineUnavailableError("the server is being stopped", retry_after_s=_RETRY_S)
        refusing = next((state for state in states if state in LATE_REFUSALS), None)
        if refusing is not None:
            self._rejected(_REASONS[refusing])
            raise EngineUnavailableError(LATE_REFUSALS[refusing], retry_after_s=_RETRY_S)
        if self._capacity is not None and count > self._capacity:
            raise InvalidRequestError(
                f"the request asks for {count} outputs at once, which is more than the limit of "
                f"{self._capacity} (scheduler.max_num_seqs and serving.max_waiting_requests)",
                param="n",
                value=count,
            )
        if self._capacity is not None and num_unfinished + count > self._capacity:
            self._rejected(RejectionReason.QUEUE_FULL)
            raise QueueFullError(
                f"{num_unfinished} requests run or wait, and {count} more would exceed the limit "
                f"of {self._capacity} (scheduler.max_num_seqs and serving.max_waiting_requests)",
                retry_after_s=_RETRY_S,
            )

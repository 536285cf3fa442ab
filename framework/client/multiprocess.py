"""The synchronous client of engine cores in processes of their own. Caller's thread."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from framework.client.base import EngineCoreClient
from framework.client.calls import merged, new_call_id, result_of
from framework.client.ledger import RequestLedger
from framework.client.links import EngineLinks, Received
from framework.core.commands import check_arguments, command_of
from framework.core.info import EngineInfo
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import EngineCoreRequest, FinishReason

__all__ = ["MultiprocessClient"]

_LOOK_S: Final = 0.2
"""Between two looks whether the engine cores live, when they are silent."""
_LOOKS_FOR_REASON: Final = 10
_HALTED: Final = (EngineState.PAUSED, EngineState.SLEEPING, EngineState.WAKING)
"""Without a command no request ends in these."""


class MultiprocessClient(EngineCoreClient):
    """Not safe to use from several threads at once."""

    def __init__(
        self,
        links: EngineLinks,
        info: EngineInfo,
        *,
        num_engines: int,
        close: Callable[[], None],
    ) -> None:
        """`close`: ends the engine cores, when they are this client's own, and closes the
        links."""
        self._links = links
        self._info = info
        self._ledger = RequestLedger(num_engines)
        self._engines = range(num_engines)
        self._close: Callable[[], None] | None = close
        self._waiting: deque[EngineCoreOutputs] = deque()
        """Outputs that have come."""
        self._silent = False
        """Nothing came the last time that something was waited for."""

    @property
    def info(self) -> EngineInfo:
        return self._info

    def add_request(self, request: EngineCoreRequest) -> None:
        self._check_alive()
        engine_index = self._ledger.least_loaded()
        self._silent = False  # a paused engine may refuse it, which is an output
        with self._reason_of_failure():
            self._links.send_requests(engine_index, [request])
        self._ledger.add(request.handle, engine_index)

    def abort_requests(
        self, handles: Sequence[int], reason: FinishReason = FinishReason.ABORT
    ) -> None:
        self._check_alive()
        with self._reason_of_failure():
            for engine_index, own in self._ledger.by_engine(handles).items():
                self._links.send_abort(engine_index, own, reason)

    def get_outputs(self) -> EngineCoreOutputs:
        if not self._waiting:
            if self.has_unfinished():
                self._receive()
            self._silent = not self._waiting
        if self._waiting:
            return self._waiting.popleft()
        # Nothing for a while: the caller may look for interrupts, and whether it is stuck.
        return EngineCoreOutputs(
            handles=np.empty(0, np.int64),
            num_tokens=np.empty(0, np.int32),
            token_ids=np.empty(0, np.int32),
            finish_codes=np.empty(0, np.int8),
            timestamp=time.monotonic(),
        )

    @property
    def has_outputs(self) -> bool:
        return bool(self._waiting)

    @property
    def is_stuck(self) -> bool:
        return (
            self._silent
            and not self._waiting
            and len(self._ledger) > 0
            and any(signs.state in _HALTED for signs in self._links.vital_signs)
        )

    def has_unfinished(self) -> bool:
        return bool(self._waiting) or len(self._ledger) > 0

    def command(self, arguments: CommandArguments) -> Any:
        self._check_alive()
        arguments = check_arguments(arguments)
        calls = {new_call_id(): engine_index for engine_index in self._engines}
        name = command_of(arguments).name
        with self._reason_of_failure():
            for call_id, engine_index in calls.items():
                self._links.send_command(engine_index, call_id, name, arguments)
        answers: dict[int, UtilityResult] = {}
        while len(answers) < len(calls):
            answer = self._receive()
            if answer is not None and answer.call_id in calls:
                answers[answer.call_id] = answer
        return merged([result_of(arguments, answers[call_id]) for call_id in calls])

    def shutdown(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            for engine_index in self._engines:
                self._links.mark_dead(engine_index, "it was shut down")
            close()

    def _receive(self) -> UtilityResult | None:
        """Wait a while for the next message: outputs, which are kept, or the answer of a command.
        EngineDeadError once one is gone and its messages have been read."""
        if self._close is None:
            raise EngineDeadError("the engine was shut down")
        received = self._links.receive(_LOOK_S)
        if received is None:
            self._check_alive()
        return self._take(received)

    @contextlib.contextmanager
    def _reason_of_failure(self) -> Iterator[None]:
        """What can not be sent since an engine core is ending fails with why it ends, for which
        it waits."""
        try:
            yield
        except EngineDeadError:
            for _ in range(_LOOKS_FOR_REASON):
                self._receive()
            raise

    def _take(self, received: Received | None) -> UtilityResult | None:
        """Keep outputs; give an answer back."""
        if not isinstance(received, list):
            return received
        for bundle in received:
            self._ledger.settle(bundle)
        self._waiting += received
        return None

    def _check_alive(self) -> None:
        if self._close is None:
            raise EngineDeadError("the engine was shut down")
        try:
            self._links.check_all_alive()
        except EngineDeadError:
            # What it has sent and nobody has read: outputs, and maybe why it ends.
            while (received := self._links.receive()) is not None:
                self._take(received)
            self._links.check_all_alive()

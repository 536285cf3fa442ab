"""The client of an engine core in the caller's own process: each call of `get_outputs` steps it.

Caller's thread; no queues, no loop of its own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from framework.client.base import EngineCoreClient
from framework.core.engine import EngineCore
from framework.core.info import EngineInfo
from hookspecs.errors import CommandError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import EngineCoreRequest, FinishReason

__all__ = ["InProcessClient"]

_IDLE_S = 0.001
_COMPLAIN_S = 10.0

logger = logging.getLogger("framework.client")


class InProcessClient(EngineCoreClient):
    """Not safe to use from several threads at once."""

    def __init__(self, core: EngineCore, info: EngineInfo) -> None:
        self._core = core
        self._info = info
        self._kept: deque[EngineCoreOutputs] = deque()
        """Outputs that came while a command ran."""
        self._stalled_at_step = -1
        self._complain_at = 0.0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def add_request(self, request: EngineCoreRequest) -> None:
        self._core.add_request(request)

    def abort_requests(
        self, handles: Sequence[int], reason: FinishReason = FinishReason.ABORT
    ) -> None:
        self._core.abort_requests(handles, reason=reason)

    def get_outputs(self) -> EngineCoreOutputs:
        if self._kept:
            return self._kept.popleft()
        outputs = self._core.step().get(0)
        if outputs is not None:
            return outputs
        if self._core.last_step_was_empty:
            self._wait()
        return EngineCoreOutputs(
            handles=np.empty(0, np.int64),
            num_tokens=np.empty(0, np.int32),
            token_ids=np.empty(0, np.int32),
            finish_codes=np.empty(0, np.int8),
            timestamp=time.monotonic(),
        )

    def _wait(self) -> None:
        """Policies, or a pause, hold all requests back: give the time they wait for a chance to
        pass, and say so when that takes long."""
        now = time.monotonic()
        if self._core.step_count != self._stalled_at_step:
            self._stalled_at_step = self._core.step_count
            self._complain_at = now + _COMPLAIN_S
        elif now >= self._complain_at:
            logger.warning(
                "no request was scheduled for %.0f s; %d wait. %s",
                _COMPLAIN_S,
                self._core.num_requests,
                f"The engine is {self._core.state}"
                if self.is_stuck
                else "The scheduler or its policies hold them back",
            )
            self._complain_at = now + _COMPLAIN_S
        time.sleep(_IDLE_S)

    def has_unfinished(self) -> bool:
        return bool(self._kept) or self._core.has_work

    @property
    def has_outputs(self) -> bool:
        return bool(self._kept)

    @property
    def is_stuck(self) -> bool:
        ended = self._core.state in (EngineState.STOPPED, EngineState.DEAD)
        return self._core.num_requests > 0 and not self.has_unfinished() and not ended

    def command(self, arguments: CommandArguments) -> Any:
        """Steps the engine until the command is done."""
        core = self._core
        if core.in_step:
            raise CommandError(
                "a command can not be waited for inside of a step, since it runs after it"
            )
        future = core.command(arguments)
        while not future.done():
            self._keep(core.step())
            if core.last_step_was_empty and not future.done():
                self._wait()
        self._keep(core.publish())
        if core.failure is not None and core.has_work:
            core.step()  # the failure is told here, not once more by the next step
        return future.result()

    def _keep(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        if 0 in outputs:
            self._kept.append(outputs[0])

    def shutdown(self) -> None:
        self._core.shutdown()

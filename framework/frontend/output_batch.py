"""One bundle of outputs on its way through the output processor."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from framework.frontend.logprobs import LogprobReader, Position
from framework.frontend.request_state import OutputState, RequestGroup
from hookspecs.contracts.stats import FinishedRequest
from hookspecs.types.outputs import EngineCoreOutputs, RequestOutput
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import IterationStats

__all__ = ["NO_OUTPUTS", "OutputBatch", "ProcessedOutputs"]

NO_OUTPUTS: Final = EngineCoreOutputs(
    handles=np.empty(0, np.int64),
    num_tokens=np.empty(0, np.int32),
    token_ids=np.empty(0, np.int32),
    finish_codes=np.empty(0, np.int8),
    timestamp=0.0,
)


class ProcessedOutputs(msgspec.Struct, kw_only=True):
    """What one bundle of outputs, a part of one, or one abort, came to."""

    request_outputs: list[RequestOutput]
    """At most one a request."""
    refused: dict[str, str]
    """By the user's id: why the engine core, in its state, has not taken a request of which
    nothing was given before. Its last output says so, too."""
    ended_here: dict[FinishReason, list[int]]
    """Handles of requests that ended here and not in the engine core, which must be told: by
    why they ended."""
    iteration: IterationStats
    traces: list[FinishedRequest]
    """What tracers are told; nothing when there are none."""


class OutputBatch:
    """One call's bundle and what is gathered from it."""

    def __init__(self, outputs: EngineCoreOutputs, now: float) -> None:
        self.outputs = outputs
        self.iteration = IterationStats(timestamp=now)
        self.begin_part()
        self._reader = None if outputs.logprobs is None else LogprobReader(outputs.logprobs)
        self._positions: dict[int, list[int]] = {}
        if outputs.logprob_rows is not None:
            for position, row in enumerate(outputs.logprob_rows.tolist()):
                self._positions.setdefault(row, []).append(position)

    def begin_part(self) -> None:
        """What was gathered so far has been taken, but for `iteration`."""
        self.changed: dict[str, tuple[RequestGroup, dict[int, OutputState]]] = {}
        """By the user's id: the request, and those of its outputs that have news, by index."""
        self.refused: dict[str, str] = {}
        self.ended_here: dict[FinishReason, list[int]] = {}
        self.traces: list[FinishedRequest] = []

    def positions(self, row: int) -> list[Position]:
        """The logprobs of a row's tokens."""
        if self._reader is None:
            return []
        return [self._reader.position(index) for index in self._positions.get(row, ())]

    def end_here(self, state: OutputState, reason: FinishReason) -> None:
        """`state` ends before the engine core has ended it."""
        self.ended_here.setdefault(reason, []).append(state.request.handle)

    def mark(self, state: OutputState) -> None:
        """`state` has news."""
        entry = self.changed.setdefault(state.group.processed.request_id, (state.group, {}))
        entry[1][state.index] = state

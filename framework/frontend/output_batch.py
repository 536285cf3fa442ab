"""Bundles of outputs on their way through the output processor."""

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
    """What bundles of outputs, a part of them, or one abort, came to."""

    request_outputs: list[RequestOutput]
    """At most one a request."""
    refused: dict[str, str]
    """By the user's id: why the engine core, in its state, has not taken a request of which
    nothing was given before. Its last output says so, too."""
    ended_here: dict[FinishReason, list[int]]
    """Handles of requests that ended here and not in the engine core, which must be told: by
    why they ended."""
    iterations: list[IterationStats]
    """Of each bundle that was begun, in order."""
    traces: list[FinishedRequest]
    """What tracers are told; nothing when there are none."""

    @property
    def iteration(self) -> IterationStats:
        """Of the newest bundle."""
        return self.iterations[-1]


class OutputBatch:
    """One call's bundles, one after the other, and what is gathered from them."""

    outputs: EngineCoreOutputs
    """The bundle that is read."""
    iteration: IterationStats
    """Of that bundle."""
    has_facts: bool
    """Whether the bundle tells of any row more than tokens, their logprobs and its end."""

    def __init__(self) -> None:
        self.iterations: list[IterationStats] = []
        self.changed: dict[RequestGroup, IterationStats] = {}
        """Requests that have news, and the record of the bundle that brought the newest."""
        self.refused: dict[str, str] = {}
        self.ended_here: dict[FinishReason, list[int]] = {}
        self.traces: list[FinishedRequest] = []

    def begin(self, outputs: EngineCoreOutputs, now: float) -> None:
        """The next bundle. `now`: clock of the front end."""
        self.outputs = outputs
        self.iteration = IterationStats(timestamp=now)
        self.iterations.append(self.iteration)
        self.has_facts = bool(
            outputs.prefills or outputs.prompt_logprobs or outputs.pooled or outputs.num_preemptions
        )
        self._reader = None if outputs.logprobs is None else LogprobReader(outputs.logprobs)
        self._positions: dict[int, list[int]] = {}
        if outputs.logprob_rows is not None:
            for position, row in enumerate(outputs.logprob_rows.tolist()):
                self._positions.setdefault(row, []).append(position)

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
        state.group.changed[state.index] = state
        self.changed[state.group] = self.iteration

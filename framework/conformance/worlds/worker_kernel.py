"""`WorkerKernel`: the mini kernel with a real worker behind its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.core.invariants import check_result
from framework.core.request import Request
from hookspecs.contracts.model import ModelInfo
from hookspecs.contracts.worker import Worker
from hookspecs.types.columns import Float32Column
from hookspecs.types.request import FinishReason
from hookspecs.types.step import (
    GrammarOutput,
    LogprobColumns,
    ModelRunnerOutput,
    RowFailure,
    SchedulerOutput,
)

__all__ = ["WorkerKernel"]


class WorkerKernel(MiniKernel):
    """Every result is checked as the kernel checks it: ContractViolation."""

    def __init__(self, worker: Worker, info: ModelInfo, *arguments: Any, **sizes: Any) -> None:
        """The worker, which has its cache, and its model; the others as a mini kernel's."""
        super().__init__(*arguments, **sizes)
        self._worker = worker
        self._info = info
        self.failures: dict[str, RowFailure] = {}
        """Of requests that ended so, by their ids."""
        self.vectors: dict[str, Float32Column] = {}
        """Of pooling requests, by their ids."""
        self.prompt_pieces: dict[str, list[LogprobColumns]] = {}
        """Request id to the prompt logprobs of each step since its last start."""
        self.grammar: Callable[[SchedulerOutput], GrammarOutput | None] = lambda output: None
        """Gives the bitmask of a step."""
        self.on_result: Callable[[SchedulerOutput, ModelRunnerOutput], None] | None = None

    def _forward(self, output: SchedulerOutput) -> None:
        super()._forward(output)
        for new in output.new_requests:
            self.prompt_pieces.pop(new.request_id, None)
        self._worker.execute_model(output)

    def _apply(self, output: SchedulerOutput, failed: set[int]) -> None:
        result = self._worker.sample_tokens(self.grammar(output))
        if self.on_result is not None:
            self.on_result(output, result)
        check_result(output, result, self.table, self._info)
        slots = [slot for slot in output.slots.tolist() if slot not in result.failures]
        self.kv.commit(np.array(slots, dtype=np.int32))
        for slot, piece in result.prompt_logprobs.items():
            self.prompt_pieces.setdefault(self.table.at(slot).request_id, []).append(piece)
        for row, sampled in zip(output.rows(), result.rows(), strict=True):
            self._take(self.table.at(row.slot), row.slot, sampled.token_ids, result)
        still = [slot for slot in slots if self.table.running[slot]]
        self.scheduler.update_from_output(output, np.array(still, dtype=np.int32))

    def _take(
        self, request: Request, slot: int, token_ids: list[int], result: ModelRunnerOutput
    ) -> None:
        if slot in result.failures:
            self.failures[request.request_id] = result.failures[slot]
            self._end(request, FinishReason.ERROR, keep=not result.failures[slot].poisoned)
        elif slot in result.pooled:
            self.vectors[request.request_id] = result.pooled[slot]
            self._end(request, FinishReason.STOP)
        elif token_ids:
            request.output_token_ids += token_ids
            request.emitted = True
            self.table.num_tokens[slot] += len(token_ids)
            if request.num_tokens >= request.max_total_tokens:
                self._end(request, FinishReason.LENGTH)

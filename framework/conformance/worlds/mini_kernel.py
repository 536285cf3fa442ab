"""`MiniKernel`: the kernel's request table and policy stack with a pretended forward, around a
scheduler, its policies and a KV cache manager.

The pretended worker keeps block tables from the step's columns only, writes into each block
what a real one would (the identity of every token with all tokens before it), and checks what
each token would read. So a block given out twice, a hit on other content or a block freed
while a window still needs it fails at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from framework.core.invariants import check_schedule
from framework.core.policy_stack import PolicyStack
from framework.core.request import Request
from framework.core.request_table import RequestTable
from framework.core.scheduler_view import SchedulerView
from hookspecs.config import CacheConfig, EngineConfig, SchedulerConfig
from hookspecs.contracts.kv_cache import EvictionPolicy, KVCacheManager
from hookspecs.contracts.policy import PolicyContext, SchedulingPolicy
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import SchedulerOutput

__all__ = ["FULL", "Maker", "MiniKernel", "sliding"]

FULL = KVCacheGroup(layers=(0,))


def sliding(window: int) -> KVCacheGroup:
    """A group with a sliding window."""
    return KVCacheGroup(layers=(0,), sliding_window=window)


class Maker(Protocol):
    """Makes an object of a kind: the one under test, or the one that the configuration names."""

    def __call__(self, kind: str, config: EngineConfig, /, **fields: Any) -> Any:
        """`fields` of the context."""


class _Recorder(SchedulingPolicy):
    """Counts what the scheduler tells policies."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.finished: Counter[str] = Counter()

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self.finished[request.request_id] += 1


class MiniKernel:
    """One engine core without workers, stepped by hand. Its clock advances by a second a step.

    Every step is checked by the kernel's own invariants and by the cache's accounts.
    """

    def __init__(
        self,
        make: Maker,
        *,
        num_blocks: int = 16,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 32,
        long_prefill_token_threshold: int = 0,
        policies: Sequence[SchedulingPolicy] = (),
        groups: Sequence[KVCacheGroup] = (FULL,),
        enable_prefix_caching: bool = True,
        max_model_len: int = 1024,
        prefill_beside_decode: int | None = None,
    ) -> None:
        """`make` gives the scheduler, the KV cache manager and the eviction policy. `num_blocks`
        without the null block."""
        self.now = 0.0
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.budget = max_num_batched_tokens
        self.groups = tuple(groups)
        config = EngineConfig(
            cache=CacheConfig(block_size=block_size, enable_prefix_caching=enable_prefix_caching),
            scheduler=SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                long_prefill_token_threshold=long_prefill_token_threshold,
            ),
        )
        self.table = RequestTable(max_num_seqs)
        eviction: EvictionPolicy = make("eviction_policy", config, num_blocks=num_blocks + 1)
        self.kv: KVCacheManager = make(
            "kv_cache_manager",
            config,
            kv_config=KVCacheConfig(
                num_blocks=num_blocks + 1,
                block_size=block_size,
                groups=self.groups,
                bytes_per_block=1,
            ),
            requests=self.table,
            eviction=eviction,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self.view = SchedulerView(
            self.table, self.kv, lambda: self.scheduler.num_waiting, clock=lambda: self.now
        )
        self.recorder = _Recorder(PolicyContext(config=config))
        stack = PolicyStack([*policies, self.recorder], self.view)
        self.scheduler: Scheduler = make(
            "scheduler",
            config,
            requests=self.table,
            kv_cache=self.kv,
            policies=stack,
            max_model_len=max_model_len,
            prefill_beside_decode=prefill_beside_decode,
        )
        self.requests: dict[str, Request] = {}
        """Requests that have not ended."""
        self.ended: dict[str, FinishReason] = {}
        self.served: Counter[str] = Counter()
        """Tokens computed by tenant; what is computed again after a preemption counts once."""
        self.on_scheduled: Callable[[SchedulerOutput], None] | None = None
        self._arrivals = 0
        self._tables: dict[int, list[list[int]]] = {}
        self._memory: dict[tuple[int, int], tuple[int, int]] = {}

    def add(
        self,
        prompt: int | list[int],
        max_tokens: int = 4,
        *,
        prompt_logprobs: int | None = None,
        params: SamplingParams | None = None,
        fits: bool = True,
        request_id: str = "",
        **fields: Any,
    ) -> Request:
        """Queue a request; a number as prompt means so many tokens that no other has. Its id is
        `r` and a running number, or `request_id`, which another may have had that has ended.
        `params`, if given, instead of `max_tokens` and `prompt_logprobs`."""
        arrival = self._arrivals
        self._arrivals += 1
        if isinstance(prompt, int):
            prompt = [1000 * (arrival + 1) + position for position in range(prompt)]
        request_id = request_id or f"r{arrival}"
        self.ended.pop(request_id, None)
        del self.recorder.finished[request_id]
        request = Request(
            EngineCoreRequest(
                request_id=request_id,
                handle=arrival,
                prompt_token_ids=prompt,
                sampling_params=params
                or SamplingParams(max_tokens=max_tokens, prompt_logprobs=prompt_logprobs),
                arrival_time=self.now,
                **fields,
            ),
            arrival=arrival,
            max_model_len=self.max_model_len,
            block_size=self.block_size,
            queued_at=self.now,
        )
        can_fit = self.kv.can_ever_fit(request.max_total_tokens)
        assert can_fit is fits, (
            f"can_ever_fit({request.max_total_tokens}) is {can_fit} for an empty cache of "
            f"{self.kv.num_total_blocks} blocks of {self.block_size} tokens"
        )
        self.requests[request.request_id] = request
        self.table.enter(request)
        self.view.refresh()
        self.scheduler.add_request(request)
        return request

    def abort(self, request: Request) -> None:
        """End a request in any state."""
        self._end(request, FinishReason.ABORT)

    def step(self, fail: Sequence[Request] = ()) -> SchedulerOutput:
        """One step. `fail`: requests whose rows, if scheduled, fail with poisoned blocks."""
        self.now += 1.0
        self.view.refresh()
        output = self.scheduler.schedule()
        check_schedule(output, self.table, self.kv, self.budget)
        if self.on_scheduled is not None:
            self.on_scheduled(output)
        for request, reason, _message in self.table.take_pending_finishes():
            self._end(request, reason)
        self.table.take_started()
        preempted = self.table.take_preempted()
        if output.num_rows:
            output.released_slots = self.table.take_released()
            output.preempted_request_ids = preempted
            self.table.advance(output.slots, output.num_scheduled_tokens)
            self._forward(output)
            self._apply(output, {request.slot for request in fail})
        self.kv.check()
        return output

    def forget(self) -> None:
        """Drop what is noted of requests and tenants that have ended."""
        self.ended.clear()
        self.served.clear()
        self.recorder.finished.clear()

    def run(self, limit: int = 2000) -> int:
        """Step until all requests have ended; returns the number of steps."""
        for steps in range(limit):
            if not self.requests:
                return steps
            self.step()
        raise AssertionError(f"{len(self.requests)} requests still there after {limit} steps")

    def scheduled(self, output: SchedulerOutput) -> dict[str, int]:
        """Request id to tokens scheduled, in row order; before the step is applied only."""
        return {
            self.table.at(row.slot).request_id: row.num_scheduled_tokens for row in output.rows()
        }

    def schedule_of_next_step(self) -> dict[str, int]:
        """Run a step; request id to its scheduled tokens, in row order."""
        seen: dict[str, int] = {}
        self.on_scheduled = lambda output: seen.update(self.scheduled(output))
        self.step()
        self.on_scheduled = None
        return seen

    def _end(self, request: Request, reason: FinishReason, *, keep: bool = True) -> None:
        if request.slot >= 0:
            self.kv.free(request.slot, keep=keep)
        self.scheduler.on_request_finished(request, reason)
        self.table.end(request, reason, None)
        self.table.leave(request)
        del self.requests[request.request_id]
        self.ended[request.request_id] = reason
        told = self.recorder.finished[request.request_id]
        assert told == 1, (
            f"policies were told {told} times that {request.request_id} ended, not once"
        )

    def _apply(self, output: SchedulerOutput, failed: set[int]) -> None:
        ran = np.array([s for s in output.slots.tolist() if s not in failed], dtype=np.int32)
        self.kv.commit(ran)
        for row in output.rows():
            request = self.table.at(row.slot)
            self.served[request.tenant] = self.table.tenant_ledger.served(request.tenant)
            if row.slot in failed:
                self._end(request, FinishReason.ERROR, keep=False)
            elif row.samples:
                request.output_token_ids.append((request.arrival + request.num_tokens) % 7)
                request.emitted = True
                self.table.num_tokens[row.slot] += 1
                if request.num_tokens >= request.max_total_tokens:
                    self._end(request, FinishReason.LENGTH)
        still = np.array([s for s in ran.tolist() if self.table.running[s]], dtype=np.int32)
        self.scheduler.update_from_output(output, still)

    def _forward(self, output: SchedulerOutput) -> None:
        for slot in output.released_slots:
            self._tables.pop(slot, None)
        for new in output.new_requests:
            assert new.slot not in self._tables, "a slot was given out before it was released"
            self._tables[new.slot] = [list(blocks) for blocks in new.block_ids]
        for group, columns in enumerate(output.new_blocks):
            ends = columns.indptr.tolist()
            for index, slot in enumerate(columns.slots.tolist()):
                new_blocks = columns.block_ids[ends[index] : ends[index + 1]].tolist()
                self._tables[slot][group] += new_blocks
        for row in output.rows():
            request = self.table.at(row.slot)
            identities = _identities(request.token_ids)
            for group, shape in enumerate(self.groups):
                self._write(row.slot, group, row.num_computed_tokens, row, identities)
                self._read(row.slot, group, shape.sliding_window, row, identities)

    def _write(self, slot: int, group: int, first: int, row: Any, identities: list[int]) -> None:
        for position in range(first, first + row.num_scheduled_tokens):
            block = self._tables[slot][group][position // self.block_size]
            assert block != 0, "the null block would be written"
            self._memory[block, position % self.block_size] = (group, identities[position])

    def _read(
        self, slot: int, group: int, window: int | None, row: Any, identities: list[int]
    ) -> None:
        first = 0 if window is None else max(0, row.num_computed_tokens - window + 1)
        for position in range(first, row.num_computed_tokens):
            block = self._tables[slot][group][position // self.block_size]
            found = self._memory.get((block, position % self.block_size))
            assert found == (group, identities[position]), (
                f"slot {slot} reads another token at position {position} of group {group}"
            )


def _identities(token_ids: list[int]) -> list[int]:
    identities, so_far = [], 0
    for token in token_ids:
        so_far = hash((so_far, token))
        identities.append(so_far)
    return identities

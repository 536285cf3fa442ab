"""The scheduler's queues, and every way from one to another.

waiting -> running (start), running -> waiting (preempt), either -> ending (end), any -> gone
(drop). State of requests changes here and nowhere else, always together with their blocks.
"""

from __future__ import annotations

from builtin_plugins.scheduler_continuous.lane import WaitingRequest
from builtin_plugins.scheduler_continuous.running import RunningRequest, RunningSet
from builtin_plugins.scheduler_continuous.waiting import WaitingQueue
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import SchedulerContext
from hookspecs.errors import ContractViolation
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason
from hookspecs.types.step import NewRequest

__all__ = ["Queues"]


class Queues:
    """Waiting and running requests, over what the kernel lends."""

    def __init__(self, context: SchedulerContext) -> None:
        self.table = context.requests
        self.kv = context.kv_cache
        self.policies = context.policies
        self.waiting = WaitingQueue()
        self.running = RunningSet()
        # Ended by `end`; the kernel has not called back yet. Those that ran still hold a slot.
        self._ending: set[str] = set()

    def add(self, request: RequestView) -> None:
        """Queue a new or preempted request under the key it has now."""
        key = self.policies.key(request)
        placed = self.policies.place(request) if self.policies.dynamic_order else None
        if placed is None:
            self.waiting.push(WaitingRequest(key, request))
        else:
            group, place = placed
            self.waiting.push(WaitingRequest(key, request, group=group, place=place))

    def start(self, entry: WaitingRequest, cached: CachedPrefix, num_tokens: int) -> NewRequest:
        """Give a waiting request a slot and blocks for its first `num_tokens` tokens;
        `can_allocate` said that these are there."""
        request = entry.request
        self.waiting.discard(request.request_id)
        slot = self.table.start(request, cached.num_tokens)
        blocks = self.kv.allocate(request, num_tokens, cached)
        if blocks is None:
            raise ContractViolation(
                f"KV cache manager {self.kv.context.name!r}: can_allocate said that request "
                f"{request.request_id!r} can have blocks for {num_tokens} tokens, but allocate "
                "with the same arguments gave none",
                plugin=self.kv.context.plugin or None,
            )
        self.kv.record_lookup(request, cached)
        self.running.add(RunningRequest(entry.key, request, slot))
        return self.table.describe(request, blocks)

    def preempt(self, entry: RunningRequest) -> None:
        """Take slot and blocks from a running request and queue it again."""
        self.running.discard(entry.request.request_id)
        self.kv.free(entry.slot)
        self.table.preempt(entry.request)
        self.add(entry.request)

    def end(self, request: RequestView, reason: FinishReason, message: str) -> None:
        """End a request that can not or must not run. The kernel calls back, then `drop`."""
        self.waiting.discard(request.request_id)
        self._ending.add(request.request_id)
        self.table.finish(request, reason, message)

    def is_ending(self, request: RequestView) -> bool:
        """Whether `end` was called for it and the kernel has not called back yet."""
        return request.request_id in self._ending

    def drop(self, request: RequestView, reason: FinishReason) -> None:
        """The kernel says that a request has ended; policies are told if it was queued."""
        request_id = request.request_id
        known = request_id in self._ending
        self._ending.discard(request_id)
        known |= self.waiting.discard(request_id)
        known |= self.running.discard(request_id)
        if known:
            self.policies.on_finish(request, reason)

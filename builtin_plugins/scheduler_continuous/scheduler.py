"""The `continuous` scheduler."""

from __future__ import annotations

from builtin_plugins.scheduler_continuous.admission import AdmissionPass
from builtin_plugins.scheduler_continuous.growth import plan_running
from builtin_plugins.scheduler_continuous.in_flight import PrefixesInFlight
from builtin_plugins.scheduler_continuous.queues import Queues
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler, SchedulerCapability, SchedulerContext
from hookspecs.types.columns import Int32Column
from hookspecs.types.request import FinishReason
from hookspecs.types.step import SchedulerOutput

__all__ = ["ContinuousScheduler"]


class ContinuousScheduler(Scheduler):
    """Continuous batching with chunked prefill, prefix reuse and preemption by recomputation.

    There is no prefill and no decode phase: each step hands out tokens so that a request's
    computed tokens catch up with the known ones (Yu et al., "Orca", OSDI 2022; chunks as in
    Agrawal et al., "Sarathi-Serve", OSDI 2024). Running requests come first, then, unless some
    were preempted for lack of blocks, waiting ones; both in the total order of the policies.
    Core process, main thread.
    """

    capabilities = frozenset({SchedulerCapability.PREEMPTION})

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        config = context.config.scheduler
        self._max_num_batched_tokens = config.max_num_batched_tokens
        self._most_per_row = config.long_prefill_token_threshold or config.max_num_batched_tokens
        self._most_beside = context.prefill_beside_decode
        self._block_size = context.config.cache.block_size
        self._caches = context.config.cache.enable_prefix_caching
        self._queues = Queues(context)

    def add_request(self, request: RequestView) -> None:
        """Queue a request (status WAITING)."""
        self._queues.add(request)

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        """Drop a request that has ended, and tell the policies if it was queued."""
        self._queues.drop(request, reason)

    def schedule(self) -> SchedulerOutput:
        """Decide the next step; empty when nothing can run."""
        queues = self._queues
        self._expire()
        budget = queues.policies.cap_tokens(self._max_num_batched_tokens)
        plan = plan_running(queues, budget, self._most_per_row, self._most_beside)
        if len(queues.waiting) and not plan.preempted:
            in_flight = PrefixesInFlight(plan, self._block_size) if self._caches else None
            AdmissionPass(queues, plan, self._most_per_row, in_flight).run()
        return plan.output()

    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        """Nothing to settle: what a step decides is computed from the table's columns."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""
        return len(self._queues.waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._queues.running)

    def preempt_all(self) -> None:
        """Preempt every running request, last in the order first."""
        for entry in reversed(self._queues.running.order):
            self._queues.preempt(entry)

    def _expire(self) -> None:
        for request_id in self._queues.policies.expire():
            request = self._queues.waiting.get(request_id)
            if request is not None:
                self._queues.end(
                    request,
                    FinishReason.TIMEOUT,
                    f"request {request_id!r} was still waiting when its time was up",
                )

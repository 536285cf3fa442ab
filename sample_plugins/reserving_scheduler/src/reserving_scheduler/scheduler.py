"""The scheduler. Core process, main thread."""

from __future__ import annotations

from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler, SchedulerContext
from hookspecs.errors import ContractViolation
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason
from hookspecs.types.step import SchedulerOutput

from reserving_scheduler.running import RunningRequests
from reserving_scheduler.step import StepBuilder
from reserving_scheduler.waiting import Queued, WaitingQueue

__all__ = ["ReservingScheduler"]


class ReservingScheduler(Scheduler):
    """Starts a request only when the blocks of its largest length are sure to be there, so that
    no running request is ever preempted to make room for another.

    Requests start in the total order of the policies, and one that does not fit keeps those
    behind it waiting: passing it over, a stream of small requests could starve a large one.
    One that a policy holds back is passed over, since it does not wait for room.
    """

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        config = context.config.scheduler
        self._budget = config.max_num_batched_tokens
        self._most_per_row = config.long_prefill_token_threshold or config.max_num_batched_tokens
        self._waiting = WaitingQueue()
        self._running = RunningRequests(context.kv_cache)

    def add_request(self, request: RequestView) -> None:
        """Queue a request under the key it has now."""
        self._waiting.push(Queued(self.context.policies.key(request), request))

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        """Forget a request, wherever it is; the kernel has freed its blocks."""
        self._waiting.discard(request.request_id)
        self._running.discard(request.request_id)
        self.context.policies.on_finish(request, reason)

    def schedule(self) -> SchedulerOutput:
        """Running requests first, then those that can start."""
        policies = self.context.policies
        self._expire()
        if policies.dynamic_order:
            self._waiting.rekey(policies.key)
            self._running.rekey(policies.key)
        step = StepBuilder(self.context.requests, policies.cap_tokens(self._budget))
        self._go_on(step)
        self._start_waiting(step)
        return step.output()

    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        """Nothing to do: how far each request is stands in the request table."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, those included that `preempt_all` put back."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    def preempt_all(self) -> None:
        """Put all running requests back into the queue. The kernel asks for it before it clears
        the cache, of schedulers without the capability PREEMPTION too."""
        for request in self._running.requests():
            self._running.discard(request.request_id)
            self.context.kv_cache.free(request.slot)
            self.context.requests.preempt(request)
            self.add_request(request)

    def _expire(self) -> None:
        """End what policies say has waited too long. The kernel calls `on_request_finished` for
        these after the step was decided; until then they must not start."""
        for request_id in self.context.policies.expire():
            request = self._waiting.get(request_id)
            if request is not None:
                self._waiting.discard(request_id)
                message = f"request {request_id!r} did not start before its time was up"
                self.context.requests.finish(request, FinishReason.TIMEOUT, message)

    def _go_on(self, step: StepBuilder) -> None:
        """Give running requests tokens, and blocks where those they have are full."""
        table, capacity = self.context.requests, self.context.kv_cache.capacity
        for request in self._running.in_turn(table):
            if not step.budget:
                return
            slot = request.slot
            computed = int(table.num_computed_tokens[slot])
            tokens = self._chunk(int(table.num_tokens[slot]) - computed, step)
            step.go_on(slot, tokens)
            if computed + tokens > capacity[slot]:
                step.grow(slot, self._allocate(request, computed + tokens))

    def _start_waiting(self, step: StepBuilder) -> None:
        """Start requests, first in the order first, until there is no room for the next. A step
        with room costs as much more as there are requests that policies hold back."""
        table, waiting = self.context.requests, self._waiting
        still_waiting: list[Queued] = []
        while step.budget and table.num_free_slots and (queued := waiting.take()) is not None:
            if not self._running.can_take(queued.request):
                still_waiting.append(queued)
                break
            # It is among the waiting ones that the policies see while they are asked.
            if self.context.policies.admit(queued.request):
                waiting.discard(queued.request.request_id)
                self._start(queued, step)
            else:
                still_waiting.append(queued)
        for queued in still_waiting:
            waiting.put_back(queued)

    def _start(self, queued: Queued, step: StepBuilder) -> None:
        """Give a request a slot, what the cache has of it, and blocks for its first chunk."""
        table, kv_cache, request = self.context.requests, self.context.kv_cache, queued.request
        cached = kv_cache.lookup(request)
        table.start(request, cached.num_tokens)
        tokens = self._chunk(request.num_tokens - cached.num_tokens, step)
        blocks = self._allocate(request, cached.num_tokens + tokens, cached)
        kv_cache.record_lookup(request, cached)
        self._running.add(queued)
        step.start(table.describe(request, blocks), tokens)

    def _chunk(self, lacking: int, step: StepBuilder) -> int:
        """Tokens of one request in this step."""
        return min(lacking, self._most_per_row, step.budget)

    def _allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...]:
        """`allocate`, which can not fail within a request's claim."""
        kv_cache = self.context.kv_cache
        blocks = kv_cache.allocate(request, num_tokens, cached)
        if blocks is None:
            raise ContractViolation(
                f"KV cache manager {kv_cache.context.name!r} has no blocks for {num_tokens} "
                f"tokens of request {request.request_id!r}, though it said by blocks_for and "
                "num_total_blocks that all running requests fit at their largest length",
                plugin=kv_cache.context.plugin or None,
            )
        return blocks

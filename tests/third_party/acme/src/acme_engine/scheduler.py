"""The scheduler: no request starts before the cache has room for all it may come to.

So no running request ever lacks a block and nothing is preempted in `schedule`. Core process,
main thread.
"""

import numpy as np

from acme_engine.options import SchedulerOptions
from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler, SchedulerContext
from hookspecs.types.columns import Int32Column
from hookspecs.types.request import FinishReason
from hookspecs.types.step import BlockColumns, NewRequest, SchedulerOutput


class ReservingScheduler(Scheduler):
    """Running requests in the order of their start, then waiting ones in that of the policies."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        options: SchedulerOptions = context.options
        settings = context.config.scheduler
        limits = (options.chunk_tokens, settings.long_prefill_token_threshold)
        self._budget = settings.max_num_batched_tokens
        self._chunk = min([self._budget, *(limit for limit in limits if limit)])
        self._requests = context.requests
        self._kv = context.kv_cache
        self._policies = context.policies
        self._waiting: dict[str, tuple[OrderKey, RequestView]] = {}
        self._running: dict[str, RequestView] = {}
        self._reserved: dict[str, int] = {}

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    def add_request(self, request: RequestView) -> None:
        """Queue it."""
        self._waiting[request.request_id] = (self._policies.key(request), request)

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        """Forget it, whether it waited, ran, or was refused here."""
        self._waiting.pop(request.request_id, None)
        self._running.pop(request.request_id, None)
        self._reserved.pop(request.request_id, None)
        self._policies.on_finish(request, reason)

    def schedule(self) -> SchedulerOutput:
        """Rows for those who run, then for those who can start."""
        for request_id in self._policies.expire():
            if request_id in self._waiting:
                _, request = self._waiting.pop(request_id)
                self._requests.finish(request, FinishReason.TIMEOUT, "it waited too long")
        step = _Step(self._policies.cap_tokens(self._budget))
        self._continue(step)
        self._start(step)
        return step.output()

    def _continue(self, step: "_Step") -> None:
        for request in self._running.values():
            slot = request.slot
            computed = int(self._requests.num_computed_tokens[slot])
            known = int(self._requests.num_tokens[slot])
            count = min(known - computed, self._chunk, step.budget)
            if count <= 0:
                continue
            if computed + count > self._kv.capacity[slot]:
                blocks = self._kv.allocate(request, computed + count)
                if blocks is None:
                    raise RuntimeError(f"{request.request_id} lacks blocks that it has reserved")
                step.grown[slot] = blocks
            step.add(slot, count, computed, known)

    def _start(self, step: "_Step") -> None:
        if self._policies.dynamic_order:
            queue = sorted((self._policies.key(r), r.request_id) for _, r in self._waiting.values())
        else:
            queue = sorted((key, request_id) for request_id, (key, _) in self._waiting.items())
        for _, request_id in queue:
            if step.budget <= 0 or self._requests.num_free_slots == 0:
                break
            _, request = self._waiting[request_id]
            needed = self._kv.blocks_for(request.max_total_tokens)
            if needed > self._kv.num_total_blocks - sum(self._reserved.values()):
                break  # those behind must not overtake it for ever
            if not self._policies.admit(request):
                continue
            del self._waiting[request_id]
            self._running[request_id] = request
            self._reserved[request_id] = needed
            cached = self._kv.lookup(request)
            known, computed = request.num_tokens, cached.num_tokens
            count = min(known - computed, self._chunk, step.budget)
            slot = self._requests.start(request, computed)
            tables = self._kv.allocate(request, computed + count, cached)
            if tables is None:
                raise RuntimeError(f"{request_id} lacks blocks that it has reserved")
            self._kv.record_lookup(request, cached)
            step.new.append(self._requests.describe(request, tables))
            step.add(slot, count, computed, known)

    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        """The request table has all there is to know."""

    def preempt_all(self) -> None:
        """Blocks first: they are keyed by the slot, which `preempt` takes away."""
        for request in self._running.values():
            self._kv.free(request.slot)
            self._requests.preempt(request)
            self.add_request(request)
        self._running.clear()
        self._reserved.clear()


class _Step:
    """Rows of a step as they are decided."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.new: list[NewRequest] = []
        self.grown: dict[int, tuple[list[int], ...]] = {}
        self._rows: list[tuple[int, int, int, bool]] = []

    def add(self, slot: int, count: int, computed: int, known: int) -> None:
        """`count` tokens of a request of `known` tokens, of which `computed` are done."""
        self.budget -= count
        self._rows.append((slot, count, computed, computed + count == known))

    def output(self) -> SchedulerOutput:
        """The step in columns."""
        rows = np.array(self._rows, np.int32).reshape(-1, 4)
        return SchedulerOutput(
            step=0,
            slots=rows[:, 0].copy(),
            num_scheduled_tokens=rows[:, 1].copy(),
            num_computed_tokens=rows[:, 2].copy(),
            samples=rows[:, 3].astype(np.bool_),
            total_num_scheduled_tokens=int(rows[:, 1].sum()),
            new_requests=self.new,
            new_blocks=self._new_blocks(),
        )

    def _new_blocks(self) -> tuple[BlockColumns, ...]:
        if not self.grown:
            return ()
        slots = np.array(list(self.grown), np.int32)
        return tuple(
            BlockColumns(
                slots=slots,
                indptr=np.cumsum([0, *map(len, tables)], dtype=np.int32),
                block_ids=np.array([block for table in tables for block in table], np.int32),
            )
            for tables in zip(*self.grown.values(), strict=True)
        )

"""`HandKernel`: a mini kernel whose scheduler does what a test says, so that a KV cache manager
can be driven call by call, with the kernel's checks and the pretended memory around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from framework.conformance.worlds.mini_kernel import Maker, MiniKernel
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionPolicy
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler, SchedulerContext
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason
from hookspecs.types.step import BlockColumns, NewRequest, SchedulerOutput

__all__ = ["HandKernel"]


class HandKernel(MiniKernel):
    """Steps with the rows that are asked for."""

    scheduler: _HandScheduler

    def __init__(
        self, make: Maker, *, eviction: EvictionPolicy | None = None, **sizes: Any
    ) -> None:
        """`eviction`: in place of the configured policy."""

        def made(kind: str, config: EngineConfig, /, **fields: Any) -> Any:
            if kind == "scheduler":
                return _HandScheduler(SchedulerContext(config=config, **fields))
            if kind == "eviction_policy" and eviction is not None:
                return eviction
            return make(kind, config, **fields)

        super().__init__(made, **sizes)

    def compute(
        self, *orders: Request | tuple[Request, int], fail: Sequence[Request] = ()
    ) -> list[str]:
        """A step in which these compute so many tokens, or all that they lack; those that have
        not started are started with what the cache has of them. Returns the ids of those for
        which there were no blocks. AssertionError when accounts are wrong."""
        self.scheduler.orders = [
            order if isinstance(order, tuple) else (order, self.budget) for order in orders
        ]
        self.step(fail)
        self.check_accounts()
        return self.scheduler.refused

    def preempt(self, request: Request) -> None:
        """Take slot and blocks from a request."""
        self.scheduler.preempt(request)
        self.check_accounts()

    def tables(self, request: RequestView) -> list[list[int]]:
        """Its block tables, from what `allocate` returned; also what a window has left."""
        return self.scheduler.tables[request.request_id]

    def check_accounts(self) -> None:
        """What is said of blocks and capacities agrees with the block tables."""
        kv, running = self.kv, [r for r in self.requests.values() if r.slot >= 0]
        total, free, in_use = kv.num_total_blocks, kv.num_free_blocks, kv.blocks_in_use()
        assert free >= 0 and in_use >= 0 and free + in_use <= total, (
            f"{free} free blocks and {in_use} in use, of {total}"
        )
        if not running:
            assert (free, in_use) == (total, 0), (
                f"nothing runs, and {free} blocks of {total} are free, {in_use} in use"
            )
        named = {
            block
            for request in running
            for group, table in zip(self.groups, self.tables(request), strict=True)
            for block in table
            if group.sliding_window is None
        }
        assert len(named - {0}) <= in_use, f"{len(named)} blocks in tables, but {in_use} in use"
        slots = {request.slot for request in running}
        for slot, capacity in enumerate(kv.capacity.tolist()):
            if slot not in slots:
                assert capacity == 0, f"slot {slot} is free, with a capacity of {capacity} tokens"
        for request in running:
            self._check_capacity(request)

    def _check_capacity(self, request: Request) -> None:
        capacity = int(self.kv.capacity[request.slot])
        computed = int(self.table.num_computed_tokens[request.slot])
        lengths = [len(table) for table in self.tables(request)]
        most = min(lengths) * self.block_size
        assert computed <= capacity <= most, (
            f"slot {request.slot} has computed {computed} tokens, with a capacity of {capacity}, "
            f"and tables of {lengths} blocks of {self.block_size} tokens"
        )


class _HandScheduler(Scheduler):
    """Starts, grows and preempts as it is told, and checks what `allocate` returns."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self.orders: list[tuple[RequestView, int]] = []
        self.refused: list[str] = []
        self.tables: dict[str, list[list[int]]] = {}
        self._waiting: set[str] = set()

    def add_request(self, request: RequestView) -> None:
        self._waiting.add(request.request_id)

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        self._waiting.discard(request.request_id)
        self.tables.pop(request.request_id, None)
        self.context.policies.on_finish(request, reason)

    def schedule(self) -> SchedulerOutput:
        table = self.context.requests
        self.refused = []
        rows: list[tuple[int, int]] = []
        new: list[NewRequest] = []
        grown: list[tuple[int, tuple[list[int], ...]]] = []
        for request, tokens in self.orders:
            if request.slot < 0:
                started = self._start(request, tokens)
                if started is None:
                    continue
                new.append(started)
                end = min(request.num_tokens, started.num_computed_tokens + tokens)
            else:
                end = min(request.num_tokens, int(table.num_computed_tokens[request.slot]) + tokens)
                if end > self.context.kv_cache.capacity[request.slot]:
                    blocks = self._allocate(request, end, None)
                    if blocks is None:
                        continue
                    grown.append((request.slot, blocks))
            rows.append((request.slot, end))
        self.orders = []
        return self._output(rows, new, grown)

    def preempt(self, request: RequestView) -> None:
        self.context.kv_cache.free(request.slot)
        self.context.requests.preempt(request)
        self.tables.pop(request.request_id, None)
        self.add_request(request)

    def preempt_all(self) -> None:
        for request in self._running():
            self.preempt(request)

    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        pass

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self.tables)

    def _running(self) -> list[RequestView]:
        slots = range(len(self.context.kv_cache.capacity))
        found: list[RequestView] = []
        for slot in slots:
            try:
                found.append(self.context.requests.at(slot))
            except KeyError:
                continue
        return found

    def _start(self, request: RequestView, tokens: int) -> NewRequest | None:
        kv, table = self.context.kv_cache, self.context.requests
        cached = kv.lookup(request)
        size = kv.context.kv_config.block_size
        assert cached.num_tokens % size == 0 and cached.num_tokens < request.num_tokens, (
            f"lookup found {cached.num_tokens} tokens of a request of {request.num_tokens}; it "
            f"must be fewer, and whole blocks of {size}"
        )
        end = min(request.num_tokens, cached.num_tokens + tokens)
        can = kv.can_allocate(request, end, cached)
        table.start(request, cached.num_tokens)
        blocks = self._allocate(request, end, cached)
        assert can is (blocks is not None), (
            f"can_allocate said {can} for {end} tokens of a request without a slot, of which "
            f"{cached.num_tokens} are cached; allocate gave {blocks}"
        )
        if blocks is None:
            table.preempt(request)
            return None
        self._waiting.discard(request.request_id)
        kv.record_lookup(request, cached)
        return table.describe(request, blocks)

    def _allocate(
        self, request: RequestView, end: int, cached: CachedPrefix | None
    ) -> tuple[list[int], ...] | None:
        """Allocate, check against what is known, and note the tables."""
        kv = self.context.kv_cache
        can, free, before = kv.can_allocate(request, end, cached), kv.num_free_blocks, _state(kv)
        blocks = kv.allocate(request, end, cached)
        assert can is (blocks is not None), (
            f"can_allocate said {can} for {end} tokens of slot {request.slot}; allocate gave "
            f"{blocks}"
        )
        if blocks is None:
            assert kv.blocks_for(end) > free, (
                f"no blocks for {end} tokens, which need {kv.blocks_for(end)}; {free} are free"
            )
            after = _state(kv)
            assert before == after, (
                f"a refused allocation changed (free blocks, blocks in use, capacities) from "
                f"{before} to {after}"
            )
            self.refused.append(request.request_id)
            return None
        self._check_new(request, blocks, cached)
        if cached is None:
            for table, appended in zip(self.tables[request.request_id], blocks, strict=True):
                table += appended
        else:
            self.tables[request.request_id] = [list(table) for table in blocks]
        return blocks

    def _check_new(
        self, request: RequestView, blocks: tuple[list[int], ...], cached: CachedPrefix | None
    ) -> None:
        """New blocks are nobody else's, and a prefix that is taken over is the one found."""
        groups = self.context.kv_cache.context.kv_config.groups
        assert len(blocks) == len(groups), f"{len(blocks)} tables of {len(groups)} groups"
        for group, new in enumerate(blocks):
            found = () if cached is None or not cached.blocks else cached.blocks[group]
            assert tuple(new[: len(found)]) == found, (
                f"the table begins with {new[: len(found)]}; the prefix found was {found}"
            )
            fresh = new[len(found) :]
            assert len({*fresh, 0}) == len(fresh) + 1, f"null or repeated blocks in {fresh}"
            if groups[group].sliding_window is not None:
                continue
            held = {
                block
                for name, tables in self.tables.items()
                if name != request.request_id or cached is None
                for table, shape in zip(tables, groups, strict=True)
                if shape.sliding_window is None
                for block in table
            }
            assert not held & set(fresh), (
                f"blocks {sorted(held & set(fresh))} were given out, and are in use already"
            )

    def _output(
        self,
        rows: list[tuple[int, int]],
        new: list[NewRequest],
        grown: list[tuple[int, tuple[list[int], ...]]],
    ) -> SchedulerOutput:
        table = self.context.requests
        slots, ends = (_column([row[index] for row in rows]) for index in (0, 1))
        computed = table.num_computed_tokens[slots]
        groups = len(self.context.kv_cache.context.kv_config.groups) if grown else 0
        return SchedulerOutput(
            step=0,
            slots=slots,
            num_scheduled_tokens=ends - computed,
            num_computed_tokens=computed,
            samples=ends == table.num_tokens[slots],
            total_num_scheduled_tokens=int((ends - computed).sum()),
            new_requests=new,
            new_blocks=tuple(
                BlockColumns(
                    slots=_column([slot for slot, _ in grown]),
                    indptr=_column(
                        np.cumsum([0, *(len(blocks[group]) for _, blocks in grown)]).tolist()
                    ),
                    block_ids=_column([b for _, blocks in grown for b in blocks[group]]),
                )
                for group in range(groups)
            ),
        )


def _state(kv: Any) -> tuple[int, int, list[int]]:
    return kv.num_free_blocks, kv.blocks_in_use(), kv.capacity.tolist()


def _column(values: list[int]) -> Int32Column:
    return np.array(values, dtype=np.int32)

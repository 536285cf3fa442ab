"""The running requests and what is reserved for them. Core process, main thread."""

from __future__ import annotations

from collections.abc import Callable

from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestTable, RequestView

from reserving_scheduler.waiting import Queued

__all__ = ["RunningRequests"]


class RunningRequests:
    """Requests that hold a slot, each with a claim on the blocks of its largest length.

    The claims together never exceed the cache. A request uses no more blocks than it claims
    (fewer, where it shares some or a sliding window has passed), and what nobody uses can be
    allocated. So whoever runs always finds the blocks to grow, and nobody has to be preempted.

    Claims are counted, not allocated: until a request needs a block, the block can go on holding
    a cached prefix.
    """

    def __init__(self, kv_cache: KVCacheManager) -> None:
        self._kv_cache = kv_cache
        self._by_id: dict[str, Queued] = {}
        self._claimed = 0
        """Blocks."""

    def __len__(self) -> int:
        return len(self._by_id)

    def can_take(self, request: RequestView) -> bool:
        """Whether the cache has the blocks of its largest length besides all claims. Always so
        when nothing runs: the kernel refuses requests that an empty cache can not hold."""
        return self._claimed + self._claim(request) <= self._kv_cache.num_total_blocks

    def add(self, queued: Queued) -> None:
        """A request runs, and has its claim."""
        self._by_id[queued.request.request_id] = queued
        self._claimed += self._claim(queued.request)

    def discard(self, request_id: str) -> None:
        """A request, if it runs, runs no more, and gives up its claim."""
        queued = self._by_id.pop(request_id, None)
        if queued is not None:
            self._claimed -= self._claim(queued.request)

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew."""
        for request_id, old in self._by_id.items():
            self._by_id[request_id] = Queued(key(old.request), old.request)

    def requests(self) -> list[RequestView]:
        """All of them, as they started."""
        return [queued.request for queued in self._by_id.values()]

    def in_turn(self, table: RequestTable) -> list[RequestView]:
        """Those that lack one token first, then the prompts; each in the total order.

        So a step gives a token to each request that generates, however long the prompts that are
        computed beside it (Agrawal et al., "Sarathi-Serve", OSDI 2024).
        """
        lacking = table.num_tokens - table.num_computed_tokens

        def turn(queued: Queued) -> tuple[bool, OrderKey]:
            return bool(lacking[queued.request.slot] > 1), queued.key

        return [queued.request for queued in sorted(self._by_id.values(), key=turn)]

    def _claim(self, request: RequestView) -> int:
        return self._kv_cache.blocks_for(request.max_total_tokens)

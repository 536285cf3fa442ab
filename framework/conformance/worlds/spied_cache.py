"""`SpiedCache`: a KV cache manager between a scheduler and the real one, with a record of who
called what for which request, and faults on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from framework.conformance.worlds.mini_kernel import Maker
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import RequestStatus
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["CacheFault", "Call", "SpiedCache", "spying"]


class CacheFault(Exception):
    """Raised by a cache that was told to."""


class Call(NamedTuple):
    """One call about a request."""

    method: str
    request_id: str
    status: RequestStatus
    """When it was made."""
    cached: CachedPrefix | None = None
    """What `lookup` found, or the others were given."""


class SpiedCache(KVCacheManager):
    """Passes every call on."""

    def __init__(self, real: KVCacheManager) -> None:
        super().__init__(real.context)
        self.capabilities = real.capabilities  # type: ignore[misc]
        self.real = real
        self.calls: list[Call] = []
        self.fault = ""
        """The method that raises."""

    def calls_of(self, request_id: str, *methods: str) -> list[Call]:
        """Calls of these methods about a request, in order."""
        return [c for c in self.calls if c.request_id == request_id and c.method in methods]

    @property
    def capacity(self) -> Int32Column:
        return self.real.capacity

    @property
    def num_free_blocks(self) -> int:
        return self.real.num_free_blocks

    @property
    def num_total_blocks(self) -> int:
        return self.real.num_total_blocks

    def can_ever_fit(self, num_tokens: int) -> bool:
        return self.real.can_ever_fit(num_tokens)

    def blocks_for(self, num_tokens: int) -> int:
        return self.real.blocks_for(num_tokens)

    def lookup(self, request: RequestView) -> CachedPrefix:
        self._maybe_raise("lookup")
        found = self.real.lookup(request)
        self._note("lookup", request, found)
        return found

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        return self.real.can_allocate(request, num_tokens, cached)

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        self._maybe_raise("allocate")
        self._note("allocate", request, cached)
        return self.real.allocate(request, num_tokens, cached)

    def commit(self, slots: Int32Column) -> None:
        self.real.commit(slots)

    def free(self, slot: int, *, keep: bool = True) -> None:
        with contextlib.suppress(KeyError):  # nobody runs there: then it does nothing
            self._note("free", self.context.requests.at(slot), None)
        self.real.free(slot, keep=keep)

    def reset_prefix_cache(self) -> bool:
        return self.real.reset_prefix_cache()

    def take_stats(self) -> PrefixCacheStats:
        return self.real.take_stats()

    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        self._note("record_lookup", request, cached)
        self.real.record_lookup(request, cached)

    def check(self) -> None:
        self.real.check()

    def blocks_in_use(self) -> int:
        return self.real.blocks_in_use()

    def _note(self, method: str, request: RequestView, cached: CachedPrefix | None) -> None:
        self.calls.append(Call(method, request.request_id, request.status, cached))

    def _maybe_raise(self, method: str) -> None:
        if self.fault == method:
            raise CacheFault(method)


def spying(make: Callable[..., Any]) -> Maker:
    """The same maker, but KV cache managers are spied on: `kernel.kv` is the spy."""

    def made(kind: str, config: EngineConfig, /, **fields: Any) -> Any:
        part = make(kind, config, **fields)
        return SpiedCache(part) if kind == "kv_cache_manager" else part

    return made

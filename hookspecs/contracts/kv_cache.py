"""KV cache manager and eviction policy. Only the manager touches blocks.

Core process, main thread. Blocks are numbered 0 to num_blocks - 1; block 0 is the null block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from hookspecs.contracts.base import Context
from hookspecs.contracts.request_view import RequestTable, RequestView
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix, KVCacheConfig
from hookspecs.types.stats import PrefixCacheStats

__all__ = [
    "CacheView",
    "EvictionContext",
    "EvictionPolicy",
    "KVCacheCapability",
    "KVCacheContext",
    "KVCacheManager",
]


class KVCacheCapability(StrEnum):
    """What a KV cache manager can do."""

    PREFIX_CACHING = "prefix_caching"
    """Finds and keeps shared prefixes, unless `cache.enable_prefix_caching` is off."""
    SLIDING_WINDOW = "sliding_window"
    """Frees blocks that left a window, and holds groups of different windows."""


class EvictionContext(Context, frozen=True, kw_only=True):
    """Context of an eviction policy."""

    num_blocks: int


class EvictionPolicy(ABC):
    """Which cached block that nobody uses is given up first. One call an event, O(1).

    It sees numbers of blocks, not what is in them. A number that was popped comes back with other
    content, so nothing of it is to be kept; one that was removed comes back with the same content
    if it was used meanwhile, and with other content if that was forgotten. What was given up can
    not be recognised when it comes again.
    """

    def __init__(self, context: EvictionContext) -> None:
        self.context = context

    @abstractmethod
    def add(self, block: int) -> None:
        """`block` holds cached content and nobody uses it any more. The blocks of one request
        come last block first, so that ends are given up before beginnings."""

    @abstractmethod
    def remove(self, block: int) -> None:
        """`block` is used again, or its content was forgotten. KeyError if it was not added."""

    @abstractmethod
    def pop(self) -> int:
        """Take out the block to give up. IndexError when empty."""

    @abstractmethod
    def __len__(self) -> int:
        """Blocks that could be given up."""


class KVCacheContext(Context, frozen=True, kw_only=True):
    """Context of a KV cache manager."""

    kv_config: KVCacheConfig
    requests: RequestTable
    eviction: EvictionPolicy
    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int


@runtime_checkable
class CacheView(Protocol):
    """What may be known about the cache without touching it."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that `allocate` could give out now."""

    @property
    def num_total_blocks(self) -> int:
        """All blocks but the null block."""


class KVCacheManager(ABC):
    """Gives blocks to running requests, finds and keeps shared prefixes.

    A request's blocks are keyed by its slot: `RequestTable.start` comes before `allocate`,
    `free` before the slot is given to another request. Which of the cached blocks that nobody
    uses is given up first, `context.eviction` decides. What a call costs does not grow with the
    number of blocks, but for `check` and `reset_prefix_cache`.
    """

    capabilities: ClassVar[frozenset[KVCacheCapability]] = frozenset()

    def __init__(self, context: KVCacheContext) -> None:
        self.context = context

    @property
    @abstractmethod
    def capacity(self) -> Int32Column:
        """int32[max_num_seqs]: tokens that fit into the blocks a slot holds. A running request
        needs `allocate` only when it grows beyond."""

    @property
    @abstractmethod
    def num_free_blocks(self) -> int:
        """Blocks that `allocate` could give out now, unused cached ones included."""

    @property
    @abstractmethod
    def num_total_blocks(self) -> int:
        """All blocks but the null block."""

    @abstractmethod
    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether an empty cache could hold a request of that many tokens."""

    @abstractmethod
    def blocks_for(self, num_tokens: int) -> int:
        """Blocks of a request of that many tokens, over all groups, without sharing."""

    @abstractmethod
    def lookup(self, request: RequestView) -> CachedPrefix:
        """The longest cached prefix; without side effects.

        Always shorter than the request's tokens. Empty when it `computes_whole_prompt`.
        """

    @abstractmethod
    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        """Whether `allocate` with the same arguments would succeed. No side effect. Also asked
        for a request that has not been started and has no slot (-1)."""

    @abstractmethod
    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        """Blocks so that the running request can hold its first `num_tokens` tokens.

        With `cached` (a new or resumed request): takes the prefix over and returns the whole
        block tables, one list a group. Without: returns the ids appended to each group's
        table. None, with nothing changed, when blocks are short.
        """

    @abstractmethod
    def commit(self, slots: Int32Column) -> None:
        """The tokens counted as computed of these slots are written: complete blocks become
        available to other requests. Called by the kernel after each forward, for the rows that
        did not fail, before requests that ended are freed."""

    @abstractmethod
    def free(self, slot: int, *, keep: bool = True) -> None:
        """Take back all blocks of a slot, last first. Without `keep` those that the request
        wrote are forgotten, not cached, and no new request finds them, also while another that
        found them before still uses them; those that it only read stay as they are. Freeing an
        empty slot does nothing. Called by the kernel when a request ends, by the scheduler
        before it preempts one; `RequestTable.at` still names the request."""

    @abstractmethod
    def reset_prefix_cache(self) -> bool:
        """Forget all cached content. False, with nothing changed, while blocks are in use."""

    @abstractmethod
    def take_stats(self) -> PrefixCacheStats:
        """Statistics since the last call."""

    @abstractmethod
    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        """Count a lookup whose result was used: once each time a request starts."""

    @abstractmethod
    def check(self) -> None:
        """Verify that free, cached and used blocks add up; InternalError naming what does
        not. Called when the engine is idle, and after each step when debugging."""

    @abstractmethod
    def blocks_in_use(self) -> int:
        """Blocks held by requests; 0 when none runs."""

"""The kit's mini kernel around the built-in scheduler, KV cache manager and eviction policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from builtin_plugins.kv_cache_paged.eviction import LruEviction
from builtin_plugins.kv_cache_paged.manager import PagedKVCacheManager
from builtin_plugins.policies.fcfs import FcfsPolicy
from builtin_plugins.scheduler_continuous.scheduler import ContinuousScheduler
from framework.conformance.worlds import mini_kernel
from framework.conformance.worlds.mini_kernel import FULL, sliding
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionContext, KVCacheContext
from hookspecs.contracts.policy import PolicyContext, SchedulingPolicy
from hookspecs.contracts.scheduler import SchedulerContext

__all__ = ["FULL", "MiniKernel", "make_policy", "sliding"]

_PARTS: dict[str, tuple[Any, Any]] = {
    "eviction_policy": (LruEviction, EvictionContext),
    "kv_cache_manager": (PagedKVCacheManager, KVCacheContext),
    "scheduler": (ContinuousScheduler, SchedulerContext),
}


def make_policy(
    policy: type[SchedulingPolicy], options: msgspec.Struct | None = None
) -> SchedulingPolicy:
    """A policy as the kernel would construct it."""
    return policy(PolicyContext(config=EngineConfig(), options=options))


def _make(kind: str, config: EngineConfig, /, **fields: Any) -> Any:
    part, context = _PARTS[kind]
    return part(context(config=config, **fields))


class MiniKernel(mini_kernel.MiniKernel):
    """First come, first served unless other policies are given."""

    def __init__(self, *, policies: Sequence[SchedulingPolicy] = (), **sizes: Any) -> None:
        super().__init__(_make, policies=policies or [make_policy(FcfsPolicy)], **sizes)

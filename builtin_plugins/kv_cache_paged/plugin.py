"""Entry point: registers the `paged` KV cache manager and the `lru` eviction policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.kv_cache import KVCacheCapability

__all__ = ["KVCachePagedPlugin", "plugin"]


class KVCachePagedPlugin(EngineHooks):
    """The default KV cache."""

    PLUGIN = PluginInfo(
        name="kv-cache-paged",
        api=">=1.0,<2",
        description="Paged KV cache with prefix caching",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_kv_cache_managers(self) -> Iterable[Provider[Any]]:
        """Offer `paged`."""
        yield Provider(
            "paged",
            "builtin_plugins.kv_cache_paged.manager:PagedKVCacheManager",
            capabilities=frozenset(KVCacheCapability),
            description="One pool of blocks; prefix caching, sliding-window and hybrid groups",
        )

    @hookimpl
    def register_eviction_policies(self) -> Iterable[Provider[Any]]:
        """Offer `lru`."""
        yield Provider(
            "lru",
            "builtin_plugins.kv_cache_paged.eviction:LruEviction",
            description="The block that has been unused longest is given up first",
        )


plugin = KVCachePagedPlugin()

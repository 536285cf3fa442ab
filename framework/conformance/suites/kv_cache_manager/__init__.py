"""Suite of KV cache managers: driven by hand, under a scheduler, and in a real engine."""

from __future__ import annotations

from framework.conformance.suites.kv_cache_manager.accounts import Accounts
from framework.conformance.suites.kv_cache_manager.eviction import Eviction
from framework.conformance.suites.kv_cache_manager.prefixes import Prefixes
from framework.conformance.suites.kv_cache_manager.surroundings import Surroundings
from framework.conformance.suites.kv_cache_manager.windows import Windows

__all__ = ["KvCacheManagerConformance"]


# Tests run in the reverse order of the bases.
class KvCacheManagerConformance(Surroundings, Windows, Eviction, Prefixes, Accounts):
    """KV cache managers give out blocks, take them back, and mix up nothing."""

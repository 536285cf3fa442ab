"""What the parts of the suite of KV cache managers share."""

from __future__ import annotations

from typing import Any

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.mini_kernel import FULL, sliding
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.types.kv import CachedPrefix, KVCacheGroup

__all__ = [
    "PROMPT",
    "RUNS",
    "Groups",
    "KvCacheManagerPart",
    "default_manager",
    "facts",
    "is_empty",
    "run_to_end",
]

RUNS = 24
"""Random runs of a test."""
PROMPT = list(range(100, 112))
"""Three blocks of four tokens."""
Groups = tuple[KVCacheGroup, ...]


class KvCacheManagerPart(Conformance):
    """A manager, and the groups of layers that it is given."""

    kind = "kv_cache_manager"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the manager, and the parts around it that the configuration names."""
        return PartMaker(subject)

    @pytest.fixture
    def shapes(self, subject: Subject) -> list[Groups]:
        """The groups of layers that the kernel gives to such a manager."""
        windows = KVCacheCapability.SLIDING_WINDOW in subject.capabilities
        return [(FULL,), (sliding(5),), (FULL, sliding(3))] if windows else [(FULL,)]


def default_manager() -> dict[str, Any]:
    return {"manager": EngineConfig().cache.manager}


def facts(kernel: HandKernel, probe: Request) -> tuple[Any, ...]:
    """What must not change where nothing may change."""
    kv = kernel.kv
    found = kv.lookup(probe).num_tokens
    return (kv.num_free_blocks, kv.blocks_in_use(), kv.capacity.tolist(), found)


def is_empty(found: CachedPrefix) -> bool:
    return found.num_tokens == 0 and not any(found.blocks)


def run_to_end(kernel: HandKernel, *requests: Request) -> int:
    """Run them side by side; returns the most blocks that were in use after a step."""
    kv, most = kernel.kv, 0
    promised = sum(kv.blocks_for(request.max_total_tokens) for request in requests)
    while any(request.request_id in kernel.requests for request in requests):
        budget = kernel.budget
        orders = []
        for request in requests:
            if request.request_id in kernel.requests and budget:
                computed = int(kernel.table.num_computed_tokens[request.slot])
                lacking = request.num_tokens - (computed if request.slot >= 0 else 0)
                orders.append((request, min(budget, lacking)))
                budget -= orders[-1][1]
        refused = kernel.compute(*orders)
        assert not refused, (
            f"{refused} got no blocks, though blocks_for says that all need at most {promised}, "
            f"of {kv.num_total_blocks}"
        )
        most = max(most, kv.blocks_in_use())
        assert most <= promised, f"{most} blocks in use; blocks_for promised at most {promised}"
    return most

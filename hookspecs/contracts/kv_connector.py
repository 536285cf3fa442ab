"""KV connectors: blocks to and from other engines and tiers, in two halves.

Failures are values, so that the engine can recompute; exceptions are defects. Keys are made
by the kernel with everything that isolates tenants inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.contracts.kv_cache import CacheView
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.kv import KVCacheConfig
from hookspecs.types.request import FinishReason
from hookspecs.types.step import SchedulerOutput

__all__ = [
    "Failed",
    "KVConnector",
    "KVConnectorCapability",
    "KVConnectorContext",
    "KVConnectorScheduler",
    "KVConnectorWorker",
    "LoadOutcome",
    "Loaded",
    "Lookup",
    "Missing",
]


class KVConnectorCapability(StrEnum):
    """What a connector can do."""

    LOAD = "load"
    SAVE = "save"
    ASYNC_LOAD = "async_load"
    LAYERWISE = "layerwise"
    HYBRID_GROUPS = "hybrid_groups"


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The tokens are in their blocks."""

    num_tokens: int


class Missing(msgspec.Struct, frozen=True, tag=True):
    """They are not there (any more)."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Loading failed."""

    reason: str


LoadOutcome = Loaded | Missing | Failed


class Lookup(msgspec.Struct, frozen=True):
    """Answer to a lookup."""

    num_tokens: int
    """Tokens that can be loaded beyond those computed locally; 0: none."""
    pending: bool = False
    """Not known yet: ask again at the next step."""
    asynchronous: bool = False
    """Loading takes several steps; the request waits meanwhile, others run."""


class KVConnectorContext(Context, frozen=True, kw_only=True):
    """Context of both halves."""

    kv_config: KVCacheConfig
    cache: CacheView | None = None
    """The accounts of the cache, in the core process; None in a worker."""
    engine_index: int = 0
    rank: int = 0


class KVConnectorScheduler(ABC):
    """The half in the core process, main thread."""

    def __init__(self, context: KVConnectorContext) -> None:
        self.context = context

    @abstractmethod
    def lookup(self, request: RequestView, num_local_tokens: int) -> Lookup:
        """What could be loaded. May be asked often; must have no side effect."""

    @abstractmethod
    def on_allocated(
        self, request: RequestView, blocks: Sequence[Sequence[int]], num_tokens: int
    ) -> None:
        """The load was decided and has blocks (num_tokens 0: decided against)."""

    @abstractmethod
    def build_metadata(self, scheduled: SchedulerOutput) -> bytes:
        """Message for the worker half, once a step, also of a step without rows."""

    @abstractmethod
    def on_load_finished(self, request_id: str, outcome: LoadOutcome) -> None:
        """A load ended on all workers."""

    @abstractmethod
    def on_request_finished(
        self, request: RequestView, reason: FinishReason, blocks: Sequence[Sequence[int]]
    ) -> bool:
        """Exactly once a request, also one that never started (no blocks). True: keep the
        blocks until the worker half reports the save as finished."""

    def reset(self) -> bool:
        """Forget what is kept for this model. False if it can't now."""
        return True


class KVConnectorWorker(ABC):
    """The half in each worker process."""

    def __init__(self, context: KVConnectorContext) -> None:
        self.context = context

    @abstractmethod
    def register_caches(self, buffers: Sequence[Any]) -> None:
        """The cache's buffers, once."""

    @abstractmethod
    def start_step(self, metadata: bytes) -> None:
        """Before the forward: start loads."""

    def wait_for_layer(self, layer: int) -> None:
        """Before a layer reads its cache (LAYERWISE)."""
        return

    def save_layer(self, layer: int) -> None:
        """After a layer wrote its cache (LAYERWISE)."""
        return

    @abstractmethod
    def finish_step(self) -> tuple[dict[str, LoadOutcome], list[str]]:
        """After the forward: loads that ended, and ids whose saves ended."""

    def shutdown(self) -> None:
        """End all transfers."""
        return


class KVConnector(ABC):
    """What a provider makes: the pair of halves, each created in its own process."""

    capabilities: ClassVar[frozenset[KVConnectorCapability]] = frozenset()

    def __init__(self, context: KVConnectorContext) -> None:
        self.context = context

    @abstractmethod
    def create_scheduler(self) -> KVConnectorScheduler:
        """The half of the core process."""

    @abstractmethod
    def create_worker(self) -> KVConnectorWorker:
        """The half of a worker process."""

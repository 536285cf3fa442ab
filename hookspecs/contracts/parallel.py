"""Data parallelism: coordinator and load balancer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.types.request import EngineCoreRequest

__all__ = [
    "BalancerCapability",
    "Coordinator",
    "CoordinatorContext",
    "EngineLoad",
    "LoadBalancer",
    "LoadBalancerContext",
    "WaveState",
]


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one engine."""

    engine_index: int
    num_waiting: int = 0
    num_running: int = 0
    free_blocks: int = 0
    prefix_hit_tokens: int = 0
    """Estimate for the request at hand."""
    healthy: bool = True
    draining: bool = False


class WaveState(msgspec.Struct, frozen=True, kw_only=True):
    """The lockstep wave of engines that share layers."""

    wave: int
    running: bool


class CoordinatorContext(Context, frozen=True, kw_only=True):
    """Context of a coordinator."""

    num_engines: int


class Coordinator(ABC):
    """Collects loads and keeps the wave. A process of its own, restartable."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context = context

    @abstractmethod
    def on_load(self, load: EngineLoad) -> None:
        """An engine reported."""

    @abstractmethod
    def on_wave_complete(self, engine_index: int, wave: int) -> WaveState:
        """An engine found that all are idle in `wave`."""

    @abstractmethod
    def on_first_request(self, wave: int, engine_index: int) -> WaveState | None:
        """A request came while engines are paused; a new state to broadcast, or None when it
        is stale."""

    @abstractmethod
    def on_membership(self, engine_indexes: Sequence[int]) -> None:
        """The set of engines changed."""

    @abstractmethod
    def loads(self) -> list[EngineLoad]:
        """The latest load of each engine."""


class BalancerCapability(StrEnum):
    """What a balancer looks at."""

    PREFIX_AFFINITY = "prefix_affinity"
    SESSION_AFFINITY = "session_affinity"


class LoadBalancerContext(Context, frozen=True, kw_only=True):
    """Context of a load balancer."""

    num_engines: int


class LoadBalancer(ABC):
    """Front-end process. Ties are broken by the smallest engine index."""

    capabilities: ClassVar[frozenset[BalancerCapability]] = frozenset()

    def __init__(self, context: LoadBalancerContext) -> None:
        self.context = context

    @abstractmethod
    def choose(self, request: EngineCoreRequest, engines: Sequence[EngineLoad]) -> int:
        """Engine index for a request; `engines` are those that may take it (not empty)."""

    def on_membership(self, engine_indexes: Sequence[int]) -> None:
        """The set of engines changed."""
        return

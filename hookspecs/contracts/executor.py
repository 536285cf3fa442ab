"""The executor: runs one or more workers and hands them each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, ClassVar

from hookspecs.contracts.base import Context
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.worker import Worker
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["Executor", "ExecutorCapability", "ExecutorContext"]


class ExecutorCapability(StrEnum):
    """What an executor can do."""

    ASYNC_STEPPING = "async_stepping"
    TENSOR_PARALLEL = "tensor_parallel"
    PIPELINE_PARALLEL = "pipeline_parallel"
    MULTI_NODE = "multi_node"


class ExecutorContext(Context, frozen=True, kw_only=True):
    """Context of an executor."""

    model: ResolvedModel
    max_model_len: int
    create_worker: Callable[[int, int, int], Worker]
    """(rank, local rank, world size): constructs the selected worker, in this process and the
    calling thread. In this version it is the only way to a worker, so all workers live in the
    process of the engine core; what an executor needs to construct them in processes of its own
    comes with a later version."""


class Executor(ABC):
    """All calls come from the engine core's main thread, in the order start,
    initialize_kv_cache, then steps, then shutdown."""

    capabilities: ClassVar[frozenset[ExecutorCapability]] = frozenset()

    def __init__(self, context: ExecutorContext) -> None:
        self.context = context

    @abstractmethod
    def start(self) -> None:
        """Start workers and load the model; returns when all are ready. Raises what a worker
        raised; the workers that there are then end with `shutdown`."""

    @abstractmethod
    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """What the layers of the model keep, of one rank of each pipeline stage."""

    @abstractmethod
    def available_kv_bytes(self) -> int:
        """Bytes that the smallest worker can give to the KV cache."""

    @abstractmethod
    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Allocate the cache on every worker and warm up."""

    @abstractmethod
    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        """Launch the forward of a step; does not block if the executor is asynchronous. The
        future completes (or fails) with the forward. A step without rows is not executed; its
        released slots come with the next one."""

    @abstractmethod
    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        """Sample from the oldest launched forward that has not been sampled. Exactly one call
        after each `execute_model`, also when that forward fails later: then both futures fail.
        Futures complete in order."""

    @abstractmethod
    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """Run a registered command on every worker; results in rank order.

        Raises KeyError for an unknown command, TimeoutError after `timeout` seconds (an
        executor that calls workers in its own thread can not interrupt them), and the worker's
        own exception with a note of its rank.
        """

    @abstractmethod
    def check_health(self) -> None:
        """Return at once when all workers live, raise EngineDeadError with the cause if not.
        Not called by this version."""

    @abstractmethod
    def shutdown(self) -> None:
        """End all workers; safe to call twice, before start and after one that failed."""

    @property
    def max_concurrent_batches(self) -> int:
        """How many steps may be in flight. Not called by this version."""
        return 1

    def on_failure(self, callback: Callable[[str], None]) -> None:
        """`callback(reason)` is called once, from any thread, when a worker is lost. An
        executor without workers of its own has nothing to report. Called where the engine core
        has a process of its own."""

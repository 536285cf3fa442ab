"""`ToldWorker`: a small worker that does what a test tells it, and notes what it was asked.

It answers with a function of the tokens, so that a step that is lost, repeated or mixed up shows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hookspecs.contracts.worker import Worker, WorkerContext, command
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = [
    "Call",
    "Desk",
    "Gate",
    "ToldWorker",
    "WorkerFault",
    "kv_bytes_of",
    "layers_of",
    "next_token",
]

VOCAB_SIZE = 997
KV_BYTES = 1 << 20
HOLD_S = 3.0
"""A gate that nobody opens lets go after so many seconds, so that nothing hangs."""


class WorkerFault(Exception):
    """What workers are told to raise: no error that anybody else raises."""


def next_token(token_ids: Sequence[int]) -> int:
    """The token after `token_ids`."""
    return sum((place + 1) * (token + 3) for place, token in enumerate(token_ids)) % VOCAB_SIZE


class Call(NamedTuple):
    """One call of a worker's method."""

    rank: int
    method: str
    thread: int


class Gate:
    """Holds back calls of one method until it is opened; not those in the thread that made it,
    which would wait for itself."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._owner = threading.get_ident()
        self.reached = threading.Event()
        """A call has come."""
        self.in_own_thread = False
        """A call came in the thread that made the gate."""
        self.forced = False
        """A call went on though nobody had opened the gate."""

    def open(self) -> None:
        """Let all through."""
        self._opened.set()

    def enter(self) -> None:
        """What a worker does."""
        if threading.get_ident() == self._owner:
            self.in_own_thread = True
        self.reached.set()
        if not self.in_own_thread and not self._opened.wait(HOLD_S):
            self.forced = True


class Desk:
    """Where a test and the workers of one executor meet. Any thread."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int, int]] = []
        """(rank, local rank, world size) of each worker, in the order of construction."""
        self.workers: list[ToldWorker] = []
        self.calls: list[Call] = []
        self.faults: dict[tuple[str, int], Exception] = {}
        """(method, rank) to what it raises."""
        self.gates: dict[str, Gate] = {}
        """Method to what holds it back."""

    def hold(self, method: str) -> Gate:
        """Calls of a method wait from now on."""
        self.gates[method] = Gate()
        return self.gates[method]

    def release(self) -> None:
        """Nothing waits any more."""
        for gate in self.gates.values():
            gate.open()
        self.gates = {}

    def methods(self, rank: int) -> list[str]:
        """What was called on a worker, in order."""
        return [call.method for call in self.calls if call.rank == rank]

    def visit(self, rank: int, method: str) -> None:
        """A worker's method is called."""
        self.calls.append(Call(rank, method, threading.get_ident()))
        gate = self.gates.get(method)
        if gate is not None:
            gate.enter()
        fault = self.faults.get((method, rank))
        if fault is not None:
            raise fault


class ToldWorker(Worker):
    """Rank 0 has the most bytes for the cache. Every pipeline stage has a layer of its own."""

    def __init__(self, context: WorkerContext, desk: Desk) -> None:
        super().__init__(context)
        self._desk = desk
        self._tokens: dict[int, list[int]] = {}
        self._scheduled: SchedulerOutput | None = None
        self.kv_config: KVCacheConfig | None = None
        self._visit("construct")

    @property
    def device(self) -> str:
        return "told"

    def init_device(self) -> None:
        self._visit("init_device")

    def load_model(self) -> None:
        self._visit("load_model")

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        self._visit("kv_layer_specs")
        stages = self.context.config.executor.pipeline_parallel_size
        return layers_of(self.context.rank if stages > 1 else 0)

    def available_kv_bytes(self) -> int:
        self._visit("available_kv_bytes")
        return kv_bytes_of(self.context.rank)

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._visit("initialize_kv_cache")
        self.kv_config = kv_config

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._visit("execute_model")
        for slot in scheduled.released_slots:
            self._tokens.pop(slot, None)
        for request in scheduled.new_requests:
            self._tokens[request.slot] = [*request.token_ids]
        self._scheduled = scheduled

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        self._visit("sample_tokens")
        scheduled, self._scheduled = self._scheduled, None
        if scheduled is None:
            raise WorkerFault("sample_tokens was called without a forward to sample from")
        sampled = []
        for row in scheduled.rows():
            if row.samples:
                sampled.append(next_token(self._tokens[row.slot]))
                self._tokens[row.slot].append(sampled[-1])
        return ModelRunnerOutput(
            num_sampled=scheduled.samples.astype(np.int32),
            token_ids=np.array(sampled, dtype=np.int32),
        )

    def shutdown(self) -> None:
        self._visit("shutdown")

    @command
    def answer(self, value: int) -> list[int]:
        """The rank, and what was given."""
        self._visit("answer")
        return [self.context.rank, value]

    def unmarked(self) -> str:
        """Not a command, since it is not marked."""
        self._visit("unmarked")
        return "called"

    def _visit(self, method: str) -> None:
        self._desk.visit(self.context.rank, method)


def layers_of(stage: int) -> list[KVLayerSpec]:
    """What the layer of a pipeline stage keeps."""
    return [KVLayerSpec(layer=stage, num_kv_heads=1, head_size=8, dtype="float32", itemsize=4)]


def kv_bytes_of(rank: int) -> int:
    """What a rank has for the cache."""
    return KV_BYTES - 4096 * rank

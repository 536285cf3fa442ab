"""`ExecutorBench`: an executor driven by hand, with workers of the kit's own where it lets us."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from framework.conformance.subject import Subject
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.told_worker import Desk, ToldWorker, next_token
from framework.core.choice import resolve_model
from framework.plugins.manager import PluginManager
from hookspecs.contracts.executor import Executor, ExecutorCapability
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.worker import Worker, WorkerContext
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import ModelRunnerOutput, NewRequest, SchedulerOutput

__all__ = [
    "KV_CONFIG",
    "ExecutorBench",
    "expected_tokens",
    "makes_workers_here",
    "steps",
    "wait_for",
]

T = TypeVar("T")
PROMPTS = ([3, 1, 4], [1, 5, 9, 2, 6])
KV_CONFIG: Final = KVCacheConfig(
    num_blocks=16, block_size=4, groups=(KVCacheGroup(layers=(0, 1)),), bytes_per_block=4096
)
_MAX_MODEL_LEN = 64
_WAIT_S = 3.0
"""Seconds for a future that needs microseconds: enough to tell late from never."""
PARALLEL = {
    ExecutorCapability.TENSOR_PARALLEL: "tensor_parallel_size",
    ExecutorCapability.PIPELINE_PARALLEL: "pipeline_parallel_size",
}
"""Capability to the setting that asks for two workers."""
_Made = dict[str, tuple[PluginManager, ResolvedModel]]
_made: WeakKeyDictionary[Subject, _Made] = WeakKeyDictionary()
"""By the setting of `PARALLEL`, or ""; made once, since they cost more than an executor."""
_here: WeakKeyDictionary[Subject, bool] = WeakKeyDictionary()


class ExecutorBench:
    """An executor, and the desk of the workers that it makes. One thread.

    It gets two ranks if it declares that it can have them, so that their order shows.
    """

    def __init__(self, subject: Subject, capability: ExecutorCapability | None = None) -> None:
        """`capability`: the one by which it gets two ranks; None: any that it declares."""
        able = [each for each in PARALLEL if each in subject.capabilities]
        setting = PARALLEL[capability or able[0]] if able else ""
        self.world_size = 2 if setting else 1
        """Workers that it must make."""
        manager, model = _manager_of(subject, setting)
        self.desk = Desk()
        self._config = manager.config
        self._model = model
        self.executor: Executor = manager.create(
            "executor",
            subject.provider,
            model=model,
            max_model_len=_MAX_MODEL_LEN,
            create_worker=self._create_worker,
        )

    @property
    def workers_are_ours(self) -> bool:
        """Whether the executor made its workers here, with `create_worker`."""
        return bool(self.desk.made)

    def start(self) -> None:
        """Up to the first step."""
        self.executor.start()
        self.executor.kv_layer_specs()
        self.executor.available_kv_bytes()
        self.executor.initialize_kv_cache(KV_CONFIG)

    def run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """One step, as the kernel does it."""
        launched = self.executor.execute_model(scheduled)
        sampling = self.executor.sample_tokens(None)
        wait_for(launched, "the future of execute_model")
        return wait_for(sampling, "the future of sample_tokens")

    def close(self) -> None:
        """End it, whatever state it is in. What goes wrong is told by the tests of `shutdown`."""
        self.desk.release()
        self.desk.faults = {}
        with contextlib.suppress(Exception, AssertionError):
            within(self.executor.shutdown, "shutdown", _WAIT_S)

    def _create_worker(self, rank: int, local_rank: int, world_size: int) -> Worker:
        self.desk.made.append((rank, local_rank, world_size))
        context = WorkerContext(
            config=self._config,
            name="told",
            model=self._model,
            max_model_len=_MAX_MODEL_LEN,
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            create_loader=_unused,
            create_sampler=_unused,
            create_attention=_unused,
        )
        worker = ToldWorker(context, self.desk)
        self.desk.workers.append(worker)
        return worker


def makes_workers_here(subject: Subject) -> bool:
    """Whether the executor calls `create_worker` in this process. One that starts processes does
    not: there the workers are the configured ones, out of reach."""
    if subject not in _here:
        bench = ExecutorBench(subject)
        try:
            bench.executor.start()
            _here[subject] = bench.workers_are_ours
        except Exception:
            return True  # The test that wants to know starts it again, and says what is wrong.
        finally:
            bench.close()
    return _here[subject]


def steps(count: int) -> Iterator[SchedulerOutput]:
    """Steps of two requests: their prompts, then a token of each at a time."""
    slots = np.arange(len(PROMPTS), dtype=np.int32)
    known = np.array([len(prompt) for prompt in PROMPTS], dtype=np.int32)
    computed = np.zeros(len(PROMPTS), dtype=np.int32)
    for step in range(count):
        yield SchedulerOutput(
            step=step + 1,
            slots=slots.copy(),
            num_scheduled_tokens=known - computed,
            num_computed_tokens=computed.copy(),
            samples=np.ones(len(PROMPTS), dtype=np.bool_),
            total_num_scheduled_tokens=int((known - computed).sum()),
            new_requests=[] if step else [_new(slot) for slot in range(len(PROMPTS))],
        )
        computed = known
        known = known + np.int32(1)


def expected_tokens(count: int) -> list[list[int]]:
    """What told workers give in each of `steps(count)`."""
    texts = [[*prompt] for prompt in PROMPTS]
    result = []
    for _ in range(count):
        result.append([next_token(text) for text in texts])
        for text, token in zip(texts, result[-1], strict=True):
            text.append(token)
    return result


def wait_for(future: Future[T], what: str) -> T:
    """Its result; AssertionError when it never comes."""
    try:
        return future.result(_WAIT_S)
    except TimeoutError:
        if future.done():
            raise
        raise AssertionError(f"{what} was not complete after {_WAIT_S:.0f} s") from None


def _new(slot: int) -> NewRequest:
    blocks: Sequence[int] = range(1 + 4 * slot, 5 + 4 * slot)
    return NewRequest(
        request_id=f"r{slot}",
        slot=slot,
        token_ids=[*PROMPTS[slot]],
        num_prompt_tokens=len(PROMPTS[slot]),
        num_computed_tokens=0,
        block_ids=([*blocks],),
        sampling_params=SamplingParams(max_tokens=8, temperature=0),
    )


def _manager_of(subject: Subject, setting: str) -> tuple[PluginManager, ResolvedModel]:
    made = _made.setdefault(subject, {})
    if setting not in made:
        manager = subject.manager(executor={setting: 2} if setting else {})
        made[setting] = manager, resolve_model(manager, lambda what, fraction: None)
    return made[setting]


def _unused(*arguments: Any) -> Any:
    raise NotImplementedError("the worker of the conformance kit has no use for this")

"""Workers under test: which model they run, how they are made, requests for them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from framework.conformance.subject import Settings, Subject, merged
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.tiny_model import is_tiny_model, tiny_model_settings
from framework.conformance.worlds.worker_kernel import WorkerKernel
from framework.core.choice import choose_loader, resolve_model
from framework.core.kv_setup import make_kv_config
from framework.core.request import Request
from framework.launcher import Engine
from hookspecs.config import CacheConfig, EngineConfig
from hookspecs.contracts.logits import LogitsProcessor, SamplerContext
from hookspecs.contracts.model import ModelLoader
from hookspecs.contracts.worker import Worker, WorkerCapability
from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import NewRequest

__all__ = ["Ask", "WorkerBench", "WorkerWorld", "world_of"]

BLOCK_SIZE: Final = 4
MAX_NUM_SEQS: Final = 8
_MODEL_LEN: Final = 96
"""Tokens of prompt and output, unless the model takes fewer."""
_worlds: WeakKeyDictionary[Subject, WorkerWorld] = WeakKeyDictionary()
MakeProcessors = Callable[[NewRequest, int], Sequence[LogitsProcessor]]


class Ask(NamedTuple):
    """A request."""

    prompt: list[int]
    params: SamplingParams


class WorkerWorld:
    """A worker, with the configuration and the model that it is tested with."""

    def __init__(self, subject: Subject, settings: Settings) -> None:
        """`settings` on top of those of the subject."""
        given = merged(settings, subject.given)
        self.subject = Subject(subject.plugin, "worker", subject.provider, given)
        self._manager = self.subject.manager()
        self._config = self._manager.config
        self._make = PartMaker(self.subject)
        self.model = resolve_model(self._manager, lambda what, fraction: None)
        self.vocab_size = self.model.info.vocab_size
        self.is_tiny_model = is_tiny_model(self.model.path)
        """Whether the model is the one of the kit, whose weights are known."""
        self.max_model_len = min(self.model.info.max_model_len, _MODEL_LEN)
        self._alone: dict[tuple[int, bool], list[list[int]]] = {}

    def launch(self, *, beside: Sequence[object] = (), **sections: Any) -> Engine:
        """See `Subject.launch`."""
        return self.subject.launch(beside=beside, **sections)

    def create(
        self,
        config: EngineConfig | None = None,
        make_processors: MakeProcessors | None = None,
        **others: Any,
    ) -> Worker:
        """A new worker, on which nothing was called. `others`: further fields of its context."""
        config = config or self._config

        def create_sampler(context: SamplerContext) -> Any:
            return self._named(
                "sampler",
                config.executor.sampler,
                vocab_size=context.vocab_size,
                max_num_seqs=context.max_num_seqs,
                device=context.device,
            )

        fields: dict[str, Any] = {
            "model": self.model,
            "max_model_len": self.max_model_len,
            "create_loader": self.create_loader,
            "create_sampler": create_sampler,
            "create_attention": lambda name, device: self._named(
                "attention_backend", name, device=device, block_size=BLOCK_SIZE
            ),
        }
        if make_processors is not None:
            fields["create_logits_processors"] = make_processors
        fields |= others
        worker: Worker = self._make.named("worker", self.subject.provider, config, **fields)
        return worker

    def create_loader(self, *, dtype: str = "", device: str = "") -> ModelLoader:
        """See WorkerContext."""
        name = choose_loader(
            self._manager,
            self.model,
            dtype=dtype or self.model.info.dtype,
            device=device,
            report=lambda line: None,
        )
        loader: ModelLoader = self._named("model_loader", name)
        return loader

    def asks(self, seed: int, *, seeded: bool = False, count: int = 6) -> list[Ask]:
        """Requests, of which some share a beginning: greedy ones, or with seeds of their own."""
        rng = random.Random(seed)
        longest = min(18, self.max_model_len // 2)

        def some(length: int) -> list[int]:
            return [rng.randrange(self.vocab_size) for _ in range(length)]

        shared = some(9)
        asks = []
        for number in range(count):
            own = some(rng.randint(1, longest))
            prompt = own if number % 2 else [*shared, *own][:longest]
            fields: dict[str, Any] = {"temperature": 0.0}
            if seeded:
                fields = {"temperature": 1.0, "seed": 100 * seed + number}
            asks.append(Ask(prompt, SamplingParams(max_tokens=rng.randint(3, 8), **fields)))
        return asks

    def alone(self, seed: int, *, seeded: bool = False) -> list[list[int]]:
        """What each of `asks(seed)` gets when nothing else runs, in one piece."""
        key = seed, seeded
        if key not in self._alone:
            bench = WorkerBench(self)
            try:
                asks = self.asks(seed, seeded=seeded)
                self._alone[key] = [tokens for ask in asks for tokens in bench.run([ask])]
            finally:
                bench.close()
        return self._alone[key]

    def windowed(self) -> WorkerWorld | None:
        """A world whose model has sliding windows: this one, or that of the tiny model with
        them; None when the model has none."""
        if self.is_tiny_model:
            return WorkerWorld(self.subject, tiny_model_settings(sliding=True))
        worker = self.create()
        try:
            worker.init_device()
            worker.load_model()
            windows = [spec.sliding_window for spec in worker.kv_layer_specs()]
        finally:
            worker.shutdown()
        return self if any(windows) else None

    def sized(self, **sections: Any) -> EngineConfig:
        """The configuration with other values."""
        return self.subject.config(**sections)

    def _named(self, kind: str, name: str, **fields: Any) -> Any:
        return self._make.named(kind, name, self._config, **fields)


class WorkerBench:
    """A worker that is ready for steps, and a kernel that makes them. One thread."""

    def __init__(
        self,
        world: WorkerWorld,
        *,
        num_blocks: int = 96,
        windows: bool | None = None,
        make_processors: MakeProcessors | None = None,
        **sizes: Any,
    ) -> None:
        """`windows`: whether blocks that left a sliding window are given up; as declared if not
        given. `sizes` as a mini kernel takes them."""
        if windows is None:
            windows = WorkerCapability.SLIDING_WINDOW in world.subject.capabilities
        config = world.sized(scheduler={"max_num_seqs": MAX_NUM_SEQS})
        self.worker = world.create(config, make_processors)
        try:
            self.worker.init_device()
            self.worker.load_model()
            self._kv_config = make_kv_config(
                self.worker.kv_layer_specs(),
                CacheConfig(block_size=BLOCK_SIZE, num_blocks=num_blocks),
                available_bytes=self.worker.available_kv_bytes,
                windows=windows,
                max_useful_tokens=None,
            )
            self.worker.initialize_kv_cache(self._kv_config)
        except BaseException:
            self.close()
            raise
        sizes = {"max_num_batched_tokens": 512, "enable_prefix_caching": False, **sizes}
        self.kernel = WorkerKernel(
            self.worker,
            world.model.info,
            world._make,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_num_seqs=sizes.pop("max_num_seqs", MAX_NUM_SEQS),
            groups=self._kv_config.groups,
            max_model_len=world.max_model_len,
            **sizes,
        )

    def add(self, ask: Ask, **fields: Any) -> Request:
        """Queue a request."""
        return self.kernel.add(ask.prompt, params=ask.params, **fields)

    def run(self, asks: Sequence[Ask], *, preempt_every: int = 0) -> list[list[int]]:
        """The tokens of each of them, all queued at once. With `preempt_every` all that run lose
        slots and blocks after so many steps, and start again."""
        requests = [self.add(ask) for ask in asks]
        self.finish(preempt_every=preempt_every)
        return [request.output_token_ids for request in requests]

    def finish(self, *, preempt_every: int = 0) -> None:
        """Step until all have ended."""
        for step in range(2000):
            if not self.kernel.requests:
                return
            self.kernel.step()
            if preempt_every and (step + 1) % preempt_every == 0:
                self.kernel.scheduler.preempt_all()
        raise AssertionError(f"requests have not ended: {sorted(self.kernel.requests)}")

    def close(self) -> None:
        """Shut the worker down. What goes wrong then is told by the test of `shutdown`."""
        with contextlib.suppress(Exception):
            self.worker.shutdown()


def world_of(subject: Subject) -> WorkerWorld:
    """The world of a subject, made once. Its model is the one that the settings name
    (`model.name`); without one the first that the worker loads: `scripted`, which has no files, or
    the tiny model. UnsupportedFeatureError if it loads neither."""
    if subject not in _worlds:
        _worlds[subject] = _first_world(subject)
    return _worlds[subject]


def _first_world(subject: Subject) -> WorkerWorld:
    if "name" in subject.given.get("model", {}):
        return WorkerWorld(subject, {})
    refusals = []
    for settings in ({}, tiny_model_settings()):
        world = WorkerWorld(subject, settings)
        worker = world.create()
        try:
            worker.init_device()
            worker.load_model()
            return world
        except Exception as error:
            refusals.append(f"{world.model.info.architecture}: {error}")
        finally:
            with contextlib.suppress(Exception):
                worker.shutdown()
    raise UnsupportedFeatureError(
        f"the worker {subject.provider!r} loads neither of the kit's models ("
        f"{'; '.join(refusals)}). Name one that it runs in the settings: model.name in conform.toml"
    )

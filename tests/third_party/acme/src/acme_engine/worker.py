"""The worker: the next token is the last one plus one, told to the sampler as logits."""

import numpy as np
import torch

from hookspecs.contracts.logits import SamplerContext
from hookspecs.contracts.worker import Worker, WorkerContext
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput


class EchoWorker(Worker):
    """Keeps the last token of each slot. Its one layer of KV cache is never written."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._vocab_size = context.model.info.vocab_size
        self._last: dict[int, int] = {}
        self._step: SchedulerOutput | None = None

    @property
    def device(self) -> str:
        """The processor."""
        return "cpu"

    def init_device(self) -> None:
        """Nothing to prepare."""

    def load_model(self) -> None:
        """No weights, but a sampler."""
        config = self.context.config
        self._sampler = self.context.create_sampler(
            SamplerContext(
                config=config,
                vocab_size=self._vocab_size,
                max_num_seqs=config.scheduler.max_num_seqs,
                device=self.device,
            )
        )

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """One small layer, so that the cache has blocks to count."""
        return [KVLayerSpec(layer=0, num_kv_heads=1, head_size=1, dtype="float32", itemsize=4)]

    def available_kv_bytes(self) -> int:
        """What was asked for, or a mebibyte."""
        return self.context.config.cache.kv_bytes or 1 << 20

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Nothing to allocate."""

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        """Take note of who left and who came."""
        for slot in scheduled.released_slots:
            del self._last[slot]
            self._sampler.remove(slot)
        for request in scheduled.new_requests:
            self._last[request.slot] = request.token_ids[-1]
            self._sampler.add(request)
        self._step = scheduled

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """One-hot logits, through the sampler, for the rows that sample."""
        step, self._step = self._step, None
        assert step is not None, "execute_model comes first"
        rows = np.flatnonzero(step.samples).astype(np.int32)
        slots = step.slots[rows]
        following = [(self._last[int(slot)] + 1) % self._vocab_size for slot in slots]
        logits = torch.full((len(rows), self._vocab_size), -100.0)
        logits[torch.arange(len(rows)), following] = 100.0
        batch = self._sampler.sample(logits, slots)
        failures = {int(slots[row]): failure for row, failure in batch.failures.items()}
        sampled = step.samples.astype(np.int32)
        kept = np.array([row not in batch.failures for row in range(len(rows))], np.bool_)
        sampled[rows[~kept]] = 0
        for slot, token in zip(slots[kept], batch.token_ids[kept], strict=True):
            self._last[int(slot)] = int(token)
        return ModelRunnerOutput(
            num_sampled=sampled,
            token_ids=batch.token_ids[kept],
            logprobs=batch.logprobs,
            logprob_rows=None if batch.logprob_rows is None else rows[batch.logprob_rows],
            failures=failures,
        )

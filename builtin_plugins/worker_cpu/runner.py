"""The model runner of the worker `cpu`: a step's decision to tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from builtin_plugins.worker_cpu.admission import refusal
from builtin_plugins.worker_cpu.batch import InputBatch
from builtin_plugins.worker_cpu.inputs import StepInputs, attention_metadata, flatten
from builtin_plugins.worker_cpu.kv_buffers import LayerCache
from builtin_plugins.worker_cpu.pooling import HiddenPiece, Pooler
from builtin_plugins.worker_cpu.prompt_logprobs import PromptPiece, logprobs_of, prompt_pieces
from framework.sdk.logits_processors import LogitsProcessors
from hookspecs.contracts.attention import AttentionBackend, AttentionMetadata
from hookspecs.contracts.logits import Sampler
from hookspecs.contracts.model import LoadedModel, ModelInfo
from hookspecs.contracts.worker import ModelRunner
from hookspecs.errors import RequestError, UnsupportedFeatureError
from hookspecs.types.columns import Float32Column
from hookspecs.types.step import (
    GrammarOutput,
    ModelRunnerOutput,
    NewRequest,
    RowFailure,
    SchedulerOutput,
)

__all__ = ["CpuModelRunner"]


@dataclass(slots=True)
class _Forward:
    """A forward that is not sampled yet."""

    scheduled: SchedulerOutput
    rows: npt.NDArray[np.int64]
    """Rows that get a token; the logits begin with theirs."""
    pieces: list[PromptPiece]
    logits: torch.Tensor
    """float32 [rows + prompt positions, vocab]"""
    pooled: dict[int, Float32Column]
    """Slot to the vector of a pooling request whose prompt ended."""
    failures: dict[int, RowFailure]
    """Of pooling requests, by slot."""


class CpuModelRunner(ModelRunner):
    """Worker process, one thread: `execute_model` and `sample_tokens` in turn."""

    def __init__(
        self,
        model: LoadedModel,
        info: ModelInfo,
        backend: AttentionBackend,
        sampler: Sampler,
        processors: LogitsProcessors,
        caches: dict[int, LayerCache],
        batch: InputBatch,
    ) -> None:
        self._info = info
        self._backend = backend
        self._sampler = sampler
        self._processors = processors
        self._batch = batch
        self._metadata: list[AttentionMetadata] = []
        """Of the forward that runs, one a KV cache group."""
        self._pooler = Pooler(info.hidden_size)
        self._failures: dict[int, RowFailure] = {}
        """Slot to why its request can not run; until the slot is released."""
        self._forward: _Forward | None = None
        self.bind_model(model)
        self.bind_caches(caches)

    def bind_model(self, model: LoadedModel) -> None:
        """Compute with this one from now on."""
        self._model = model
        model.set_attention(self._attend)

    def bind_caches(self, caches: dict[int, LayerCache]) -> None:
        """Keep the keys and values of each layer there from now on, or nowhere. Those kept before
        are lost: no request may go on without starting again."""
        self._caches = caches
        self._metadata = []

    def drop_model(self) -> None:
        """Refer to no weights; no step until `bind_model`."""
        del self._model

    @torch.inference_mode()
    def execute_model(self, scheduled: SchedulerOutput) -> None:
        if scheduled.draft_indptr is not None:
            raise UnsupportedFeatureError("the worker `cpu` does not verify draft tokens")
        self._update_batch(scheduled)
        inputs = flatten(scheduled, self._batch)
        rows = self._sampling_rows(scheduled)
        pieces = prompt_pieces(inputs, self._batch)
        wanted = inputs.query_start[1:][rows] - 1
        if pieces:
            wanted = np.concatenate(
                [wanted, *(np.arange(p.token, p.token + p.length) for p in pieces)]
            )
        self._metadata = attention_metadata(inputs, self._batch)
        hidden_pieces = self._pooler.pieces(inputs, scheduled.samples)
        logits, pooled, failures = self._compute(inputs, wanted, hidden_pieces)
        self._forward = _Forward(scheduled, rows, pieces, logits, pooled, failures)

    @torch.inference_mode()
    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        if grammar is not None:
            raise UnsupportedFeatureError("the worker `cpu` does not apply grammar bitmasks")
        forward, self._forward = self._forward, None
        assert forward is not None, "sample_tokens comes after execute_model"
        scheduled, rows = forward.scheduled, forward.rows
        # Prompt first: the sampler may change its logits in place, and these are not among them.
        prompt_logprobs = logprobs_of(
            forward.pieces, forward.logits[len(rows) :], self._batch, self._sampler
        )
        num_sampled = np.zeros(scheduled.num_rows, dtype=np.int32)
        failures = forward.failures
        if self._failures:
            failures = {
                slot: self._failures[slot]
                for slot in scheduled.slots.tolist()
                if slot in self._failures
            } | failures
        output = ModelRunnerOutput(
            num_sampled=num_sampled,
            token_ids=np.zeros(0, dtype=np.int32),
            prompt_logprobs=prompt_logprobs,
            pooled=forward.pooled,
            failures=failures,
        )
        if not len(rows):
            return output
        slots = scheduled.slots[rows]
        sampled = self._processors.sample(self._sampler, forward.logits[: len(rows)], slots)
        token_ids, good = sampled.token_ids, rows
        if sampled.failures:
            kept = np.ones(len(rows), dtype=np.bool_)
            for index, failure in sampled.failures.items():
                kept[index] = False
                failures[int(slots[index])] = failure
            token_ids, good, slots = token_ids[kept], rows[kept], slots[kept]
        output.token_ids = token_ids
        num_sampled[good] = 1
        self._batch.append_tokens(slots, token_ids)
        if sampled.logprobs is not None and sampled.logprob_rows is not None:
            output.logprobs = sampled.logprobs
            output.logprob_rows = rows[sampled.logprob_rows].astype(np.int32)
        return output

    def _sampling_rows(self, scheduled: SchedulerOutput) -> npt.NDArray[np.int64]:
        """Rows that get a token."""
        samples = scheduled.samples
        if self._failures or self._pooler.slots:
            samples = samples & ~np.isin(scheduled.slots, [*self._failures, *self._pooler.slots])
        return np.flatnonzero(samples)

    def _compute(
        self, inputs: StepInputs, logit_rows: npt.NDArray[np.int64], pieces: list[HiddenPiece]
    ) -> tuple[torch.Tensor, dict[int, Float32Column], dict[int, RowFailure]]:
        """Logits of the flattened tokens at `logit_rows`; vectors and failures of the pooling
        requests to which `pieces` belong."""
        batch = (
            torch.from_numpy(inputs.token_ids),
            torch.from_numpy(inputs.positions),
            torch.from_numpy(logit_rows),
        )
        embeds = self._embeds(inputs)
        if not pieces:
            return self._model.forward(*batch, embeds), {}, {}
        hidden_rows = np.concatenate(
            [np.arange(piece.token, piece.token + piece.length) for piece in pieces]
        )
        try:
            logits, hidden = self._model.forward_with_hidden(
                *batch, torch.from_numpy(hidden_rows), embeds
            )
        except UnsupportedFeatureError as error:
            failure = RowFailure(str(error), poisoned=False)
            logits = self._model.forward(*batch, embeds)
            return logits, {}, {piece.slot: failure for piece in pieces}
        return logits, *self._pooler.pool(pieces, hidden)

    def _update_batch(self, scheduled: SchedulerOutput) -> None:
        for slot in scheduled.released_slots:
            self._batch.remove(slot)
            self._processors.remove(slot)
            failed = self._failures.pop(slot, None) is not None
            if not failed and not self._pooler.remove(slot):
                self._sampler.remove(slot)
        for request in scheduled.new_requests:
            self._add(request)
        for group, blocks in enumerate(scheduled.new_blocks):
            self._batch.append_blocks(group, blocks)

    def _add(self, request: NewRequest) -> None:
        """A request that can not run still takes part in the forward, with harmless tokens, since
        the step counts them; it never gets a token."""
        # Not poisoned: nothing is computed for it that others could take for its tokens.
        failure: RowFailure | None = None
        reason = refusal(request, self._info)
        if reason is not None:
            failure = RowFailure(reason, poisoned=False)
        elif request.pooling is not None:
            self._pooler.add(request, request.pooling)
        else:
            failure = self._processors.add(request) or self._add_to_sampler(request)
        if failure is not None:
            self._failures[request.slot] = failure
        self._batch.add(request, runs=failure is None)

    def _add_to_sampler(self, request: NewRequest) -> RowFailure | None:
        try:
            self._sampler.add(request)
        except RequestError as error:
            return RowFailure(str(error), poisoned=False)
        return None

    def _embeds(self, inputs: StepInputs) -> torch.Tensor | None:
        """[tokens, hidden size] when a row has prompt embeddings, else None."""
        if not self._batch.prompt_embeds:
            return None
        embeds: torch.Tensor | None = None
        for row, slot in enumerate(inputs.slots.tolist()):
            given = self._batch.prompt_embeds.get(slot)
            if given is None:
                continue
            token = int(inputs.query_start[row])
            begin, end = int(inputs.positions[token]), int(inputs.seq_lens[row])
            part = given[begin:end]
            if not len(part):
                continue
            if embeds is None:
                embeds = self._model.embed(torch.from_numpy(inputs.token_ids)).clone()
            embeds[token : token + len(part)] = part.to(embeds.dtype)
        return embeds

    def _attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        soft_cap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        cache = self._caches[layer]
        metadata = self._metadata[cache.group]
        self._backend.write(cache.buffer, key, value, metadata)
        return self._backend.forward(
            query,
            cache.buffer,
            metadata,
            scale=scale,
            sliding_window=sliding_window,
            soft_cap=soft_cap,
            sinks=sinks,
        )

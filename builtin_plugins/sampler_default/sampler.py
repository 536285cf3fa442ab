"""The sampler: the order in which a row's parameters are applied, and what is kept of a slot."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from builtin_plugins.sampler_default.compiled_draws import best_draw
from builtin_plugins.sampler_default.counter_rng import request_seed, uniforms
from builtin_plugins.sampler_default.draws import DrawColumns
from builtin_plugins.sampler_default.logprobs import logprob_columns
from builtin_plugins.sampler_default.masks import TokenRules, apply_rules, build_rules
from builtin_plugins.sampler_default.penalties import PenaltyPool
from builtin_plugins.sampler_default.ranking import argmax
from builtin_plugins.sampler_default.state import (
    FILTERED,
    LOGPROBS,
    PENALIZED,
    RANDOM,
    RULED,
    SlotColumns,
    penalized,
)
from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.types.columns import Int32Column, Int64Column
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure

__all__ = ["DefaultSampler"]

_PLUGIN = "sampler-default"
_NO_ROWS: Int64Column = np.zeros(0, dtype=np.int64)


class DefaultSampler(Sampler):
    """All of SamplingParams but stop conditions. Worker process, one thread.

    Order: allowed_token_ids, bad words, min_tokens, logit_bias, penalties, temperature, min_p,
    top_k, top_p, draw. A greedy row takes the most likely token after the penalties; of equals
    the lowest id. The draw of output token number i is a function of (seed, i): see
    `counter_rng`, also for requests without a seed. Logprobs are of the raw logits.
    """

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._device = torch.device(context.device)
        self._draw = best_draw(self._device)
        self._slots = SlotColumns(context.max_num_seqs, context.vocab_size)
        self._rules: dict[int, TokenRules] = {}
        self._penalties = PenaltyPool(context.vocab_size, context.max_num_seqs, self._device)

    @torch.inference_mode()
    def add(self, request: NewRequest) -> None:
        """Ids outside of the vocabulary, in parameters or prompt, have no effect."""
        slot, params = request.slot, request.sampling_params
        self.remove(slot)
        prompt = request.token_ids[: request.num_prompt_tokens]
        outputs = request.token_ids[request.num_prompt_tokens :]
        rules = build_rules(request, self.context.vocab_size)
        if rules is not None:
            self._rules[slot] = rules
        if penalized(params):
            # With prompt embeddings the prompt's ids are only fillers.
            known = prompt if request.prompt_embeds is None else []
            self._penalties.add(slot, params, known, outputs)
        seed = request_seed(params.seed, self.context.config.model.seed, request.request_id)
        self._slots.set(slot, params, seed=seed, position=len(outputs), ruled=rules is not None)

    @torch.inference_mode()
    def remove(self, slot: int) -> None:
        """No effect on a slot that is free."""
        self._rules.pop(slot, None)
        self._penalties.remove(slot)
        self._slots.clear(slot)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        """A row with NaN or +inf, or with nothing but -inf, fails as poisoned; a row for which
        the masks leave nothing fails alone, with its parameters named. A failed row does not
        count as a token."""
        tokens, best = argmax(logits)
        good = np.isfinite(best)
        failures: dict[int, RowFailure] = {}
        features = self._slots.features[slots]
        if not good.all():
            failures = {row: _raw_failure(best[row]) for row in np.flatnonzero(~good).tolist()}
            features[~good] = 0
        present = int(np.bitwise_or.reduce(features))
        if not present:
            self._slots.positions[slots[good]] += 1
            return SampledBatch(token_ids=tokens.astype(np.int32), failures=failures)

        reported = _NO_ROWS
        if present & LOGPROBS:
            reported = np.flatnonzero(features & LOGPROBS)
            raw = self._rows(logits, reported)  # a copy, since masks change logits in place
        if present & (RULED | PENALIZED):
            adjusted = np.flatnonzero(features & (RULED | PENALIZED))
            self._adjust(logits, slots, features, adjusted)
            tokens[adjusted], best = argmax(self._rows(logits, adjusted))
            for row in adjusted[np.isneginf(best)].tolist():
                good[row] = False
                failures[row] = self._nothing_left(int(slots[row]))
        if present & RANDOM:
            drawn = np.flatnonzero(good & (features & RANDOM > 0))
            columns = self._draw_columns(slots[drawn], features[drawn])
            tokens[drawn] = self._draw(logits, drawn, columns)
        self._count(slots[good], tokens[good], features[good])

        kept = good[reported]
        rows = reported[kept]
        batch = SampledBatch(token_ids=tokens.astype(np.int32), failures=failures)
        if len(rows):
            targets = torch.as_tensor(tokens[rows], device=self._device)
            wanted = self._slots.num_logprobs[slots[rows]]
            kept_raw = self._rows(raw, np.flatnonzero(kept))
            batch.logprobs = logprob_columns(kept_raw, targets, wanted)
            batch.logprob_rows = rows.astype(np.int32)
        return batch

    @torch.inference_mode()
    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        """Values are finite: see `logprobs.LOWEST`."""
        return logprob_columns(logits, targets, np.full(len(targets), num_logprobs))

    def _rows(self, logits: torch.Tensor, rows: Int64Column) -> torch.Tensor:
        return logits[torch.as_tensor(rows, device=self._device)]

    def _adjust(
        self,
        logits: torch.Tensor,
        slots: Int32Column,
        features: NDArray[np.uint8],
        adjusted: Int64Column,
    ) -> None:
        """Masks, bias and penalties of the adjusted rows, in place."""
        ruled = adjusted[features[adjusted] & RULED > 0]
        if len(ruled):
            rules = [self._rules[slot] for slot in slots[ruled].tolist()]
            apply_rules(logits, ruled, rules, self._slots.positions[slots[ruled]])
        penalized_rows = adjusted[features[adjusted] & PENALIZED > 0]
        if len(penalized_rows):
            self._penalties.apply(logits, penalized_rows, slots[penalized_rows])

    def _draw_columns(self, slots: Int32Column, features: NDArray[np.uint8]) -> DrawColumns:
        columns = self._slots
        return DrawColumns(
            temperature=columns.temperature[slots],
            min_p=columns.min_p[slots],
            top_k=columns.top_k[slots],
            top_p=columns.top_p[slots],
            uniforms=uniforms(columns.seeds[slots], columns.positions[slots]),
            filtered=features & FILTERED > 0,
        )

    def _count(self, slots: Int32Column, tokens: Int64Column, features: NDArray[np.uint8]) -> None:
        """Each token is now its slot's last output token."""
        self._slots.positions[slots] += 1
        counted = features & PENALIZED > 0
        if counted.any():
            self._penalties.count(slots[counted], tokens[counted])
        for row in np.flatnonzero(features & RULED).tolist():
            slot = int(slots[row])
            rules = self._rules[slot]
            rules.accept(int(tokens[row]))
            if rules.spent(int(self._slots.positions[slot])):
                del self._rules[slot]
                self._slots.features[slot] &= ~np.uint8(RULED)

    def _nothing_left(self, slot: int) -> RowFailure:
        names = self._rules[slot].names(int(self._slots.positions[slot]))
        return RowFailure(
            f"no token is left to choose: {names} of the request exclude every token that the "
            "model gives a probability. Allow at least one.",
            plugin=_PLUGIN,
            poisoned=False,
        )


def _raw_failure(best: np.float32) -> RowFailure:
    what = "NaN" if np.isnan(best) else "+inf" if best > 0 else "nothing but -inf"
    return RowFailure(
        f"the model's logits for this token hold {what}: the output would be meaningless. "
        "Check the weights, the dtype and the attention backend.",
        plugin=_PLUGIN,
    )

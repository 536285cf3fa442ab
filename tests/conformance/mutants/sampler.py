"""Broken samplers."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from framework.conformance.worlds.sampling import adjusted
from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.errors import RequestError
from hookspecs.types.columns import Int32Column
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]

Logits = NDArray[np.float64]


class RowByRow(Sampler):
    """Right, and simple: each row by itself, in float64. What follows breaks a piece."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.requests: dict[int, NewRequest] = {}

    def add(self, request: NewRequest) -> None:
        own = list(request.token_ids)
        self.requests[request.slot] = msgspec.structs.replace(request, token_ids=own)

    def remove(self, slot: int) -> None:
        del self.requests[slot]

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        tokens, failures = np.zeros(len(slots), dtype=np.int32), {}
        pieces, reported = [], []
        for row, slot in enumerate(slots.tolist()):
            request, raw = self.requests[slot], logits[row].double().numpy()
            if np.isnan(raw).any():
                failures[row] = RowFailure("NaN")
                continue
            x = self.adjust(raw, request)
            if x.max() == -np.inf:
                failures[row] = self.nothing_left()
                continue
            tokens[row] = self.choose(x, request, row)
            request.token_ids.append(int(tokens[row]))
            wanted = request.sampling_params.logprobs
            if wanted is not None:
                reported.append(row)
                pieces.append(self.entries(self.reported(raw, request), int(tokens[row]), wanted))
        batch = SampledBatch(token_ids=tokens, failures=failures)
        if reported:
            batch.logprobs = _columns(pieces)
            batch.logprob_rows = np.array(reported, dtype=np.int32)
        return batch

    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        rows = zip(logits.double().numpy(), targets.tolist(), strict=True)
        return _columns([self.entries(row, target, num_logprobs) for row, target in rows])

    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        return adjusted(raw, request)

    def nothing_left(self) -> RowFailure:
        return RowFailure("nothing is allowed", poisoned=False)

    def choose(self, x: Logits, request: NewRequest, row: int) -> int:
        params = request.sampling_params
        if params.greedy:
            return int(x.argmax())
        weights = self.weights(x, params)
        position = len(request.token_ids) - request.num_prompt_tokens
        sums = np.cumsum(weights)
        return int(np.searchsorted(sums, self.uniform(request, position, row) * sums[-1], "right"))

    def weights(self, x: Logits, params: SamplingParams) -> Logits:
        weights = np.exp((x - x.max()) / params.temperature)
        order = np.argsort(-x, kind="stable")
        order = order[weights[order] >= params.min_p]
        if params.top_k > 0:
            order = order[: params.top_k]
        order = order[: self.nucleus(np.cumsum(weights[order]), params.top_p)]
        kept = np.zeros(len(x))
        kept[order] = weights[order]
        return kept

    def nucleus(self, sums: Logits, top_p: float) -> int:
        return int((sums < top_p * sums[-1]).sum()) + 1

    def uniform(self, request: NewRequest, position: int, row: int) -> float:
        seed = self.seed(request)
        if seed is None:
            return self.draw(f"{self.context.config.model.seed}:{request.request_id}:{position}")
        return self.draw(f"{seed}:{position}")

    def seed(self, request: NewRequest) -> int | None:
        return request.sampling_params.seed

    def draw(self, key: str) -> float:
        return random.Random(key).random()

    def reported(self, raw: Logits, request: NewRequest) -> Logits:
        return raw

    def entries(self, row: Logits, target: int, count: int) -> list[tuple[int, float, int]]:
        shifted = row - row.max()
        logprobs = np.maximum(shifted - np.log(np.exp(shifted).sum()), -9999.0)
        order = np.argsort(-row, kind="stable")[: len(row) if count < 0 else count].tolist()
        return [(t, float(logprobs[t]), int((row > row[t]).sum()) + 1) for t in [target, *order]]


def _columns(pieces: list[list[tuple[int, float, int]]]) -> LogprobColumns:
    entries = list(itertools.chain.from_iterable(pieces))
    tokens, logprobs, ranks = zip(*entries, strict=True)
    return LogprobColumns(
        np.array([len(piece) for piece in pieces], dtype=np.int32),
        np.array(tokens, dtype=np.int32),
        np.array(logprobs, dtype=np.float32),
        np.array(ranks, dtype=np.int32),
    )


def _changed(request: NewRequest, **params: Any) -> NewRequest:
    changed = msgspec.structs.replace(request.sampling_params, **params)
    return msgspec.structs.replace(request, sampling_params=changed)


class LooksAtSome(RowByRow):
    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        return super().adjust(np.where(np.arange(len(raw)) < 2048, raw, -np.inf), request)


class LastOfEquals(RowByRow):
    def choose(self, x: Logits, request: NewRequest, row: int) -> int:
        if request.sampling_params.greedy:
            return len(x) - 1 - int(x[::-1].argmax())
        return super().choose(x, request, row)


class AlwaysWarm(RowByRow):
    def weights(self, x: Logits, params: SamplingParams) -> Logits:
        warm = 1.0 if params.temperature > 1 else params.temperature
        return super().weights(x, msgspec.structs.replace(params, temperature=warm))


class TopPWithoutTheLast(RowByRow):
    """top_p is off by one: the token that reaches it is left out."""

    def nucleus(self, sums: Logits, top_p: float) -> int:
        return max(1, super().nucleus(sums, top_p) - (top_p < 1))


class TopPOfAll(RowByRow):
    """top_p comes first."""

    def weights(self, x: Logits, params: SamplingParams) -> Logits:
        first = super().weights(x, msgspec.structs.replace(params, top_k=0, min_p=0.0))
        then = super().weights(x, msgspec.structs.replace(params, top_p=1.0))
        return np.minimum(first, then)


class SortsTheBest(RowByRow):
    """What is ranked behind 256 tokens can not be drawn."""

    def weights(self, x: Logits, params: SamplingParams) -> Logits:
        narrow = 256 if params.top_k <= 0 else min(params.top_k, 256)
        return super().weights(x, msgspec.structs.replace(params, top_k=narrow))


class MasksSoftly(RowByRow):
    """A bias lifts what is masked."""

    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        free = adjusted(raw, _changed(request, logit_bias=None))
        for token, bias in (request.sampling_params.logit_bias or {}).items():
            free[token] = max(free[token], -50.0) + bias
        return free


class CountsThePrompt(RowByRow):
    """min_tokens counts the tokens of the prompt too."""

    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        left = max(0, request.sampling_params.min_tokens - request.num_prompt_tokens)
        return super().adjust(raw, _changed(request, min_tokens=left))


class ForgetsCounts(RowByRow):
    """Frequency penalties count a token once."""

    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        prompt = request.token_ids[: request.num_prompt_tokens]
        once = list(dict.fromkeys(request.token_ids[request.num_prompt_tokens :]))
        return super().adjust(raw, msgspec.structs.replace(request, token_ids=[*prompt, *once]))


class BiasComesLast(RowByRow):
    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        x = super().adjust(raw, _changed(request, logit_bias=None))
        for token, bias in (request.sampling_params.logit_bias or {}).items():
            x[token] += bias
        return x


class PenaltiesFreeTokens(RowByRow):
    """With a presence penalty allowed_token_ids are ignored."""

    def adjust(self, raw: Logits, request: NewRequest) -> Logits:
        if request.sampling_params.presence_penalty:
            request = _changed(request, allowed_token_ids=None)
        return super().adjust(raw, request)


class GlobalGenerator(RowByRow):
    def draw(self, key: str) -> float:
        return float(torch.rand(()))


class SeedsOf32Bits(RowByRow):
    def seed(self, request: NewRequest) -> int | None:
        seed = super().seed(request)
        return None if seed is None else seed & 0xFFFFFFFF


class OneSeedForAll(RowByRow):
    def seed(self, request: NewRequest) -> int | None:
        return super().seed(request) or self.context.config.model.seed


class DrawsByRow(RowByRow):
    """A draw depends on the row of the batch."""

    def draw(self, key: str) -> float:
        return super().draw(f"{key}:{self.row}")

    def uniform(self, request: NewRequest, position: int, row: int) -> float:
        self.row = row
        return super().uniform(request, position, row)


class StartsAgain(RowByRow):
    """Stale positions after preemption: a resumed request draws from the beginning."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.begun: dict[int, int] = {}

    def add(self, request: NewRequest) -> None:
        super().add(request)
        self.begun[request.slot] = len(request.token_ids) - request.num_prompt_tokens

    def uniform(self, request: NewRequest, position: int, row: int) -> float:
        return super().uniform(request, position - self.begun[request.slot], row)


class CountsSteps(RowByRow):
    """The position is the number of steps since the request was added."""

    steps = 0

    def add(self, request: NewRequest) -> None:
        super().add(request)
        self.steps = 0

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        self.steps += 1
        return super().sample(logits, slots)

    def uniform(self, request: NewRequest, position: int, row: int) -> float:
        return super().uniform(request, self.steps, row)


class RemembersSlots(RowByRow):
    """State by slot that is not forgotten."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.bias: dict[int, dict[int, float]] = {}

    def add(self, request: NewRequest) -> None:
        bias = request.sampling_params.logit_bias
        if bias:
            self.bias[request.slot] = bias
        super().add(_changed(request, logit_bias=self.bias.get(request.slot)))


class KeepsWhatItRefuses(RemembersSlots):
    def add(self, request: NewRequest) -> None:
        super().add(request)
        if len(request.sampling_params.bad_words_token_ids or ()) > 100:
            self.bias[request.slot] = {0: 50.0}
            raise RequestError("too many bad words")

    def remove(self, slot: int) -> None:
        super().remove(slot)
        self.bias.pop(slot, None)


class NaNKillsTheBatch(RowByRow):
    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        batch = super().sample(logits, slots)
        if torch.isnan(logits).any():
            batch.failures = {row: RowFailure("NaN") for row in range(len(slots))}
        return batch


class RaisesWithoutTokens(RowByRow):
    def nothing_left(self) -> RowFailure:
        raise ValueError("nothing is allowed")


class LogprobsAfterTemperature(RowByRow):
    def reported(self, raw: Logits, request: NewRequest) -> Logits:
        params = request.sampling_params
        return raw if params.greedy else raw / params.temperature


class InfiniteLogprobs(RowByRow):
    def entries(self, row: Logits, target: int, count: int) -> list[tuple[int, float, int]]:
        entries = super().entries(row, target, count)
        return [(t, p if p > -9999 else -np.inf, rank) for t, p, rank in entries]


class RanksFromZero(RowByRow):
    def entries(self, row: Logits, target: int, count: int) -> list[tuple[int, float, int]]:
        return [(t, p, rank - 1) for t, p, rank in super().entries(row, target, count)]


def _mutant(fault: str, part: type[Sampler], *caught_by: str) -> Mutant:
    return Mutant("sampler", fault, providing("sampler", part), caught_by)


MUTANTS = [
    _mutant("looks at 2048 tokens", LooksAtSome, "test_greedy_rows_take_the_most_likely"),
    _mutant("ties differ", LastOfEquals, "test_of_equals_the_lowest_id"),
    _mutant("ignores high temperatures", AlwaysWarm, "test_draws_follow_the_distribution"),
    _mutant("top_p off by one", TopPWithoutTheLast, "test_filters_keep_what_they_say"),
    _mutant("top_p before top_k", TopPOfAll, "test_the_order_of_filters"),
    _mutant("ranks 256 tokens", SortsTheBest, "test_filters_of_large_vocabularies"),
    _mutant("bias lifts masks", MasksSoftly, "test_masks"),
    _mutant("min_tokens counts the prompt", CountsThePrompt, "test_masks"),
    _mutant("frequency without counts", ForgetsCounts, "test_penalties"),
    _mutant("bias after penalties", BiasComesLast, "test_the_order_of_adjustments"),
    _mutant("penalties undo a mask", PenaltiesFreeTokens, "test_everything_at_once"),
    _mutant(
        "global generator",
        GlobalGenerator,
        "test_a_seed_repeats_its_draws",
        "test_seeded_requests_of_an_engine",
    ),
    _mutant("seeds of 32 bits", SeedsOf32Bits, "test_seeds_differ"),
    _mutant("one seed for all without", OneSeedForAll, "test_requests_without_a_seed"),
    _mutant("draws by the row", DrawsByRow, "test_neighbours_do_not_matter"),
    _mutant("stale position after preemption", StartsAgain, "test_a_resumed_request_goes_on"),
    _mutant("counts steps", CountsSteps, "test_steps_without_it_do_not_count"),
    _mutant("state by slot not forgotten", RemembersSlots, "test_a_slot_forgets"),
    _mutant("keeps what it refuses", KeepsWhatItRefuses, "test_what_is_refused_leaves_nothing"),
    _mutant("NaN kills the batch", NaNKillsTheBatch, "test_nan_fails_its_row_alone"),
    _mutant(
        "raises without tokens", RaisesWithoutTokens, "test_nothing_allowed_fails_its_row_alone"
    ),
    _mutant("logprobs after temperature", LogprobsAfterTemperature, "test_logprobs"),
    _mutant("infinite logprobs", InfiniteLogprobs, "test_logprobs_are_finite"),
    _mutant("ranks from zero", RanksFromZero, "test_prompt_logprobs"),
]

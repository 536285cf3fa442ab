"""Broken attention backends."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import torch

from builtin_plugins.attention_sdpa.backend import SdpaAttention
from hookspecs.contracts.attention import (
    AttentionBackend,
    AttentionCapability,
    AttentionContext,
    AttentionMetadata,
)
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]

ALL = frozenset(AttentionCapability)


class RowByRow(SdpaAttention):
    """Right, and simple: each row by itself, by the definition. What follows breaks a piece."""

    def forward(
        self,
        query: torch.Tensor,
        cache: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        scale: float,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        outs = []
        for row, length in enumerate(metadata.seq_lens):
            begin, end = metadata.query_start[row], metadata.query_start[row + 1]
            slots = self.slots(metadata, row, length, end - begin, sliding_window)
            key, value = (part[slots].float() for part in cache.flatten(1, 2))
            wanted = query[begin:end].float()
            groups = query.shape[1] // key.shape[1]
            key, value = self.spread(key, groups), self.spread(value, groups)
            scores = self.scores(torch.einsum("qhd,khd->hqk", wanted, key), scale, soft_cap)
            at = torch.arange(length - (end - begin), length)[:, None]
            seen = self.seen(at, torch.arange(length)[-len(slots) :], sliding_window)
            scores = scores.masked_fill(~seen, -torch.inf)
            if sinks is not None:
                scores = self.with_sinks(scores, sinks.float(), soft_cap)
            weights = self.weights(scores)[..., : len(slots)]
            outs.append(torch.einsum("hqk,khd->qhd", weights, value))
        return torch.cat(outs).to(query.dtype)

    def slots(
        self, metadata: AttentionMetadata, row: int, length: int, new: int, window: int | None
    ) -> torch.Tensor:
        size = self.context.block_size
        first = 0 if window is None else max(0, length - new - window + 1)
        positions = torch.arange(first, length)
        return metadata.block_tables[row][positions // size] * size + positions % size

    def spread(self, tensor: torch.Tensor, groups: int) -> torch.Tensor:
        return tensor.repeat_interleave(groups, 1)

    def scores(self, dots: torch.Tensor, scale: float, cap: float | None) -> torch.Tensor:
        scores = dots * scale
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        seen = of <= at
        return seen if window is None else seen & (of > at - window)

    def with_sinks(
        self, scores: torch.Tensor, sinks: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        return torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:2], 1)], -1)

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores, -1)


class SeesTheFuture(RowByRow):
    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        return super().seen(at + 1, of, window)


class ChunksAreAlone(RowByRow):
    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        return super().seen(at, of, window) & ((of >= at[0]) | (len(at) == 1))


class ForgetsTheFirstToken(RowByRow):
    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        return super().seen(at, of, window) & ((of > 0) | (at == 0))


class DecodesComeFirst(RowByRow):
    """Reorders outputs: those of decodes stand before those of chunks."""

    def forward(self, query: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        out = super().forward(query, *args, **how)
        starts = args[1].query_start
        pieces = list(itertools.pairwise(starts))
        pieces.sort(key=lambda piece: piece[1] - piece[0] > 1)
        return torch.cat([out[begin:end] for begin, end in pieces])


class DealsHeadsInTurn(RowByRow):
    """Query head h sees kv head h % kv heads."""

    def spread(self, tensor: torch.Tensor, groups: int) -> torch.Tensor:
        return tensor.repeat(1, groups, 1)


class KnowsTwoSizes(RowByRow):
    """A head of another size than 32 and 64 is computed as one of 64."""

    def forward(self, query: torch.Tensor, cache: torch.Tensor, *args: Any, **how: Any) -> Any:
        return super().forward(query, _cut(query, cache), *args, **how)


def _cut(query: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache = cache.clone()
    cache[0, ..., 64:] = 0
    return cache


class ScalesAsItLikes(RowByRow):
    def scores(self, dots: torch.Tensor, scale: float, cap: float | None) -> torch.Tensor:
        return super().scores(dots, 32**-0.5, cap)


class LooksBackSoFar(RowByRow):
    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        return super().seen(at, of, window or 512)


class SubtractsNoMaximum(RowByRow):
    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        weights = scores.exp()
        return weights / weights.sum(-1, keepdim=True)


class WindowWithoutItself(RowByRow):
    """Its window has one token too many."""

    def seen(self, at: torch.Tensor, of: torch.Tensor, window: int | None) -> torch.Tensor:
        return super().seen(at, of, None if window is None else window + 1)


class ReadsBeforeTheWindow(RowByRow):
    """With a weight of zero, which NaN does not care about."""

    def slots(
        self, metadata: AttentionMetadata, row: int, length: int, new: int, window: int | None
    ) -> torch.Tensor:
        # A worker's table may still name the block that was given back.
        return super().slots(metadata, row, length, new, None)

    def forward(self, query: torch.Tensor, cache: torch.Tensor, *args: Any, **how: Any) -> Any:
        cache = cache.clone()
        if how.get("sliding_window") is not None:
            cache[:, 0] = torch.nan
        return super().forward(query, cache, *args, **how)


class CapsBeforeTheScale(RowByRow):
    def scores(self, dots: torch.Tensor, scale: float, cap: float | None) -> torch.Tensor:
        return dots * scale if cap is None else cap * torch.tanh(dots / cap) * scale


class NoSinks(RowByRow):
    def with_sinks(
        self, scores: torch.Tensor, sinks: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        return scores


class CapsTheSinks(RowByRow):
    def with_sinks(
        self, scores: torch.Tensor, sinks: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        if cap is not None:
            sinks = cap * torch.tanh(sinks / cap)
        return super().with_sinks(scores, sinks, cap)


class AnswersInFloat32(RowByRow):
    def forward(self, query: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        return super().forward(query.float(), *args, **how)


class AddsUpInBfloat16(RowByRow):
    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        total = torch.zeros(scores.shape[:-1], dtype=torch.bfloat16)
        for column in weights.bfloat16().unbind(-1):
            total = total + column
        return weights / total[..., None].float()


class ScoresOfFloat16(RowByRow):
    def scores(self, dots: torch.Tensor, scale: float, cap: float | None) -> torch.Tensor:
        return super().scores(dots.half().float(), scale, cap)


class AnswersInTheCachesType(RowByRow):
    def forward(self, query: torch.Tensor, cache: torch.Tensor, *args: Any, **how: Any) -> Any:
        return super().forward(query, cache, *args, **how).to(cache.dtype)


class DoesWhatItDoesNotDeclare(SdpaAttention):
    """Ignores a capability: says yes to a worker that asks whether it can."""

    asked: ClassVar[bool] = False

    @property
    def capabilities(self) -> frozenset[AttentionCapability]:  # type: ignore[override]
        if "asked" in vars(self):
            return ALL
        self.__dict__["asked"] = True
        return frozenset()


class GivesUsedMemory(SdpaAttention):
    def allocate(
        self, num_blocks: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> torch.Tensor:
        return super().allocate(num_blocks, num_kv_heads, head_size, dtype) + 0.5


class WritesWholeBlocks(SdpaAttention):
    """Writes to the wrong slots too: clears those of a block that the step does not fill."""

    def write(
        self,
        cache: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
    ) -> None:
        cache[:, metadata.slot_mapping // self.context.block_size] = 0
        super().write(cache, key, value, metadata)


class CopiesValuesFirst(SdpaAttention):
    def copy_out(self, cache: torch.Tensor, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = super().copy_out(cache, blocks)
        return values, keys


class MasksWholeBlocks(RowByRow):
    """Reads a row's last block to its end, with a weight of zero."""

    def forward(self, query: torch.Tensor, cache: torch.Tensor, *args: Any, **how: Any) -> Any:
        out = super().forward(query, cache, *args, **how)
        metadata, size = args[0], self.context.block_size
        for row, length in enumerate(metadata.seq_lens):
            last = cache[1, metadata.block_lists[row][math.ceil(length / size) - 1]]
            begin, end = metadata.query_start[row : row + 2]
            out[begin:end] += 0 * last.float().sum().to(out.dtype)
        return out


class MultipliesNeighboursByZero(SdpaAttention):
    """Leaks a neighbour's row, if it is NaN."""

    def forward(self, query: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        out = super().forward(query, *args, **how)
        return out + 0 * out.mean()


class RemembersTables(SdpaAttention):
    """Keeps what it derived for a step for later ones that look alike."""

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        self._seen: dict[str, dict[str, Any]] = {}

    def forward(
        self, query: torch.Tensor, cache: Any, metadata: AttentionMetadata, **how: Any
    ) -> torch.Tensor:
        alike = repr(
            (metadata.query_start, metadata.max_seq_len, tuple(metadata.block_tables.shape))
        )
        metadata.cache = self._seen.setdefault(alike, metadata.cache)
        return super().forward(query, cache, metadata, **how)


class OneScaleAStep(SdpaAttention):
    """Keeps in `metadata.cache` what belongs to the first layer."""

    def forward(
        self, query: torch.Tensor, cache: Any, metadata: AttentionMetadata, **how: Any
    ) -> torch.Tensor:
        how["scale"] = metadata.cache.setdefault("scale", how["scale"])
        return super().forward(query, cache, metadata, **how)


class OneBlockSizeForAll(SdpaAttention):
    """Objects share what the last one was told."""

    shared: ClassVar[list[AttentionContext]] = []

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        self.shared[:] = [context]

    def forward(
        self, query: torch.Tensor, cache: Any, metadata: AttentionMetadata, **how: Any
    ) -> torch.Tensor:
        self.context = self.shared[0]
        return super().forward(query, cache, metadata, **how)


class ScalesInPlace(RowByRow):
    def forward(self, query: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        query *= how["scale"]
        return super().forward(query, *args, **{**how, "scale": 1.0})


class TakesMemoryAsItLies(SdpaAttention):
    """Reads a query as if it were contiguous."""

    def forward(self, query: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        _, heads, size = query.shape
        return super().forward(query.as_strided(query.shape, (heads * size, size, 1)), *args, **how)


def _mutant(
    fault: str,
    part: type[AttentionBackend],
    *caught_by: str,
    capabilities: frozenset[AttentionCapability] = ALL,
) -> Mutant:
    target = f"{part.__module__}:{part.__qualname__}"
    plugin = providing("attention_backend", target, capabilities=capabilities)
    return Mutant("attention_backend", fault, plugin, caught_by)


MUTANTS = [
    _mutant(
        "reads one token too many",
        SeesTheFuture,
        "test_a_prompt_in_one_chunk",
        "test_a_prompt_in_several_chunks",
    ),
    _mutant("chunks do not see earlier ones", ChunksAreAlone, "test_a_prompt_in_several_chunks"),
    _mutant(
        "reads one token too few",
        ForgetsTheFirstToken,
        "test_decodes",
        "test_tokens_of_an_engine",
    ),
    _mutant(
        "reorders outputs",
        DecodesComeFirst,
        "test_mixed_batches",
        "test_the_order_of_rows",
    ),
    _mutant("wrong head of keys", DealsHeadsInTurn, "test_query_heads_share_keys"),
    _mutant("cuts large heads", KnowsTwoSizes, "test_sizes"),
    _mutant("forgets the scale", ScalesAsItLikes, "test_scale"),
    _mutant("looks back 512 tokens", LooksBackSoFar, "test_long_rows"),
    _mutant("softmax without maximum", SubtractsNoMaximum, "test_large_scores"),
    _mutant("window off by one", WindowWithoutItself, "test_sliding_window"),
    _mutant("reads the null block", ReadsBeforeTheWindow, "test_blocks_that_left_the_window"),
    _mutant("caps before the scale", CapsBeforeTheScale, "test_soft_cap"),
    _mutant("ignores sinks", NoSinks, "test_sinks"),
    _mutant("caps sinks", CapsTheSinks, "test_window_cap_and_sinks_together"),
    _mutant("answers in float32", AnswersInFloat32, "test_bfloat16", "test_float16"),
    _mutant("adds up in bfloat16", AddsUpInBfloat16, "test_bfloat16"),
    _mutant("scores of float16", ScoresOfFloat16, "test_float16"),
    _mutant(
        "answers in the type of the cache", AnswersInTheCachesType, "test_a_cache_of_another_type"
    ),
    _mutant(
        "ignores capabilities",
        DoesWhatItDoesNotDeclare,
        "test_undeclared_sliding_window_is_refused",
        "test_undeclared_soft_cap_is_refused",
        "test_undeclared_sinks_are_refused",
        "test_undeclared_bfloat16_is_refused",
        "test_undeclared_float16_is_refused",
        capabilities=frozenset(),
    ),
    _mutant("does not zero", GivesUsedMemory, "test_a_new_buffer_is_zeroed"),
    _mutant("clears other slots", WritesWholeBlocks, "test_write_changes_only_its_slots"),
    _mutant("copies values as keys", CopiesValuesFirst, "test_copied_out_is_what_was_written"),
    _mutant("reads a block to its end", MasksWholeBlocks, "test_blocks_of_others_are_not_read"),
    _mutant(
        "leaks a neighbour's NaN", MultipliesNeighboursByZero, "test_a_row_of_nan_spoils_no_other"
    ),
    _mutant("stale state from another step", RemembersTables, "test_steps_share_nothing"),
    _mutant("one scale a step", OneScaleAStep, "test_layers_share_a_step"),
    _mutant("objects share state", OneBlockSizeForAll, "test_objects_share_nothing"),
    _mutant("changes the query", ScalesInPlace, "test_arguments_are_left_alone"),
    _mutant("assumes strides", TakesMemoryAsItLies, "test_arguments_need_not_be_contiguous"),
]

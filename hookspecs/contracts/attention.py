"""Attention backends: keys and values into the paged cache, queries against it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from hookspecs.contracts.base import Context

if TYPE_CHECKING:
    import torch

__all__ = ["AttentionBackend", "AttentionCapability", "AttentionContext", "AttentionMetadata"]


class AttentionCapability(StrEnum):
    """What an attention backend can do; a model that needs what is missing is refused."""

    SLIDING_WINDOW = "sliding_window"
    SOFT_CAP = "soft_cap"
    SINKS = "sinks"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class AttentionContext(Context, frozen=True, kw_only=True):
    """Context of an attention backend."""

    device: str
    block_size: int


class AttentionMetadata(msgspec.Struct, kw_only=True):
    """Where the tokens of one forward lie, for the layers of one KV cache group.

    Tokens of all rows are concatenated; row i has query tokens
    query_start[i]:query_start[i + 1], which are the last tokens of its seq_lens[i] tokens.
    """

    query_start: list[int]
    """rows + 1 offsets into the flattened tokens."""
    seq_lens: list[int]
    """Tokens of each row after this step."""
    max_query_len: int
    max_seq_len: int
    block_tables: torch.Tensor
    """int64 [rows, blocks], on the device; a row's entries beyond its blocks are 0, and so may be
    those of blocks that left the sliding window."""
    block_lists: Sequence[list[int]]
    """The same on the host, without padding. It may be made when it is first read: a backend
    that works with `block_tables` does not pay for it."""
    slot_mapping: torch.Tensor
    """int64 [tokens]: block id * block size + offset of each flattened token."""
    seq_lens_tensor: torch.Tensor
    """int64 [rows]"""
    query_start_tensor: torch.Tensor
    """int64 [rows + 1]"""
    cache: dict[str, Any] = msgspec.field(default_factory=dict)
    """For the backend: what it derives once a step and uses in every layer."""


class AttentionBackend(ABC):
    """Worker process. One instance serves all layers.

    It reads the tokens of each row, within its window, and nothing else: other rows, and what
    lies in other blocks or behind a row's last token, may be NaN. A block size that it can not
    serve it refuses with UnsupportedModelError when it is constructed.
    """

    capabilities: ClassVar[frozenset[AttentionCapability]] = frozenset()

    def __init__(self, context: AttentionContext) -> None:
        self.context = context

    @abstractmethod
    def allocate(
        self, num_blocks: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> Any:
        """One buffer of keys and values in the backend's own layout; zeroed.
        UnsupportedModelError for heads, a size or a type that the backend can not serve."""

    @abstractmethod
    def write(
        self, cache: Any, key: torch.Tensor, value: torch.Tensor, metadata: AttentionMetadata
    ) -> None:
        """Put key and value [tokens, kv heads, head size] at `slot_mapping`, rounded to the type
        of the buffer, and change nothing else. Tensors need not be contiguous, here and in
        `forward`."""

    @abstractmethod
    def forward(
        self,
        query: torch.Tensor,
        cache: Any,
        metadata: AttentionMetadata,
        *,
        scale: float,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal attention of query [tokens, heads, head size] over each row's cached tokens
        (the step's own are already written); same shape and dtype out. Heads are a multiple
        of kv heads: head h reads kv head h // (heads / kv heads). sliding_window: a token sees
        itself and the `sliding_window - 1` tokens before it. soft_cap c: scores, scaled, become
        c * tanh(scores / c). sinks float [heads]: for each head the score of one more key, whose
        value is zero. Softmax and sums are of float32 whatever the dtype."""

    def copy_out(self, cache: Any, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks, each [blocks, block size, kv heads, head size]; for
        connectors and tests. Not called by this version. NotImplementedError if it can not."""
        raise NotImplementedError(f"{type(self).__name__} can not copy blocks out")

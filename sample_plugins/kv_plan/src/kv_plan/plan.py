"""From the shape of a model to what fits.

The layout is that of `KVCacheConfig`: layers that keep the same tokens form groups of equal size
(the last of a kind may have fewer), and a block holds `block_size` tokens of the layers of one
group. A model without windows has one group of all layers.
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec
from hookspecs.errors import ConfigError

from kv_plan.model_shape import ModelShape

__all__ = ["DTYPES", "Budget", "Fit", "Plan", "make_plan"]

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element."""
_MOST = 2**31 - 1
"""Positions are int32."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `num_blocks` counts if it is given, else `kv_bytes`, of one rank."""

    kv_bytes: int
    num_blocks: int | None
    dtype: str
    tensor_parallel_size: int
    block_size: int
    max_num_batched_tokens: int
    """Tokens of one step: a window is kept with them, until the step is over."""
    lengths: tuple[int, ...]
    """Prompt and output tokens of a request. None given: some up to the model's limit."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one length."""

    tokens: int
    blocks: int
    """The most that one of them holds at a time."""
    requests: int
    """That hold so many at once."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; bytes and blocks are those of one rank."""

    model: str
    architecture: str
    num_layers: int
    num_sliding_layers: int
    num_groups: int
    kv_heads: int
    head_size: int
    dtype: str
    tensor_parallel_size: int
    block_size: int
    bytes_per_token: int
    bytes_per_token_beyond_windows: int
    """What a token adds once all windows have passed; the same without windows."""
    bytes_per_block: int
    kv_bytes: int
    num_blocks: int
    """Without the null block, which no request owns."""
    max_request_tokens: int | None
    """The longest request that fits alone; None: any."""
    max_model_len: int
    """The model's own limit."""
    fits: list[Fit]
    notes: list[str]


def make_plan(name: str, shape: ModelShape, budget: Budget) -> Plan:
    """ConfigError for a budget that the model does not go with."""
    kv_heads = _heads_of_rank(shape, budget.tensor_parallel_size)
    layer_bytes = 2 * kv_heads * shape.head_size * DTYPES[budget.dtype]  # keys and values
    kinds = Counter(shape.windows)
    group_size = min(kinds.values())
    bytes_per_block = group_size * layer_bytes * budget.block_size
    num_blocks, kv_bytes = _blocks_and_bytes(budget, bytes_per_block)
    layout = _Layout(kinds, group_size, budget)
    lengths = budget.lengths or _some_lengths(shape.max_model_len)
    fits = [
        Fit(tokens=length, blocks=blocks, requests=num_blocks // blocks)
        for length in lengths
        for blocks in [layout.blocks(length)]
    ]
    notes = list(shape.notes)
    if max(lengths) > shape.max_model_len:
        notes.append(f"the model was made for {shape.max_model_len} tokens; a longer request fails")
    return Plan(
        model=name,
        architecture=shape.architecture,
        num_layers=len(shape.windows),
        num_sliding_layers=len(shape.windows) - kinds[None],
        num_groups=layout.num_groups,
        kv_heads=kv_heads,
        head_size=shape.head_size,
        dtype=budget.dtype,
        tensor_parallel_size=budget.tensor_parallel_size,
        block_size=budget.block_size,
        bytes_per_token=len(shape.windows) * layer_bytes,
        bytes_per_token_beyond_windows=kinds[None] * layer_bytes,
        bytes_per_block=bytes_per_block,
        kv_bytes=kv_bytes,
        num_blocks=num_blocks,
        max_request_tokens=layout.longest(num_blocks),
        max_model_len=shape.max_model_len,
        fits=fits,
        notes=notes,
    )


class _Layout:
    """How many blocks a request takes."""

    def __init__(self, kinds: Counter[int | None], group_size: int, budget: Budget) -> None:
        size = self._block_size = budget.block_size
        # (groups of a kind, the most blocks of one of them)
        self._groups: list[tuple[int, int]] = []
        for window, layers in kinds.items():
            most = _MOST
            if window is not None:
                # The window before a step's tokens, wherever the boundaries of blocks fall.
                most = _up(window - 1 + budget.max_num_batched_tokens, size) + 1
            self._groups.append((_up(layers, group_size), most))
        self.num_groups = sum(count for count, _ in self._groups)

    def blocks(self, tokens: int) -> int:
        """The most that one request of so many tokens holds at a time."""
        needed = _up(tokens, self._block_size)
        return sum(count * min(needed, most) for count, most in self._groups)

    def longest(self, num_blocks: int) -> int | None:
        """Tokens of the longest request that so many blocks hold; None: any."""
        low, high = 0, _MOST
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks(middle) <= num_blocks:
                low = middle
            else:
                high = middle - 1
        return None if low == _MOST else low


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _heads_of_rank(shape: ModelShape, ranks: int) -> int:
    """Ranks share the KV heads; where there are fewer heads than ranks, several keep the same."""
    heads, kv_heads = shape.num_heads, shape.num_kv_heads
    if heads % ranks or (kv_heads % ranks and ranks % kv_heads):
        raise ConfigError(
            f"--tensor-parallel is {ranks}, but {heads} attention heads and {kv_heads} KV heads "
            f"can not be shared equally by {ranks} ranks. Give a divisor of {heads} that is also a "
            f"divisor or a multiple of {kv_heads}"
        )
    return max(1, kv_heads // ranks)


def _blocks_and_bytes(budget: Budget, bytes_per_block: int) -> tuple[int, int]:
    if budget.num_blocks is not None:
        return budget.num_blocks, (budget.num_blocks + 1) * bytes_per_block
    num_blocks = budget.kv_bytes // bytes_per_block - 1
    if num_blocks < 2:
        enough = math.ceil(3 * bytes_per_block / (1 << 30) * 1000) / 1000
        raise ConfigError(
            f"{budget.kv_bytes} bytes are {max(0, num_blocks)} blocks of {bytes_per_block} bytes "
            f"({budget.block_size} tokens) besides the null block; at least 2 are needed. Raise "
            f"--gib to {enough} or more, or lower cache.block_size"
        )
    return num_blocks, budget.kv_bytes


def _some_lengths(limit: int) -> tuple[int, ...]:
    shorter = [1024 * 4**power for power in range(16) if 1024 * 4**power < limit]
    return (*shorter, limit)

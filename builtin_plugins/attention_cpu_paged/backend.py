"""The attention backend `cpu_paged`: compiled kernels that read the cache in place."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch

from builtin_plugins.attention_cpu_paged.library import (
    NUMBER_TYPES,
    PagedCacheStruct,
    PagedStepStruct,
    load_kernels,
)
from framework.sdk.tensors import zeros_on_demand
from hookspecs.contracts.attention import (
    AttentionBackend,
    AttentionCapability,
    AttentionContext,
    AttentionMetadata,
)
from hookspecs.errors import UnsupportedModelError

__all__ = ["CpuPagedAttention", "PagedCache"]

_SLACK = 16
"""Numbers behind the last block: kernels read whole vectors."""


class PagedCache:
    """One buffer; kernels/cache.h says how keys and values lie in it."""

    def __init__(
        self, num_blocks: int, kv_heads: int, head_size: int, block_size: int, dtype: torch.dtype
    ) -> None:
        part = block_size * head_size
        flat = zeros_on_demand((num_blocks * kv_heads * 2 * part + _SLACK,), dtype, "cpu")
        self.parts = flat[:-_SLACK].view(num_blocks, kv_heads, 2, part)
        """[blocks, kv heads, 2 (keys, values), block size * head size]"""
        self.token = torch.Size((kv_heads, head_size))
        """Shape of a key or value."""
        self._struct = PagedCacheStruct(
            data=flat.data_ptr(),
            num_blocks=num_blocks,
            kv_heads=kv_heads,
            head_size=head_size,
            block_size=block_size,
            type=NUMBER_TYPES[dtype],
        )
        self.address = ctypes.addressof(self._struct)


class _Step:
    """A step's metadata for the kernels."""

    def __init__(self, metadata: AttentionMetadata) -> None:
        """ValueError for what the kernels can not follow."""
        starts, lens = metadata.query_start_tensor, metadata.seq_lens_tensor
        tables, slots = metadata.block_tables, metadata.slot_mapping
        # Keeps the tensors, of which the structure has addresses.
        self._tensors = tuple(tensor.contiguous() for tensor in (starts, lens, tables, slots))
        types = {tensor.dtype for tensor in self._tensors}
        if types != {torch.int64}:
            raise ValueError(f"metadata has tensors of {types}; needed is torch.int64")
        given, self.tokens = metadata.query_start, len(slots)
        if not len(starts) - 1 == len(lens) == len(tables) or given[-1] != self.tokens:
            raise ValueError(
                f"metadata has {len(starts)} query starts, the last of them {given[-1]}, for "
                f"{len(lens)} rows, {len(tables)} block tables and {self.tokens} slots"
            )
        pointers = [tensor.data_ptr() for tensor in self._tensors]
        self._struct = PagedStepStruct(len(lens), self.tokens, tables.shape[1], *pointers)
        self.address = ctypes.addressof(self._struct)


def _step(metadata: AttentionMetadata) -> _Step:
    """Kept in `metadata.cache`."""
    step: _Step | None = metadata.cache.get("cpu_paged")
    if step is None:
        step = metadata.cache["cpu_paged"] = _Step(metadata)
    return step


class CpuPagedAttention(AttentionBackend):
    """Any head size and block size; fastest with blocks of a multiple of 16 tokens."""

    capabilities: ClassVar[frozenset[AttentionCapability]] = frozenset(AttentionCapability)

    def __init__(self, context: AttentionContext) -> None:
        """KernelsUnavailable where there is no C compiler."""
        super().__init__(context)
        kernels = load_kernels()
        self._write, self._forward = kernels.paged_write, kernels.paged_forward
        self._key_width = kernels.paged_key_width

    def allocate(
        self, num_blocks: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> PagedCache:
        if dtype not in NUMBER_TYPES:
            raise UnsupportedModelError(
                f"the attention backend 'cpu_paged' keeps no keys and values of type {dtype}; it "
                f"keeps {', '.join(map(str, NUMBER_TYPES))} (cache.kv_dtype)."
            )
        return PagedCache(num_blocks, num_kv_heads, head_size, self.context.block_size, dtype)

    def write(
        self,
        cache: PagedCache,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
    ) -> None:
        step = _step(metadata)
        whole = torch.Size((step.tokens, *cache.token))
        if key.shape != whole or value.shape != whole or key.dtype != value.dtype:
            raise ValueError(
                f"key and value are {key.dtype} {tuple(key.shape)} and {value.dtype} "
                f"{tuple(value.shape)}; needed is one type and {tuple(whole)}"
            )
        if key.stride(2) != 1 or value.stride(2) != 1:
            key, value = key.contiguous(), value.contiguous()
        key_token, key_head, _ = key.stride()
        value_token, value_head, _ = value.stride()
        wrong = self._write(
            cache.address,
            step.address,
            key.data_ptr(),
            key_token,
            key_head,
            value.data_ptr(),
            value_token,
            value_head,
            _number_type(key.dtype),
        )
        if wrong >= 0:
            raise IndexError(
                f"slot_mapping[{wrong}] is {int(metadata.slot_mapping[wrong])}; the cache has "
                f"{cache.parts.shape[0] * self.context.block_size} slots"
            )

    def forward(
        self,
        query: torch.Tensor,
        cache: PagedCache,
        metadata: AttentionMetadata,
        *,
        scale: float,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        step, (kv_heads, size) = _step(metadata), cache.token
        tokens, heads, query_size = query.shape
        if tokens != step.tokens or query_size != size or not heads or heads % kv_heads:
            raise ValueError(
                f"query is {tuple(query.shape)}; needed is ({step.tokens}, a multiple of "
                f"{kv_heads}, {size})"
            )
        token_stride, head_stride, last_stride = query.stride()
        if last_stride != 1:
            query = query.contiguous()
            token_stride, head_stride, _ = query.stride()
        if sinks is not None:
            sinks = sinks.float().contiguous()
            if len(sinks) != heads:
                raise ValueError(f"there are {len(sinks)} sinks for {heads} heads")
        out = torch.empty(query.shape, dtype=query.dtype)
        wrong = self._forward(
            cache.address,
            step.address,
            query.data_ptr(),
            token_stride,
            head_stride,
            out.data_ptr(),
            heads,
            _number_type(query.dtype),
            scale,
            sliding_window or 0,
            soft_cap or 0.0,
            None if sinks is None else sinks.data_ptr(),
        )
        if wrong != _DONE:
            raise _failure(wrong)
        return out

    def copy_out(self, cache: PagedCache, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = cache.parts[torch.tensor(blocks, dtype=torch.long)].unbind(2)
        width = self._key_width(cache.address)
        count, heads, part = keys.shape
        size = part // self.context.block_size
        grouped = keys.view(count, heads, -1, size, width).transpose(3, 4)
        return (
            grouped.reshape(count, heads, -1, size).transpose(1, 2),
            values.view(count, heads, -1, size).transpose(1, 2),
        )


_DONE, _NO_MEMORY = -1, -2


def _number_type(dtype: torch.dtype) -> int:
    number = NUMBER_TYPES.get(dtype)
    if number is None:
        raise ValueError(
            f"the attention backend 'cpu_paged' computes in {', '.join(map(str, NUMBER_TYPES))}, "
            f"not in {dtype}"
        )
    return number


def _failure(result: int) -> Exception:
    if result == _NO_MEMORY:
        return MemoryError("no memory for the work of an attention call")
    return IndexError(
        f"row {result}: block_tables has fewer blocks than its tokens need, or one that the cache "
        "does not have"
    )

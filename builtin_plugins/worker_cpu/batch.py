"""The persistent batch: what the worker knows of the requests in its slots.

One row of arrays a slot, changed only where a step says that something changed.
"""

from __future__ import annotations

import numpy as np
import torch

from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import KVCacheConfig
from hookspecs.types.step import BlockColumns, NewRequest

__all__ = ["InputBatch"]


class InputBatch:
    """Worker process, one thread."""

    def __init__(self, config: KVCacheConfig, max_num_seqs: int, max_model_len: int) -> None:
        self.block_size = config.block_size
        # The system gives zeroed memory page by page when it is first touched: what long
        # requests do not use of a row costs address space only.
        self.token_ids = np.zeros((max_num_seqs, max_model_len), dtype=np.int32)
        """int32 [slots, max_model_len]"""
        self.num_tokens = np.zeros(max_num_seqs, dtype=np.int32)
        """int32 [slots]: known tokens, prompt and sampled."""
        self.num_prompt_tokens = np.zeros(max_num_seqs, dtype=np.int32)
        max_blocks = -(-max_model_len // config.block_size)
        self.block_tables = [
            np.zeros((max_num_seqs, max_blocks), dtype=np.int64) for _ in config.groups
        ]
        """One a KV cache group, int64 [slots, blocks]; 0 beyond a slot's blocks."""
        self.num_blocks = np.zeros((len(config.groups), max_num_seqs), dtype=np.int32)
        self.prompt_logprobs: dict[int, int] = {}
        """Slot to the number of alternatives, of requests that want prompt logprobs."""
        self.prompt_embeds: dict[int, torch.Tensor] = {}
        """Slot to [prompt tokens, hidden size]."""

    def add(self, request: NewRequest, *, runs: bool) -> None:
        """A request starts in its slot, which is free. One that does not run only holds the
        slot: its tokens and embeddings are not used."""
        slot, count = request.slot, len(request.token_ids)
        self.token_ids[slot, :count] = request.token_ids if runs else 0
        self.num_tokens[slot] = count
        num_prompt_tokens = request.num_prompt_tokens
        self.num_prompt_tokens[slot] = num_prompt_tokens
        for group, blocks in enumerate(request.block_ids):
            self.block_tables[group][slot, : len(blocks)] = blocks
            self.num_blocks[group, slot] = len(blocks)
        if not runs:
            return
        # One that resumes after its first output has given those of its prompt.
        if request.sampling_params.prompt_logprobs is not None and count == num_prompt_tokens:
            self.prompt_logprobs[slot] = request.sampling_params.prompt_logprobs
        if request.prompt_embeds is not None:
            self.prompt_embeds[slot] = torch.as_tensor(request.prompt_embeds)

    def remove(self, slot: int) -> None:
        """A slot became free."""
        self.num_tokens[slot] = 0
        for group, table in enumerate(self.block_tables):
            table[slot, : self.num_blocks[group, slot]] = 0
            self.num_blocks[group, slot] = 0
        self.prompt_logprobs.pop(slot, None)
        self.prompt_embeds.pop(slot, None)

    def append_blocks(self, group: int, blocks: BlockColumns) -> None:
        """Blocks appended to the tables of running requests."""
        counts = np.diff(blocks.indptr)
        have = self.num_blocks[group, blocks.slots]
        columns = np.repeat(have - blocks.indptr[:-1], counts) + np.arange(len(blocks.block_ids))
        self.block_tables[group][np.repeat(blocks.slots, counts), columns] = blocks.block_ids
        self.num_blocks[group, blocks.slots] = have + counts

    def append_tokens(self, slots: Int32Column, token_ids: Int32Column) -> None:
        """One sampled token for each of `slots`."""
        self.token_ids[slots, self.num_tokens[slots]] = token_ids
        self.num_tokens[slots] += 1

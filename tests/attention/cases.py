"""A step over a paged cache made by hand, and attention by its definition in float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from builtin_plugins.attention_cpu_paged.backend import CpuPagedAttention
from builtin_plugins.attention_sdpa.backend import SdpaAttention
from hookspecs.config import EngineConfig
from hookspecs.contracts.attention import AttentionBackend, AttentionContext, AttentionMetadata

BACKENDS: dict[str, type[AttentionBackend]] = {
    "sdpa": SdpaAttention,
    "cpu_paged": CpuPagedAttention,
}


def make_backend(name: str, block_size: int) -> AttentionBackend:
    """The backend under test, as a worker constructs it."""
    return BACKENDS[name](
        AttentionContext(config=EngineConfig(), device="cpu", block_size=block_size)
    )


@dataclass
class Case:
    """Rows (tokens before the step, tokens of the step) with random contents."""

    rows: list[tuple[int, int]]
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    block_size: int = 4
    window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)

        def rand(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(self.dtype)

        self.queries = [rand(new, self.heads, self.size) for _, new in self.rows]
        self.keys = [rand(past + new, self.kv_heads, self.size) for past, new in self.rows]
        self.values = [rand(past + new, self.kv_heads, self.size) for past, new in self.rows]
        self.sink_logits = rand(self.heads) if self.sinks else None
        self.scale = self.size**-0.5
        needed = [-(-(past + new) // self.block_size) for past, new in self.rows]
        self.num_blocks = sum(needed) + 3
        ids = (torch.randperm(self.num_blocks - 1, generator=generator) + 1).tolist()
        taken = iter(ids)
        self.blocks = [list(itertools.islice(taken, count)) for count in needed]


def metadata(case: Case, tokens: dict[int, tuple[int, int]]) -> AttentionMetadata:
    """Of a step with the tokens (begin, end) of some of the case's rows."""
    begins_ends = list(tokens.values())
    starts = [0, *itertools.accumulate(end - begin for begin, end in begins_ends)]
    lens = [end for _, end in begins_ends]
    lists = [case.blocks[row][: -(-end // case.block_size)] for row, (_, end) in tokens.items()]
    table = torch.zeros(len(lists), max(map(len, lists)), dtype=torch.long)
    for row, blocks in enumerate(lists):
        table[row, : len(blocks)] = torch.tensor(blocks)
    slots = [
        blocks[position // case.block_size] * case.block_size + position % case.block_size
        for blocks, (begin, end) in zip(lists, begins_ends, strict=True)
        for position in range(begin, end)
    ]
    return AttentionMetadata(
        query_start=starts,
        seq_lens=lens,
        max_query_len=max(end - begin for begin, end in begins_ends),
        max_seq_len=max(lens),
        block_tables=table,
        block_lists=lists,
        slot_mapping=torch.tensor(slots),
        seq_lens_tensor=torch.tensor(lens),
        query_start_tensor=torch.tensor(starts),
    )


def whole_pool(case: Case) -> AttentionMetadata:
    """Of a write to all slots."""
    slots = torch.arange(case.num_blocks * case.block_size)
    blocks = list(range(case.num_blocks))
    return AttentionMetadata(
        query_start=[0, len(slots)],
        seq_lens=[len(slots)],
        max_query_len=len(slots),
        max_seq_len=len(slots),
        block_tables=torch.tensor([blocks]),
        block_lists=[blocks],
        slot_mapping=slots,
        seq_lens_tensor=torch.tensor([len(slots)]),
        query_start_tensor=torch.tensor([0, len(slots)]),
    )


def run_backend(case: Case, backend: AttentionBackend) -> torch.Tensor:
    """Writes the rows' earlier tokens, then the step's, in a pool that is NaN everywhere else
    (before a row's window too), and attends."""
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, case.dtype)
    pool = torch.full((case.num_blocks * case.block_size, case.kv_heads, case.size), torch.nan)
    backend.write(cache, pool.to(case.dtype), pool.to(case.dtype), whole_pool(case))
    for row, (past, _) in enumerate(case.rows):
        seen = 0 if case.window is None else max(0, past - case.window + 1)
        if past > seen:
            earlier = metadata(case, {row: (seen, past)})
            backend.write(cache, case.keys[row][seen:past], case.values[row][seen:past], earlier)
    step = metadata(case, {row: (past, past + new) for row, (past, new) in enumerate(case.rows)})
    new_keys = torch.cat([k[past:] for k, (past, _) in zip(case.keys, case.rows, strict=True)])
    new_values = torch.cat([v[past:] for v, (past, _) in zip(case.values, case.rows, strict=True)])
    # A model's tensors come transposed.
    backend.write(
        cache,
        new_keys.transpose(0, 1).contiguous().transpose(0, 1),
        new_values.transpose(0, 1).contiguous().transpose(0, 1),
        step,
    )
    outs = [
        backend.forward(
            torch.cat(case.queries).transpose(0, 1).contiguous().transpose(0, 1),
            cache,
            step,
            scale=case.scale,
            sliding_window=case.window,
            soft_cap=case.soft_cap,
            sinks=case.sink_logits,
        )
        for _ in range(2)  # the second layer uses what the first derived
    ]
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=0, equal_nan=True)
    return outs[0]


def reference(case: Case) -> torch.Tensor:
    """One query at a time, in float64."""
    groups = case.heads // case.kv_heads
    out = []
    for row, (past, new) in enumerate(case.rows):
        keys = case.keys[row].double().repeat_interleave(groups, 1)
        values = case.values[row].double().repeat_interleave(groups, 1)
        for index in range(new):
            position = past + index
            first = 0 if case.window is None else max(0, position - case.window + 1)
            seen = slice(first, position + 1)
            query = case.queries[row][index].double() * case.scale
            scores = torch.einsum("hd,khd->kh", query, keys[seen])
            if case.soft_cap is not None:
                scores = case.soft_cap * torch.tanh(scores / case.soft_cap)
            weights = scores.exp()
            total = weights.sum(0)
            if case.sink_logits is not None:
                total = total + case.sink_logits.double().exp()
            out.append(torch.einsum("kh,khd->hd", weights / total, values[seen]))
    return torch.stack(out)

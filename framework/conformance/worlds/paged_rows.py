"""Rows over the paged cache of an attention backend, and their true keys and values beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from framework.conformance.worlds.dense_attention import attend
from hookspecs.contracts.attention import AttentionBackend, AttentionMetadata

__all__ = ["PagedRows", "Part", "Row", "Shape"]


class Shape(NamedTuple):
    """Sizes and arguments of a layer."""

    heads: int = 4
    kv_heads: int = 2
    size: int = 32
    block_size: int = 4
    dtype: torch.dtype = torch.float32
    window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False
    scale: float | None = None
    """None: 1 / sqrt(size)."""
    loud: float = 1.0
    """Factor of the queries, and so of the scores."""
    shift: float = 0.0
    """Added to all values, and so to the result, with which the sum of the weights shows."""


class Row:
    """A request: its tensors for all tokens that it will ever have, and its blocks."""

    def __init__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: list[int]
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.blocks = blocks
        self.done = 0
        """Tokens that steps have computed."""


class Part(NamedTuple):
    """Tokens of a row in a step."""

    row: Row
    begin: int
    end: int


class PagedRows:
    """Rows of one layer. What is right is computed from the rows' own tensors, never from what
    the backend keeps; the pool is full of NaN and infinity where no row has written."""

    def __init__(
        self,
        backend: AttentionBackend,
        shape: Shape,
        *,
        seed: int,
        device: str,
        num_blocks: int = 64,
        poison: bool = True,
    ) -> None:
        """Whatever the backend raises when it refuses the shape."""
        self.backend, self.shape, self.device = backend, shape, device
        self.num_blocks = num_blocks
        self._generator = torch.Generator().manual_seed(seed)
        self.cache: Any = backend.allocate(num_blocks, shape.kv_heads, shape.size, shape.dtype)
        self.free = (torch.randperm(num_blocks - 1, generator=self._generator) + 1).tolist()
        self.sinks = self._rand(shape.heads) if shape.sinks else None
        self.scale = shape.size**-0.5 if shape.scale is None else shape.scale
        if poison:
            self.poison(self.free)

    def add(self, tokens: int) -> Row:
        """A request that will have so many tokens; it takes the blocks for them."""
        shape = self.shape
        count = math.ceil(tokens / shape.block_size)
        assert count <= len(self.free), "the suite itself asks for more blocks than there are"
        blocks = [self.free.pop() for _ in range(count)]
        return Row(
            self._rand(tokens, shape.heads, shape.size) * shape.loud,
            self._rand(tokens, shape.kv_heads, shape.size),
            self._rand(tokens, shape.kv_heads, shape.size) + shape.shift,
            blocks,
        )

    def release(self, row: Row) -> None:
        """Its blocks become free, with what is in them, and are the next to be taken."""
        self.free.extend(row.blocks)

    def poison(self, blocks: Sequence[int]) -> None:
        """Leave there what a request might that went wrong: NaN, infinity."""
        shape = self.shape
        count = len(blocks) * shape.block_size
        bad = torch.full((count, shape.kv_heads, shape.size), torch.nan)
        bad[1::2] = torch.inf
        bad = bad.to(shape.dtype).to(self.device)
        self.backend.write(
            self.cache, bad, bad.clone(), self.metadata_of([(list(blocks), 0, count)])
        )

    def metadata(self, parts: Sequence[Part], *, cut: bool = False) -> AttentionMetadata:
        """As a worker makes it. `cut`: blocks that left the window are given back, so that the
        null block 0 stands in their place."""
        rows = []
        for row, begin, end in parts:
            blocks = row.blocks[: math.ceil(end / self.shape.block_size)]
            if cut and self.shape.window is not None:
                gone = max(0, begin - self.shape.window + 1) // self.shape.block_size
                blocks = [0] * gone + blocks[gone:]
            rows.append((blocks, begin, end))
        return self.metadata_of(rows)

    def metadata_of(self, rows: Sequence[tuple[list[int], int, int]]) -> AttentionMetadata:
        """Of rows that are (blocks, first token, last token + 1)."""
        size = self.shape.block_size
        starts = [0, *itertools.accumulate(end - begin for _, begin, end in rows)]
        lengths = [end for _, _, end in rows]
        table = torch.zeros(len(rows), max(len(blocks) for blocks, _, _ in rows), dtype=torch.int64)
        for index, (blocks, _, _) in enumerate(rows):
            table[index, : len(blocks)] = torch.tensor(blocks)
        slots = [
            blocks[position // size] * size + position % size
            for blocks, begin, end in rows
            for position in range(begin, end)
        ]
        return AttentionMetadata(
            query_start=starts,
            seq_lens=lengths,
            max_query_len=max(end - begin for _, begin, end in rows),
            max_seq_len=max(lengths),
            block_tables=table.to(self.device),
            block_lists=[blocks for blocks, _, _ in rows],
            slot_mapping=torch.tensor(slots, device=self.device),
            seq_lens_tensor=torch.tensor(lengths, device=self.device),
            query_start_tensor=torch.tensor(starts, device=self.device),
        )

    def next_parts(self, counts: Sequence[tuple[Row, int]]) -> list[Part]:
        """The next so many tokens of each row."""
        parts = []
        for row, count in counts:
            parts.append(Part(row, row.done, row.done + count))
            row.done += count
        return parts

    def write(self, parts: Sequence[Part], metadata: AttentionMetadata) -> None:
        """Their keys and values into the cache."""
        key = torch.cat([row.key[begin:end] for row, begin, end in parts]).to(self.device)
        value = torch.cat([row.value[begin:end] for row, begin, end in parts]).to(self.device)
        self.backend.write(self.cache, key, value, metadata)

    def query(self, parts: Sequence[Part]) -> torch.Tensor:
        """[tokens, heads, size]"""
        return torch.cat([row.query[begin:end] for row, begin, end in parts]).to(self.device)

    def forward(
        self, parts: Sequence[Part], metadata: AttentionMetadata, query: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What the backend says, on the host."""
        out = self.backend.forward(
            self.query(parts) if query is None else query,
            self.cache,
            metadata,
            scale=self.scale,
            sliding_window=self.shape.window,
            soft_cap=self.shape.soft_cap,
            sinks=None if self.sinks is None else self.sinks.to(self.device),
        )
        return out.detach().cpu().clone()

    def step(self, counts: Sequence[tuple[Row, int]], what: str, *, cut: bool = False) -> None:
        """Computes the next tokens of rows and checks them."""
        parts = self.next_parts(counts)
        metadata = self.metadata(parts, cut=cut)
        self.write(parts, metadata)
        self.check(parts, self.forward(parts, metadata), what)

    def expected(self, parts: Sequence[Part]) -> torch.Tensor:
        """float64 [tokens, heads, size], by the definition."""
        return torch.cat([self._attend(part) for part in parts])

    def bound(self, parts: Sequence[Part]) -> float:
        """The largest error that rounding explains.

        Scores and sums are of float32: a dot product of n terms is off by at most n units of
        2**-24 of the sum of their sizes, and a weight by as much as its score, relatively. Weights,
        and the result, may be rounded to the type of the tensors, by half a unit each.
        """
        shape = self.shape
        keys = max(part.end for part in parts)
        score = max(float(self._largest_score(part)) for part in parts)
        value = max(float(part.row.value[: part.end].abs().max()) for part in parts)
        summed = (shape.size + keys) * 2.0**-24 * max(1.0, score)
        return 2 * value * (torch.finfo(shape.dtype).eps + summed)

    def check(self, parts: Sequence[Part], out: torch.Tensor, what: str) -> None:
        """AssertionError when it is not what the definition gives."""
        expected = self.expected(parts)
        query = (len(expected), self.shape.heads, self.shape.size)
        assert tuple(out.shape) == query, (
            f"{what}: forward gave {tuple(out.shape)} for a query {query}; both have one shape"
        )
        assert out.dtype == self.shape.dtype, (
            f"{what}: forward gave {out.dtype} for a query of {self.shape.dtype}"
        )
        bound = self.bound(parts)
        error = (out.double() - expected).abs().amax((1, 2))
        wrong = torch.nonzero(~(error <= bound)).flatten().tolist()
        if not wrong:
            return
        rows = [index for index, part in enumerate(parts) for _ in range(part.begin, part.end)]
        part = parts[rows[wrong[0]]]
        offset = wrong[0] - rows.index(rows[wrong[0]])
        raise AssertionError(
            f"{what}: {len(wrong)} of {len(error)} tokens are wrong; the first is the one at "
            f"position {part.begin + offset} in row {rows[wrong[0]]} of {len(parts)}, off by "
            f"{float(error[wrong[0]]):.2g} where rounding explains {bound:.2g}. Of {self._shown()}"
        )

    def _attend(self, part: Part) -> torch.Tensor:
        row, begin, end = part
        return attend(
            row.query[begin:end],
            row.key[:end],
            row.value[:end],
            begin,
            scale=self.scale,
            sliding_window=self.shape.window,
            soft_cap=self.shape.soft_cap,
            sinks=self.sinks,
        )

    def _largest_score(self, part: Part) -> torch.Tensor:
        """A bound of the sum of the sizes of a dot product's terms, times the scale."""
        query = torch.linalg.vector_norm(part.row.query[part.begin : part.end].double(), dim=-1)
        key = torch.linalg.vector_norm(part.row.key[: part.end].double(), dim=-1)
        largest: torch.Tensor = query.max() * key.max() * self.scale
        return largest

    def _shown(self) -> str:
        shape = self.shape
        plain = Shape()
        always = ("heads", "kv_heads", "size", "block_size")
        return ", ".join(
            f"{name} {value}"
            for name, value in shape._asdict().items()
            if name in always or value != getattr(plain, name)
        )

    def _rand(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator).to(self.shape.dtype)

"""A row's block table as runs of neighbouring blocks: each is one slice of the cache."""

from __future__ import annotations

from typing import NamedTuple

from hookspecs.contracts.attention import AttentionMetadata

__all__ = ["Run", "row_runs"]


class Run(NamedTuple):
    """Consecutive tokens of a row that also lie one after the other in the cache."""

    slot: int
    """Where the first lies: block id * block size + offset."""
    position: int
    """Position of the first in the row."""
    length: int
    """Tokens."""


def row_runs(
    metadata: AttentionMetadata, window: int | None, block_size: int
) -> list[tuple[Run, ...]]:
    """Of each row, in order, the runs of all tokens that at least one of its queries sees; kept
    in `metadata.cache`. What lies before the window or after the row's end is in no run."""
    key = f"runs:{window}"
    runs: list[tuple[Run, ...]] | None = metadata.cache.get(key)
    if runs is None:
        runs = []
        starts = metadata.query_start
        for row, (blocks, seq_len) in enumerate(
            zip(metadata.block_lists, metadata.seq_lens, strict=True)
        ):
            first_query = seq_len - (starts[row + 1] - starts[row])
            first_key = 0 if window is None else max(0, first_query - window + 1)
            runs.append(_runs(blocks, first_key, seq_len, block_size))
        metadata.cache[key] = runs
    return runs


def _runs(blocks: list[int], first: int, end: int, block_size: int) -> tuple[Run, ...]:
    runs: list[Run] = []
    index, last = first // block_size, (end - 1) // block_size
    position = first
    while index <= last:
        begin = index
        while index < last and blocks[index + 1] == blocks[index] + 1:
            index += 1
        index += 1
        stop = min(end, index * block_size)
        slot = blocks[begin] * block_size + position - begin * block_size
        runs.append(Run(slot, position, stop - position))
        position = stop
    return tuple(runs)

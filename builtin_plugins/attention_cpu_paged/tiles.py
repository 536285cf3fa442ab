"""Where a row's keys and values lie in the cache, in pieces that are read at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from hookspecs.contracts.attention import AttentionMetadata

__all__ = ["Tile", "row_tiles"]

_IN_PLACE = 128
"""Tokens. Every piece costs some ten operations whatever its size, by estimate as long as copying
this many tokens of a small model takes; where runs of neighbouring blocks are shorter on average,
the row is gathered instead."""

_LARGEST = 1024
"""Tokens, in rows of several queries: bounds the scores that lie in memory at once."""


class Tile(NamedTuple):
    """Consecutive tokens of a row."""

    slots: slice | torch.Tensor
    """Their places in the cache (block id * block size + offset): a slice is read in place, an
    int64 tensor [length] is gathered."""
    position: int
    """Position of the first in the row."""
    length: int

    def split(self) -> list[Tile]:
        """Itself, in pieces of at most `_LARGEST` tokens."""
        end = self.position + self.length
        begins = range(self.position, end, _LARGEST)
        return [self.cut(begin, begin + _LARGEST) for begin in begins]

    def cut(self, first: int, end: int) -> Tile:
        """What it has of positions first to end - 1; of length 0 or less when nothing."""
        begin = max(first, self.position) - self.position
        stop = min(end, self.position + self.length) - self.position
        slots = (
            slice(self.slots.start + begin, self.slots.start + stop)
            if isinstance(self.slots, slice)
            else self.slots[begin:stop]
        )
        return Tile(slots, self.position + begin, stop - begin)


def row_tiles(metadata: AttentionMetadata, window: int | None, block_size: int) -> list[list[Tile]]:
    """Of each row, in order, the tokens that at least one of its queries sees; kept in
    `metadata.cache`. What lies before the window or after the row's end is in no tile, so that
    not even a NaN there matters."""
    key = f"tiles:{window}"
    rows: list[list[Tile]] | None = metadata.cache.get(key)
    if rows is None:
        rows = metadata.cache[key] = []
        starts = metadata.query_start
        for row, (blocks, seq_len) in enumerate(
            zip(metadata.block_lists, metadata.seq_lens, strict=True)
        ):
            queries = starts[row + 1] - starts[row]
            first = 0 if window is None else max(0, seq_len - queries - window + 1)
            tiles = _tiles(blocks, first, seq_len, block_size)
            if queries > 1:
                tiles = [part for tile in tiles for part in tile.split()]
            rows.append(tiles)
    return rows


def _tiles(blocks: list[int], first: int, end: int, block_size: int) -> list[Tile]:
    """Tokens first to end - 1 of a row."""
    tiles: list[Tile] = []
    index, last = first // block_size, (end - 1) // block_size
    position = first
    while index <= last:
        begin = index
        while index < last and blocks[index + 1] == blocks[index] + 1:
            index += 1
        index += 1
        stop = min(end, index * block_size)
        slot = blocks[begin] * block_size + position - begin * block_size
        tiles.append(Tile(slice(slot, slot + stop - position), position, stop - position))
        position = stop
    if len(tiles) == 1 or end - first >= _IN_PLACE * len(tiles):
        return tiles
    begin = first // block_size
    slots = torch.tensor(blocks[begin : last + 1])[:, None] * block_size
    slots = (slots + torch.arange(block_size)).flatten()
    offset = first - begin * block_size
    return [Tile(slots[offset : offset + end - first], first, end - first)]

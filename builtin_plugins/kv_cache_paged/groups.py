"""What one KV cache group needs: geometry of blocks and windows, no state."""

from __future__ import annotations

from hookspecs.errors import ConfigError
from hookspecs.types.kv import KVCacheConfig

__all__ = ["GroupShape", "blocks_of", "group_shapes"]


def blocks_of(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)


class GroupShape:
    """One group of layers that share block tables.

    A token at position p of a group with window w attends to positions p - w + 1 to p. The
    next token to compute is at position `num_computed`, so what lies wholly before
    `num_computed - w + 1` is needed no more.
    """

    def __init__(
        self, index: int, window: int | None, block_size: int, max_num_batched_tokens: int
    ) -> None:
        self.window = window
        self.block_size = block_size
        self.key_suffix = index.to_bytes(4, "big")
        """Makes a block's key out of a hash: groups keep different layers of the same tokens."""
        self.lookback: int | None = None
        """Blocks before a block boundary that the token at the boundary needs; None: all."""
        self._most_blocks: int | None = None
        if window is not None:
            self.lookback = blocks_of(window - 1, block_size)
            # A step's tokens and the window before them, wherever block boundaries fall.
            self._most_blocks = blocks_of(window - 1 + max_num_batched_tokens, block_size) + 1

    def most_blocks(self, num_tokens: int) -> int:
        """The most blocks that a request of `num_tokens` tokens holds at a time."""
        blocks = blocks_of(num_tokens, self.block_size)
        return blocks if self._most_blocks is None else min(blocks, self._most_blocks)

    def first_needed(self, num_computed_tokens: int) -> int:
        """Index of the first block that the next token needs."""
        if self.window is None:
            return 0
        return max(0, num_computed_tokens - self.window + 1) // self.block_size


def group_shapes(config: KVCacheConfig, max_num_batched_tokens: int) -> tuple[GroupShape, ...]:
    """The groups of a cache. ConfigError if it has none, or a window below 1."""
    if not config.groups:
        raise ConfigError(
            "the KV cache has no groups: the `paged` manager serves models with attention layers"
        )
    for index, group in enumerate(config.groups):
        if group.sliding_window is not None and not group.sliding_window >= 1:
            raise ConfigError(
                f"sliding_window of KV cache group {index} is {group.sliding_window}; it must be "
                "None or at least 1"
            )
    return tuple(
        GroupShape(index, group.sliding_window, config.block_size, max_num_batched_tokens)
        for index, group in enumerate(config.groups)
    )

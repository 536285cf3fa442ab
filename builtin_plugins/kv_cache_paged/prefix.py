"""Search for the longest cached prefix over all KV cache groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from builtin_plugins.kv_cache_paged.groups import GroupShape
from builtin_plugins.kv_cache_paged.pool import NULL_BLOCK, BlockPool
from hookspecs.types.kv import CachedPrefix

__all__ = ["longest_prefix"]


def longest_prefix(
    pool: BlockPool, groups: Sequence[GroupShape], hashes: Sequence[bytes], limit: int
) -> CachedPrefix:
    """The longest prefix, of at most `limit` blocks, that every group can continue from.

    `hashes`: one a complete block, in order. A group with a window needs only the blocks that
    the window reaches back to. Each group is asked for its longest prefix within what the
    others accept, until all agree; the length only shrinks, so this ends. No side effects.
    """
    length = max(0, min(limit, len(hashes)))
    whole: dict[GroupShape, tuple[int, ...]] = {}
    for group in groups:
        if group.window is None:
            whole[group] = _leading(pool, group, hashes, length)
            length = len(whole[group])
    # A shorter prefix moves the window, so every window is asked again after one has cut it.
    # Groups without a window accept whatever is shorter.
    windowed = [group for group in groups if group.window is not None]
    while True:
        accepted = min(
            (_window_prefix(pool, group, hashes, length) for group in windowed), default=length
        )
        if accepted == length:
            break
        length = accepted
    if not length:
        return CachedPrefix()
    block_size = groups[0].block_size
    num_tokens = length * block_size
    return CachedPrefix(
        num_tokens=num_tokens,
        blocks=tuple(
            whole[group][:length]
            if group in whole
            else _blocks(pool, group, hashes[:length], group.first_needed(num_tokens))
            for group in groups
        ),
    )


def _leading(
    pool: BlockPool, group: GroupShape, hashes: Sequence[bytes], limit: int
) -> tuple[int, ...]:
    """The blocks of the longest prefix that is cached, at most `limit`."""
    suffix, find = group.key_suffix, pool.find
    blocks: list[int] = []
    for key in islice(hashes, limit):
        block = find(key + suffix)
        if block is None:
            break
        blocks.append(block)
    return tuple(blocks)


def _window_prefix(pool: BlockPool, group: GroupShape, hashes: Sequence[bytes], limit: int) -> int:
    """The longest prefix, of at most `limit` blocks, that a group with a window can continue
    from."""
    suffix, lookback = group.key_suffix, group.lookback or 0
    # From the right: the first run that covers the window is the longest prefix. A run that
    # reaches the first block needs no more.
    run = 0
    for index in range(limit - 1, -1, -1):
        if run >= lookback:
            return index + 1 + run
        run = run + 1 if pool.find(hashes[index] + suffix) is not None else 0
    return run


def _blocks(
    pool: BlockPool, group: GroupShape, hashes: Sequence[bytes], first_needed: int
) -> tuple[int, ...]:
    found = [pool.find(key + group.key_suffix) for key in hashes[first_needed:]]
    assert None not in found, "the prefix search returned blocks that are not cached"
    return (NULL_BLOCK,) * first_needed + tuple(block for block in found if block is not None)

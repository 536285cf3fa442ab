"""Search for the longest cached prefix over all KV cache groups."""

from __future__ import annotations

from collections.abc import Sequence

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
    for group in groups:
        if group.window is None:
            length = _group_prefix(pool, group, hashes, length)
    # A shorter prefix moves the window, so every window is asked again after one has cut it.
    # Groups without a window accept whatever is shorter.
    windowed = [group for group in groups if group.window is not None]
    while True:
        accepted = min(
            (_group_prefix(pool, group, hashes, length) for group in windowed), default=length
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
            _blocks(pool, group, hashes[:length], group.first_needed(num_tokens))
            for group in groups
        ),
    )


def _group_prefix(pool: BlockPool, group: GroupShape, hashes: Sequence[bytes], limit: int) -> int:
    """The longest prefix, of at most `limit` blocks, that one group can continue from."""
    suffix = group.key_suffix
    if group.lookback is None:
        for index in range(limit):
            if pool.find(hashes[index] + suffix) is None:
                return index
        return limit
    # From the right: the first run that covers the window is the longest prefix. A run that
    # reaches the first block needs no more.
    run = 0
    for index in range(limit - 1, -1, -1):
        if run >= group.lookback:
            return index + 1 + run
        run = run + 1 if pool.find(hashes[index] + suffix) is not None else 0
    return run


def _blocks(
    pool: BlockPool, group: GroupShape, hashes: Sequence[bytes], first_needed: int
) -> tuple[int, ...]:
    found = [pool.find(key + group.key_suffix) for key in hashes[first_needed:]]
    assert None not in found, "the prefix search returned blocks that are not cached"
    return (NULL_BLOCK,) * first_needed + tuple(block for block in found if block is not None)

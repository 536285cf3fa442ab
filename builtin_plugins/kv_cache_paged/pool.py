"""The block pool: who uses a block, what it holds, which one is given out next."""

from __future__ import annotations

from collections.abc import Mapping

from hookspecs.contracts.kv_cache import EvictionPolicy
from hookspecs.errors import ContractViolation, InternalError

__all__ = ["NULL_BLOCK", "BlockPool"]

NULL_BLOCK = 0
"""Stands in block tables where no block is needed; never given out, written or cached."""


class BlockPool:
    """Blocks 1 to num_blocks - 1 with reference counts, and an index from key to block.

    A block is in use (references > 0), or unused with a key (cached: the eviction policy holds
    it), or unused without one (the free list holds it). Several blocks may have one key: block
    tables are append-only, so requests that computed the same content at the same time, or did
    not look it up, each keep theirs. Only one of them stays when they are unused. Every operation
    takes the same time whatever the number of blocks and of equal ones, but `forget_all`,
    `forget_key` and `verify`. Core process, main thread.
    """

    def __init__(self, num_blocks: int, eviction: EvictionPolicy) -> None:
        # Lists and not dictionaries: 16 bytes a block, made in no time.
        self._references = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        # The last one is given out first, so that the blocks just released are reused.
        self._free: list[int] = []
        self._first_untouched = NULL_BLOCK + 1
        """This block and those after it were never given out."""
        self._eviction = eviction
        self._by_key: dict[bytes, int] = {}
        # Of keys that several blocks have: those that `find` does not return.
        self._duplicates: dict[bytes, dict[int, None]] = {}
        self.num_evictions = 0
        """Cached blocks given to other content, since start."""

    @property
    def num_total(self) -> int:
        """All blocks but the null block."""
        return len(self._references) - 1

    @property
    def num_free(self) -> int:
        """Blocks that `take` could give out, cached ones included."""
        return len(self._free) + len(self._references) - self._first_untouched + len(self._eviction)

    def references(self, block: int) -> int:
        """How many block tables name `block`."""
        return self._references[block]

    def find(self, key: bytes) -> int | None:
        """A block that holds the content of `key`, the same one until it is forgotten; None if
        none does."""
        return self._by_key.get(key)

    def take(self) -> int:
        """Give out a block with one reference: one that holds nothing, else the one that the
        eviction policy gives up. IndexError when none is left."""
        if self._free:
            block = self._free.pop()
        elif self._first_untouched < len(self._references):
            block = self._first_untouched
            self._first_untouched += 1
        else:
            block = self._eviction.pop()
            if not self._is_cached_and_unused(block):
                raise ContractViolation(
                    f"eviction policy {self._eviction.context.name!r} gave up block {block!r}, "
                    "which it was not given; pop() must return a block that was added and "
                    "neither removed nor popped since",
                    plugin=self._eviction.context.plugin or None,
                )
            self._forget(block)
            self.num_evictions += 1
        self._references[block] = 1
        return block

    def touch(self, block: int) -> None:
        """Add a reference to a block that `find` returned."""
        if self._references[block] == 0:
            self._eviction.remove(block)
        self._references[block] += 1

    def publish(self, block: int, key: bytes) -> None:
        """A used block is completely written: `find` may return it for `key`."""
        if self._keys[block] is not None:
            raise InternalError(f"block {block} is cached already; its key can not change")
        self._keys[block] = key
        if self._by_key.setdefault(key, block) != block:
            self._duplicates.setdefault(key, {})[block] = None

    def release(self, block: int, *, keep: bool = True) -> None:
        """Drop a reference. With the last one the block stays cached if it alone has its key.
        Without `keep` its content is forgotten: `find` does not return it any more, also while
        others still refer to it."""
        left = self._references[block] - 1
        if left < 0:
            raise InternalError(f"block {block} was released more often than it was taken")
        self._references[block] = left
        if not keep:
            self._forget(block)
        if left:
            return
        key = self._keys[block]
        if key is not None and key not in self._duplicates:
            self._eviction.add(block)
        else:
            self._forget(block)
            self._free.append(block)

    def forget_key(self, key: bytes) -> None:
        """Forget every block with a key. O(blocks with it)."""
        while (block := self._by_key.get(key)) is not None:
            self._forget(block)
            if self._references[block] == 0:
                self._eviction.remove(block)
                self._free.append(block)

    def forget_all(self) -> None:
        """Forget all cached content. No block may be in use. O(cached blocks)."""
        while len(self._eviction):
            block = self._eviction.pop()
            self._forget(block)
            self._free.append(block)

    def verify(self, expected: Mapping[int, int]) -> None:
        """Compare with `expected`, the references counted from block tables (block to count).

        O(num_blocks). Raises InternalError naming the first thing that does not add up.
        """
        if self._references[NULL_BLOCK] or self._keys[NULL_BLOCK] is not None:
            raise InternalError("the null block is in use or cached")
        cached = 0
        for block in range(NULL_BLOCK + 1, len(self._references)):
            found, wanted = self._references[block], expected.get(block, 0)
            if found != wanted:
                raise InternalError(
                    f"block {block} has {found} references, but {wanted} block tables name it"
                )
            key = self._keys[block]
            if key is not None and not self._is_indexed(block, key):
                raise InternalError(f"block {block} has a key under which it can not be found")
            cached += found == 0 and key is not None
        if cached != len(self._eviction):
            raise InternalError(
                f"{cached} unused blocks are cached, but the eviction policy holds "
                f"{len(self._eviction)}"
            )
        keyed = sum(key is not None for key in self._keys)
        indexed = len(self._by_key) + sum(map(len, self._duplicates.values()))
        if keyed != indexed:
            raise InternalError(f"{keyed} blocks have a key, but the index names {indexed}")
        self._verify_free_list(cached)

    def _verify_free_list(self, cached: int) -> None:
        if len(set(self._free)) != len(self._free):
            raise InternalError("a block is in the free list twice")
        for block in self._free:
            if self._references[block] or self._keys[block] is not None:
                raise InternalError(f"block {block} is in the free list, but in use or cached")
        used = sum(references > 0 for references in self._references)
        free = len(self._free) + len(self._references) - self._first_untouched
        if used + cached + free != self.num_total:
            raise InternalError(
                f"{used} used, {cached} cached and {free} free blocks do not add up "
                f"to {self.num_total}"
            )

    def _is_cached_and_unused(self, block: int) -> bool:
        return (
            NULL_BLOCK < block < len(self._references)
            and self._references[block] == 0
            and self._keys[block] is not None
        )

    def _is_indexed(self, block: int, key: bytes) -> bool:
        return self._by_key.get(key) == block or block in self._duplicates.get(key, ())

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is None:
            return
        self._keys[block] = None
        others = self._duplicates.get(key)
        if others is None:
            del self._by_key[key]
            return
        if self._by_key[key] == block:
            self._by_key[key] = others.popitem()[0]
        else:
            del others[block]
        if not others:
            del self._duplicates[key]

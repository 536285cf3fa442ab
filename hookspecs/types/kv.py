"""The KV cache: what layers need, how they are grouped, what a lookup found."""

from __future__ import annotations

import msgspec

__all__ = ["CachedPrefix", "KVCacheConfig", "KVCacheGroup", "KVLayerSpec"]


class KVLayerSpec(msgspec.Struct, frozen=True):
    """What one attention layer keeps for a token."""

    layer: int
    num_kv_heads: int
    head_size: int
    dtype: str
    """A torch dtype name, e.g. `float32`."""
    itemsize: int
    """Bytes of one element of that dtype."""
    sliding_window: int | None = None
    """A token attends to itself and the `sliding_window - 1` tokens before it; None: to all."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of key and value of one token."""
        return 2 * self.num_kv_heads * self.head_size * self.itemsize


class KVCacheGroup(msgspec.Struct, frozen=True):
    """Layers that share block tables, since they keep the same tokens."""

    layers: tuple[int, ...]
    sliding_window: int | None = None


class KVCacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the KV cache: one pool of blocks for all groups.

    A block holds `block_size` tokens of the layers of *one* group. Layer i of every group
    lies in buffer i: a block belongs to one group at a time, so buffers can be shared.
    """

    num_blocks: int
    """Blocks of the pool, with block 0, the null block that no request owns."""
    block_size: int
    """Tokens a block."""
    groups: tuple[KVCacheGroup, ...]
    bytes_per_block: int
    """Bytes of one block over all buffers."""

    @property
    def num_buffers(self) -> int:
        """Number of buffers: layers of the largest group."""
        return max((len(group.layers) for group in self.groups), default=0)


class CachedPrefix(msgspec.Struct, frozen=True):
    """The longest prefix of a request's tokens whose blocks are cached."""

    num_tokens: int = 0
    """A multiple of the block size, less than the number of tokens of the request."""
    blocks: tuple[tuple[int, ...], ...] = ()
    """Block ids, one tuple a group; 0 (null) where a window does not need the block."""

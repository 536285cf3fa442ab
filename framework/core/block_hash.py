"""Keys of cached blocks: a hash chain over tokens and everything that isolates them.

Made by the kernel, so that no cache manager or connector can forget a tenant's salt.
`hash(block) = SHA-256(parent, tokens as little-endian int32, extra)`; the first block's parent
is SHA-256 over the tagged cache salt and adapter. Each part is tagged and length-prefixed:
an adapter's name never looks like a salt. Core process.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from hookspecs.types.request import AdapterRef

__all__ = ["chain_root", "extend_hashes"]

_VERSION = b"framework-block-1"


def _tagged(tag: bytes, value: bytes) -> bytes:
    return tag + len(value).to_bytes(4, "little") + value


def chain_root(cache_salt: str, adapter: AdapterRef | None) -> bytes:
    """The parent of a request's first block."""
    parts = [_VERSION]
    if cache_salt:
        parts.append(_tagged(b"salt", cache_salt.encode()))
    if adapter is not None:
        parts.append(_tagged(b"adapter", adapter.name.encode()))
        parts.append(_tagged(b"version", adapter.version.encode()))
    return hashlib.sha256(b"".join(parts)).digest()


def extend_hashes(
    hashes: list[bytes],
    root: bytes,
    token_ids: Sequence[int],
    first: int,
    block_size: int,
    prompt_embeds: Any = None,
) -> None:
    """Append the hashes of the complete blocks in `token_ids`.

    `token_ids` are the tokens from position `first` on, which is `len(hashes) * block_size`.
    Positions below len(prompt_embeds) are identified by their embedding, not by a token id.
    """
    parent = hashes[-1] if hashes else root
    tokens = array("i", token_ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    written, step = tokens.tobytes(), tokens.itemsize * block_size
    for start in range(0, len(written) - step + 1, step):
        content = parent + written[start : start + step]
        if prompt_embeds is not None:
            position = first + start // tokens.itemsize
            embeds = prompt_embeds[position : position + block_size]
            if len(embeds):
                content += _tagged(b"embeds", hashlib.sha256(embeds.tobytes()).digest())
        parent = hashlib.sha256(content).digest()
        hashes.append(parent)

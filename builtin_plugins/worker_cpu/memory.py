"""How much memory the KV cache may take, and the lines that say so."""

from __future__ import annotations

import ctypes
import gc
import sys

import psutil

from hookspecs.types.kv import KVCacheConfig

__all__ = [
    "cache_line",
    "default_kv_bytes",
    "give_back",
    "kv_line",
    "too_much_line",
    "weights_line",
]

_KV_SHARE = 0.4
"""Of the memory that is free once the weights are loaded: the rest is for activations, and for
the other programs of the machine."""
_KV_MOST = 8 * 2**30
"""Bytes. On a machine with much memory a larger cache is a decision to be made on purpose."""


def default_kv_bytes() -> int:
    """The default share of the memory that is available now."""
    return min(int(psutil.virtual_memory().available * _KV_SHARE), _KV_MOST)


def give_back() -> None:
    """Return what is no longer referred to, to the system."""
    # Modules refer to each other in circles; and the C library keeps freed memory for itself.
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def weights_line(weight_bytes: int, format: str) -> str:
    """The ledger's line for the weights; `format`: how they are quantized, or their type."""
    return f"memory: weights {_mib(weight_bytes)} ({format})"


def kv_line(kv_bytes: int, configured: bool) -> str:
    """The ledger's line for what the KV cache may take."""
    if configured:
        return f"memory: up to {_mib(kv_bytes)} for the KV cache (cache.kv_bytes)"
    return (
        f"memory: up to {_mib(kv_bytes)} for the KV cache ({_KV_SHARE:.0%} of the available "
        f"memory, at most {_mib(_KV_MOST)}; set cache.kv_bytes to change it)"
    )


def too_much_line(kv_bytes: int) -> str | None:
    """A warning about a configured size; None where there is as much."""
    available = psutil.virtual_memory().available
    if kv_bytes <= available:
        return None
    return (
        f"cache.kv_bytes is {_mib(kv_bytes)}, but {_mib(available)} of memory are available: the "
        "system will end the engine, or swap, when the KV cache fills. Lower it"
    )


def cache_line(config: KVCacheConfig) -> str:
    """The ledger's line for the cache as it was allocated."""
    total = config.num_blocks * config.bytes_per_block
    return (
        f"memory: KV cache {_mib(total)}: {config.num_blocks} blocks of {config.block_size} "
        f"tokens, {config.bytes_per_block} bytes a block, {len(config.groups)} group(s)"
    )


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"

"""What an engine core tells its front ends when it is ready."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from framework.core.engine import EngineCore
from framework.plugins.manager import PluginManager
from hookspecs.types.kv import KVCacheConfig

__all__ = ["EngineInfo", "engine_info", "merged_info"]


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of an engine core, fixed from its start."""

    max_model_len: int
    """Prompt and output tokens of one request: the effective limit, everywhere the same."""
    cache_tokens: int
    """Most tokens that one request can hold in the KV cache; may be below max_model_len."""
    num_blocks: int
    """Blocks of the KV cache, without the null block."""
    block_size: int
    """Tokens a block."""
    worker: str
    """Name of the worker provider."""
    capabilities: frozenset[str] = frozenset()
    """WorkerCapability values of the worker."""
    plugins: frozenset[str] = frozenset()
    """Names of the plugins that the engine core uses."""


def engine_info(
    core: EngineCore, worker: str, kv_config: KVCacheConfig, plugins: PluginManager
) -> EngineInfo:
    """The facts of a core that `build_engine_core` made."""
    return EngineInfo(
        max_model_len=core.parts.max_model_len,
        cache_tokens=core.parts.cache_tokens,
        num_blocks=kv_config.num_blocks - 1,
        block_size=kv_config.block_size,
        worker=worker,
        capabilities=plugins.capabilities("worker", worker),
        plugins=plugins.used,
    )


def merged_info(infos: Sequence[EngineInfo]) -> EngineInfo:
    """Of several engine cores behind one front end: the limits that hold for each, and the
    blocks of all."""
    first = infos[0]
    return msgspec.structs.replace(
        first,
        max_model_len=min(info.max_model_len for info in infos),
        cache_tokens=min(info.cache_tokens for info in infos),
        num_blocks=sum(info.num_blocks for info in infos),
        capabilities=first.capabilities.intersection(*(info.capabilities for info in infos)),
    )

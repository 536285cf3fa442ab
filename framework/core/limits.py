"""The limit of prompt and output tokens: configured, of the model, of the cache. Core process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hookspecs.config import EngineConfig
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.worker import Worker
from hookspecs.errors import ConfigError
from hookspecs.types.kv import KVCacheConfig

__all__ = ["fit_model_len", "fitted_model_len", "nominal_model_len", "prefill_beside_decode"]


def nominal_model_len(config: EngineConfig, model: ResolvedModel) -> int:
    """`model.max_model_len`, or what the model was made for. ConfigError if it is more."""
    own = model.info.max_model_len
    wanted = config.model.max_model_len
    if wanted is not None and wanted > own:
        raise ConfigError(
            f"model.max_model_len is {wanted}, but {model.name!r} was made for {own} tokens; "
            f"give at most {own}"
        )
    return own if wanted is None else wanted


def fit_model_len(limit: int, can_ever_fit: Callable[[int], bool]) -> int:
    """The most tokens, up to `limit`, that one request can hold in an empty cache."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if can_ever_fit(middle):
            low = middle
        else:
            high = middle - 1
    return low


def fitted_model_len(
    config: EngineConfig,
    limit: int,
    cache_tokens: int,
    kv_config: KVCacheConfig,
    report: Callable[[str], None],
) -> int:
    """The effective limit: what was asked for, or, if nothing was, what the cache can hold.

    With a limit that was asked for and a smaller cache, requests that could grow beyond the
    cache are refused one by one.
    """
    if cache_tokens >= limit:
        return limit
    if cache_tokens < 2:
        raise ConfigError(
            f"the KV cache of {kv_config.num_blocks - 1} blocks of {kv_config.block_size} tokens "
            "can not hold a request; raise cache.num_blocks or cache.kv_bytes"
        )
    if config.model.max_model_len is not None:
        report(
            f"model.max_model_len is {limit} tokens, but the KV cache holds {cache_tokens} of one "
            "request; requests that could grow beyond are refused"
        )
        return limit
    report(
        f"the limit of prompt and output is {cache_tokens} tokens, not the model's {limit}: the "
        "KV cache holds no more (cache.num_blocks, cache.kv_bytes)"
    )
    return cache_tokens


def prefill_beside_decode(config: EngineConfig, workers: Sequence[Worker]) -> int | None:
    """The configured limit, else the least that a worker names."""
    configured = config.scheduler.prefill_beside_decode
    named = [worker.prefill_beside_decode for worker in workers] if configured is None else []
    return min((most for most in named if most is not None), default=configured)

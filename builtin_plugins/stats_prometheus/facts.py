"""Metrics whose labels are what they say: configuration and version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client.samples import Sample

from hookspecs.contracts.stats import StatLoggerContext
from hookspecs.version import API_VERSION

__all__ = ["facts"]

DISTRIBUTION: Final = "engine-framework"


def facts(context: StatLoggerContext, blocks: dict[str, int]) -> dict[str, list[Sample]]:
    """Name of a metric to samples. `blocks`: engine label to blocks of its cache, if known."""
    cache, model = context.config.cache, context.model
    cache_infos = [
        Sample(
            "framework_cache_config_info",
            {
                "model_name": model,
                "engine": engine,
                "manager": cache.manager,
                "block_size": str(cache.block_size),
                "num_blocks": str(blocks.get(engine) or cache.num_blocks or "auto"),
                "kv_dtype": str(cache.kv_dtype),
                "enable_prefix_caching": str(cache.enable_prefix_caching).lower(),
                "eviction": cache.eviction,
            },
            1.0,
        )
        for engine in map(str, context.engine_indexes)
    ]
    build_info = Sample(
        "framework_build_info",
        {
            "model_name": model,
            "version": _version(),
            "api_version": ".".join(map(str, API_VERSION)),
        },
        1.0,
    )
    return {"framework_cache_config_info": cache_infos, "framework_build_info": [build_info]}


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"

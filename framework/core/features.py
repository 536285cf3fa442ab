"""What the configuration asks for against what the selected plugins declare. Core process.

A feature asked for by name that a plugin, or this version, lacks refuses the start; one that is on
where possible is turned off with a line that names who lacks it. Nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from framework.plugins.manager import PluginManager
from hookspecs.config import EngineConfig, Switch
from hookspecs.contracts.executor import ExecutorCapability
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.contracts.model import LoaderCapability
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["check_features", "keeps_windows"]


class _Need(NamedTuple):
    kind: str
    name: str
    capability: str


def check_features(plugins: PluginManager, worker: str, report: Callable[[str], None]) -> None:
    """UnsupportedFeatureError for what was asked for and can not be done; lines for `report`
    about what is off or has no effect."""
    config = plugins.config
    executor, loader = config.executor, config.model.loader
    _refuse(config.parallel.data_parallel_size > 1, "parallel.data_parallel_size above 1")
    _refuse(bool(config.kv_transfer.connectors), "kv_transfer.connectors")
    _refuse(config.scheduler.async_stepping is Switch.ON, "scheduler.async_stepping = on")
    explicit = {
        "executor.tensor_parallel_size above 1": (
            executor.tensor_parallel_size > 1,
            [
                _Need("executor", executor.name, ExecutorCapability.TENSOR_PARALLEL),
                _Need("worker", worker, WorkerCapability.TENSOR_PARALLEL),
            ],
        ),
        "executor.pipeline_parallel_size above 1": (
            executor.pipeline_parallel_size > 1,
            [_Need("executor", executor.name, ExecutorCapability.PIPELINE_PARALLEL)],
        ),
        "model.quantization": (
            config.model.quantization is not None,
            # With `auto` the loader is chosen among those that declare it.
            [_Need("model_loader", loader, LoaderCapability.QUANTIZATION)]
            if loader != "auto"
            else [],
        ),
    }
    for setting, (wanted, needs) in explicit.items():
        lacking = _lacking(plugins, needs) if wanted else []
        if lacking:
            raise UnsupportedFeatureError(f"{setting} is not possible: {'; '.join(lacking)}")
    if config.cache.enable_prefix_caching:
        caching = _Need("kv_cache_manager", config.cache.manager, KVCacheCapability.PREFIX_CACHING)
        for line in _lacking(plugins, [caching]):
            report(f"prefix caching is off: {line}")
    for setting in _without_effect(config):
        report(f"{setting} is set, but has no effect in this version")


def keeps_windows(plugins: PluginManager, worker: str, report: Callable[[str], None]) -> bool:
    """Whether blocks that left a sliding window can be given up."""
    lacking = _lacking(
        plugins,
        [
            _Need(
                "kv_cache_manager",
                plugins.config.cache.manager,
                KVCacheCapability.SLIDING_WINDOW,
            ),
            _Need("worker", worker, WorkerCapability.SLIDING_WINDOW),
        ],
    )
    if lacking:
        report(f"sliding windows do not save cache memory: {'; '.join(lacking)}")
    return not lacking


def _without_effect(config: EngineConfig) -> list[str]:
    """Settings that differ from their defaults and that no part of this version reads."""
    sections = {
        "parallel": ("data_parallel_rank", "load_balancing", "balancer", "coordinator"),
        "kv_transfer": ("role",),
    }
    default = EngineConfig()
    return [
        f"{section}.{key}"
        for section, keys in sections.items()
        for key in keys
        if getattr(getattr(config, section), key) != getattr(getattr(default, section), key)
    ]


def _lacking(plugins: PluginManager, needs: list[_Need]) -> list[str]:
    return [
        f"{need.kind} {need.name!r} does not declare {need.capability}"
        for need in needs
        if need.capability not in plugins.capabilities(need.kind, need.name)
    ]


def _refuse(wanted: bool, setting: str) -> None:
    if wanted:
        raise UnsupportedFeatureError(f"{setting} is not supported by this version")

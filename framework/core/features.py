"""What the configuration asks for against what the selected plugins declare. Core process.

A feature asked for by name that a plugin lacks refuses the start; one that is on where possible is
turned off with a line that names who lacks it. Nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from framework.plugins.manager import PluginManager
from hookspecs.config import Switch
from hookspecs.contracts.executor import ExecutorCapability
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.contracts.model import LoaderCapability
from hookspecs.contracts.scheduler import SchedulerCapability
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["check_features"]


class _Need(NamedTuple):
    kind: str
    name: str
    capability: str


def check_features(plugins: PluginManager, worker: str, report: Callable[[str], None]) -> None:
    """UnsupportedFeatureError for what was asked for and can not be done; lines for `report`
    about what is off."""
    config = plugins.config
    executor, loader = config.executor, config.model.loader
    _refuse(config.parallel.data_parallel_size > 1, "parallel.data_parallel_size above 1")
    _refuse(bool(config.kv_transfer.connectors), "kv_transfer.connectors")
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
            [_Need("model_loader", loader, LoaderCapability.QUANTIZATION)],
        ),
        "scheduler.async_stepping = on": (
            config.scheduler.async_stepping is Switch.ON,
            _async_stepping(plugins, worker),
        ),
    }
    for setting, (wanted, needs) in explicit.items():
        lacking = _lacking(plugins, needs) if wanted else []
        if lacking:
            raise UnsupportedFeatureError(f"{setting} is not possible: {'; '.join(lacking)}")
    if config.scheduler.async_stepping is Switch.AUTO:
        lacking = _lacking(plugins, _async_stepping(plugins, worker))
        if lacking:
            report(f"asynchronous stepping is off: {'; '.join(lacking)}")
    if config.cache.enable_prefix_caching:
        caching = _Need("kv_cache_manager", config.cache.manager, KVCacheCapability.PREFIX_CACHING)
        for line in _lacking(plugins, [caching]):
            report(f"prefix caching is off: {line}")


def _async_stepping(plugins: PluginManager, worker: str) -> list[_Need]:
    config = plugins.config
    return [
        _Need("scheduler", config.scheduler.name, SchedulerCapability.ASYNC_STEPPING),
        _Need("executor", config.executor.name, ExecutorCapability.ASYNC_STEPPING),
        _Need("worker", worker, WorkerCapability.ASYNC_STEPPING),
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

"""Makes an engine core from the configuration and the selected plugins. Core process.

Order, which plugins may rely on: core halves of side channels, executor and workers (weights) with
their halves, KV cache, cache manager, policies, scheduler, engine commands; the model's files were
found before, by `framework.core.choice`. Every feature that a missing capability turns off is
reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import cast

from framework.core.choice import choose_loader, choose_worker, with_worker_hint
from framework.core.engine import EngineCore
from framework.core.features import check_features, keeps_windows
from framework.core.kv_setup import make_kv_config
from framework.core.limits import (
    fit_model_len,
    fitted_model_len,
    nominal_model_len,
    prefill_beside_decode,
)
from framework.core.parts import EngineParts
from framework.core.plugin_commands import PluginCommands
from framework.core.policy_stack import PolicyStack
from framework.core.request_processors import RequestProcessors
from framework.core.request_table import RequestTable
from framework.core.scheduler_view import SchedulerView
from framework.core.side_channels.core_side import CoreSide
from framework.core.side_channels.start import create_core_halves
from framework.core.side_channels.worker_side import with_side_channels
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from hookspecs.contracts.attention import AttentionBackend
from hookspecs.contracts.executor import Executor
from hookspecs.contracts.kv_cache import EvictionPolicy, KVCacheManager
from hookspecs.contracts.logits import Sampler, SamplerContext
from hookspecs.contracts.model import ModelLoader, ResolvedModel
from hookspecs.contracts.policy import SchedulingPolicy
from hookspecs.contracts.scheduler import Scheduler
from hookspecs.contracts.worker import Worker
from hookspecs.errors import (
    FrameworkError,
    ModelNotFoundError,
    ProviderError,
    UnsupportedModelError,
)
from hookspecs.events import EngineStarted, PluginFailed, WorkerReady
from hookspecs.types.kv import KVCacheConfig

__all__ = ["build_engine_core"]

Report = Callable[[str], None]
Progress = Callable[[str, float], None]


def build_engine_core(
    plugins: PluginManager,
    model: ResolvedModel,
    *,
    report: Report,
    progress: Progress,
    engine_index: int = 0,
    serving: bool = False,
) -> tuple[EngineCore, str, KVCacheConfig]:
    """The engine core, the name of its worker, and the shape of its cache. `serving`: others wait
    for each token, so that a step must not last long; else only the whole counts."""
    worker_name = choose_worker(plugins)
    limit = nominal_model_len(plugins.config, model)
    check_features(plugins, worker_name, report)
    workers: list[Worker] = []
    with ExitStack() as undo:
        side_channels = CoreSide(
            create_core_halves(plugins, engine_index), plugins.calls.on_plugin_failed
        )
        undo.callback(side_channels.close)
        executor = _make_executor(
            plugins,
            model,
            worker_name,
            limit,
            report,
            progress,
            workers,
            engine_index,
            side_channels.note_failure,
        )
        undo.callback(executor.shutdown)
        with _starting(plugins, worker_name):
            executor.start()
            kv_config = _plan_cache(plugins, executor, worker_name, limit, report)
            executor.initialize_kv_cache(kv_config)
        _announce_workers(plugins, workers)
        core = _build(
            plugins,
            model,
            executor,
            worker_name,
            limit,
            kv_config,
            report,
            engine_index,
            side_channels,
            prefill_beside_decode(plugins.config, workers if serving else ()),
        )
        undo.callback(core.shutdown, "start failed")
        _announce_engine(plugins, core, worker_name, kv_config)
        undo.pop_all()
    return core, worker_name, kv_config


@contextmanager
def _starting(plugins: PluginManager, worker_name: str) -> Iterator[None]:
    """What executor and worker raise at their start becomes ProviderError, as in `create`."""
    try:
        yield
    except (ModelNotFoundError, UnsupportedModelError) as error:
        said = with_worker_hint(str(error), plugins, worker_name)
        if said == str(error):
            raise
        raise type(error)(said) from error
    except FrameworkError:
        raise
    except Exception as error:
        name = plugins.plugin_of(error)
        choice = f"executor {plugins.config.executor.name!r}"
        raise ProviderError(
            f"{choice} could not start: {f'plugin {name!r} raised ' if name else ''}"
            f"{with_worker_hint(describe(error), plugins, worker_name)}",
            plugin=name or plugins.resolve("executor", plugins.config.executor.name).ref.name,
        ) from error


def _build(
    plugins: PluginManager,
    model: ResolvedModel,
    executor: Executor,
    worker_name: str,
    limit: int,
    kv_config: KVCacheConfig,
    report: Report,
    engine_index: int,
    side_channels: CoreSide,
    most_beside: int | None,
) -> EngineCore:
    config = plugins.config
    table = RequestTable(config.scheduler.max_num_seqs)
    eviction: EvictionPolicy = plugins.create(
        "eviction_policy", config.cache.eviction, num_blocks=kv_config.num_blocks
    )
    kv_cache: KVCacheManager = plugins.create(
        "kv_cache_manager",
        config.cache.manager,
        kv_config=kv_config,
        requests=table,
        eviction=eviction,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_model_len=limit,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
    )
    cache_tokens = fit_model_len(limit, kv_cache.can_ever_fit)
    max_model_len = fitted_model_len(config, limit, cache_tokens, kv_config, report)

    waiting: list[Scheduler] = []
    view = SchedulerView(
        table, kv_cache, lambda: waiting[0].num_waiting if waiting else 0, time.monotonic
    )
    policies: list[SchedulingPolicy] = [
        plugins.create("scheduling_policy", name) for name in config.scheduler.policies
    ]
    stack = PolicyStack(policies, view)
    scheduler: Scheduler = plugins.create(
        "scheduler",
        config.scheduler.name,
        requests=table,
        kv_cache=kv_cache,
        policies=stack,
        max_model_len=max_model_len,
        prefill_beside_decode=most_beside,
    )
    waiting.append(scheduler)
    by_phase = {
        "schedule": plugins.resolve("scheduler", config.scheduler.name),
        "update_from_output": plugins.resolve("scheduler", config.scheduler.name),
        "execute_model": plugins.resolve("executor", config.executor.name),
        "sample_tokens": plugins.resolve("executor", config.executor.name),
    }
    return EngineCore(
        EngineParts(
            config=config,
            model=model,
            max_model_len=max_model_len,
            cache_tokens=cache_tokens,
            table=table,
            kv_cache=kv_cache,
            scheduler=scheduler,
            policies=stack,
            executor=executor,
            view=view,
            side_channels=side_channels,
            calls=plugins.calls,
            phase_plugins={phase: found.ref.name for phase, found in by_phase.items()},
            make_commands=lambda engine: PluginCommands(plugins, engine, engine_index),
            plugin_of=plugins.plugin_of,
            worker_capabilities=plugins.capabilities("worker", worker_name),
            clock=time.monotonic,
            engine_index=engine_index,
        )
    )


def _announce_engine(
    plugins: PluginManager, core: EngineCore, worker_name: str, kv_config: KVCacheConfig
) -> None:
    """The engine is ready. Once what undoes it is in place: an observer may raise when debugging,
    and the user may interrupt."""
    config = plugins.config
    if plugins.calls.has_observers("on_engine_started"):
        plugins.calls.on_engine_started(
            EngineStarted(
                engine_index=core.parts.engine_index,
                model=core.parts.model.name,
                max_model_len=core.parts.max_model_len,
                num_blocks=kv_config.num_blocks - 1,
                block_size=kv_config.block_size,
                plugins={
                    "scheduler": config.scheduler.name,
                    "policies": ",".join(config.scheduler.policies),
                    "kv_cache_manager": config.cache.manager,
                    "executor": config.executor.name,
                    "worker": worker_name,
                    "side_channels": ",".join(config.engine.side_channels),
                },
            )
        )


def _announce_workers(plugins: PluginManager, workers: list[Worker]) -> None:
    """Workers in this process are ready; those of other processes say so themselves."""
    if plugins.calls.has_observers("on_worker_ready"):
        names = tuple(plugins.reply().plugins)
        for worker in workers:
            plugins.calls.on_worker_ready(
                WorkerReady(rank=worker.context.rank, device=worker.device, plugins=names)
            )


def _make_executor(
    plugins: PluginManager,
    model: ResolvedModel,
    worker_name: str,
    limit: int,
    report: Report,
    progress: Progress,
    workers: list[Worker],
    engine_index: int,
    tell: Callable[[PluginFailed], object],
) -> Executor:
    """The executor; the workers that it makes in this process are added to `workers`. `tell`: of
    worker halves of side channels, in the worker's thread."""
    config = plugins.config
    processors = RequestProcessors(plugins)

    @cache
    def loader_name(dtype: str, device: str) -> str:
        return choose_loader(plugins, model, dtype=dtype, device=device, report=report)

    def create_loader(*, dtype: str = model.info.dtype, device: str = "") -> ModelLoader:
        name = loader_name(dtype, device)
        return cast(ModelLoader, plugins.create("model_loader", name, progress=progress))

    def create_sampler(context: SamplerContext) -> Sampler:
        return cast(
            Sampler,
            plugins.create(
                "sampler",
                config.executor.sampler,
                vocab_size=context.vocab_size,
                max_num_seqs=context.max_num_seqs,
                device=context.device,
            ),
        )

    def create_attention(name: str, device: str) -> AttentionBackend:
        backend = plugins.create(
            "attention_backend", name, device=device, block_size=config.cache.block_size
        )
        return cast(AttentionBackend, backend)

    def create_worker(rank: int, local_rank: int, world_size: int) -> Worker:
        worker = plugins.create(
            "worker",
            worker_name,
            model=model,
            max_model_len=limit,
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            create_loader=create_loader,
            create_sampler=create_sampler,
            create_attention=create_attention,
            create_logits_processors=processors,
            report=report,
        )
        workers.append(with_side_channels(cast(Worker, worker), plugins, engine_index, tell))
        return workers[-1]

    return cast(
        Executor,
        plugins.create(
            "executor",
            config.executor.name,
            model=model,
            max_model_len=limit,
            create_worker=create_worker,
        ),
    )


def _plan_cache(
    plugins: PluginManager, executor: Executor, worker_name: str, limit: int, report: Report
) -> KVCacheConfig:
    config = plugins.config
    specs = executor.kv_layer_specs()
    windows = any(spec.sliding_window for spec in specs)
    return make_kv_config(
        specs,
        config.cache,
        available_bytes=executor.available_kv_bytes,
        windows=windows and keeps_windows(plugins, worker_name, report),
        max_useful_tokens=(
            None if config.cache.enable_prefix_caching else config.scheduler.max_num_seqs * limit
        ),
    )

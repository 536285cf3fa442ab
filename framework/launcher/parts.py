"""The parts of a front end: what it is made of, whatever client it has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from framework.core.info import EngineInfo
from framework.frontend.input_processor import InputProcessor
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.sinks import close_sink
from framework.frontend.stat_loggers import StatLoggerManager
from framework.frontend.tokenizer import Tokenizer, load_tokenizer
from framework.frontend.tracers import TracerManager
from framework.plugins.manager import PluginManager
from framework.plugins.report import call_stats
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.stats import StatLogger, Tracer
from hookspecs.info import ProcessRole
from hookspecs.types.stats import PluginCallStats

__all__ = ["FrontEndParts", "early_parts"]


class FrontEndParts(NamedTuple):
    """What can be made before the engine core is ready, so that a mistake does not cost the time
    of loading weights."""

    plugins: PluginManager
    model: ResolvedModel
    tokenizer: Tokenizer | None
    stat_loggers: StatLoggerManager
    tracers: TracerManager

    def processors(
        self, info: EngineInfo, *, client_index: int = 0
    ) -> tuple[InputProcessor, OutputProcessor]:
        """What needs the facts of the engine core. From here on statistics count: a long start
        is no time of requests."""
        self.stat_loggers.report_if_due()
        self.plugins.note_used(info.plugins)
        calls = self.plugins.calls
        return (
            InputProcessor(
                self.plugins.config,
                self.model,
                self.tokenizer,
                info,
                calls=calls,
                request_options=self.plugins.request_options(),
                logits_processors=[
                    found.provider.name for found in self.plugins.providers("logits_processor")
                ],
                client_index=client_index,
            ),
            OutputProcessor(self.tokenizer, calls=calls, tracing=bool(self.tracers.names)),
        )


def early_parts(
    plugins: PluginManager,
    model: ResolvedModel,
    undo: contextlib.ExitStack,
    *,
    elsewhere: Callable[[], Sequence[PluginCallStats]] = tuple,
    shared_dir: str | None = None,
    process_index: int = 0,
) -> FrontEndParts:
    """`undo` closes the stat loggers and tracers. `elsewhere`: what the plugins in other
    processes did. `shared_dir`: of all front-end processes, where there are several."""
    config = plugins.config
    process = str(ProcessRole.FRONTEND)
    if shared_dir is not None:
        process = f"{process}-{process_index}"
    tokenizer = load_tokenizer(config.model, model)

    def plugin_calls() -> list[PluginCallStats]:
        own = call_stats(plugins.report(), process)
        return [*own, *elsewhere()]

    loggers: dict[str, StatLogger] = {}
    for name in config.stats.loggers:
        loggers[name] = plugins.create(
            "stat_logger",
            name,
            engine_indexes=tuple(range(config.parallel.data_parallel_size)),
            model=model.name,
            max_model_len=config.model.max_model_len or model.info.max_model_len,
            shared_dir=shared_dir,
            process_index=process_index,
            plugin_calls=plugin_calls,
        )
        undo.callback(close_sink, "stat logger", name, loggers[name])
    tracers: dict[str, Tracer] = {}
    for name in config.stats.tracers:
        tracers[name] = plugins.create(
            "tracer", name, model=model.name, process_index=process_index
        )
        undo.callback(close_sink, "tracer", name, tracers[name])
    return FrontEndParts(
        plugins,
        model,
        tokenizer,
        StatLoggerManager(loggers, calls=plugins.calls, interval_s=config.stats.interval_s),
        TracerManager(tracers, calls=plugins.calls),
    )

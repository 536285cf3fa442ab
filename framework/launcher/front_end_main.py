"""Entry point of a front-end process: `python -m framework.launcher.front_end_main FD`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import msgspec

from framework.client.asynchronous import AsyncClient
from framework.client.links import EngineLinks
from framework.frontend.async_llm import AsyncLLM
from framework.frontend.service_info import PluginView
from framework.launcher.front_end import StopSign, run_front_end, run_loop
from framework.launcher.front_end_start import FrontEndStart
from framework.launcher.parts import early_parts
from framework.plugins.manager import PluginManager
from framework.process.child import Parent, run_child
from framework.process.exit_codes import ExitCode
from framework.process.messages import Stop
from framework.transport.runtime_dir import RuntimeDir

__all__ = ["main"]


def main() -> int:
    """Returns the exit code."""
    return run_child(_run)


def _run(parent: Parent) -> ExitCode:
    start = msgspec.msgpack.decode(parent.start.payload, type=FrontEndStart)
    plugins = PluginManager.from_boot(parent.boot)
    links = EngineLinks(
        client_index=start.process_index,
        num_engines=start.num_engines,
        runtime_dir=RuntimeDir.open(Path(parent.start.runtime_dir)),
        settings=plugins.config.engine,
        curve=start.curve,
    )
    with contextlib.closing(links), contextlib.ExitStack() as undo:
        parent.on_peer_died = lambda died: links.mark_dead(died.index, died.reason)
        parent.tell(links.address)
        parts = early_parts(
            plugins,
            start.model,
            undo,
            elsewhere=links.plugin_calls,
            shared_dir=start.shared_dir,
            process_index=start.process_index,
        )
        client = AsyncClient(links, links.wait_for_engines(), num_engines=start.num_engines)
        engine = AsyncLLM(
            client,
            *parts.processors(client.info, client_index=start.process_index),
            parts.stat_loggers,
            parts.tracers,
            PluginView(plugins),
        )
        undo.pop_all()  # from here on they are the front object's
        return run_loop(_serve(parent, start, client, engine, plugins))


async def _serve(
    parent: Parent,
    start: FrontEndStart,
    client: AsyncClient,
    engine: AsyncLLM,
    plugins: PluginManager,
) -> ExitCode:
    loop, stop = asyncio.get_running_loop(), StopSign()
    drain_s = plugins.config.serving.drain_timeout_s
    loop.add_signal_handler(signal.SIGTERM, stop.on_signal, drain_s)

    def on_stop(told: Stop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.stop, told.drain_s)

    parent.on_stop = on_stop
    parent.on_peer_died = lambda died: client.engine_died(died.index, died.reason)
    await engine.start()
    try:
        return await run_front_end(
            engine,
            plugins,
            listen_fd=start.listen_fd,
            process_index=start.process_index,
            stop=stop,
            serving=lambda: parent.ready(plugins.reply().encode()),
        )
    finally:
        await engine.shutdown()


if __name__ == "__main__":
    sys.exit(main())

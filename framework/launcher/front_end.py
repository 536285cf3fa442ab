"""Running the configured front end over an `AsyncLLM`, in whatever process that is.

Event loop. A front end runs until it is told to stop, or its engine is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from framework.frontend.async_llm import AsyncLLM
from framework.plugins.manager import PluginManager
from framework.process.exit_codes import ExitCode
from framework.process.garbage import start_spared
from hookspecs.contracts.frontend import Frontend, HttpRoutes
from hookspecs.errors import FrameworkError, ProviderError

__all__ = ["LAST_ANSWERS_S", "StopSign", "run_front_end", "run_loop"]

logger = logging.getLogger("framework")
LAST_ANSWERS_S: Final = 3.0
"""How long the front end of a dead engine still answers, so that callers and probes are told."""
_CLOSE_S: Final = 5.0


class StopSign:
    """That the front end is to stop. Event loop; see `asyncio.loop.call_soon_threadsafe`."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._now = asyncio.Event()
        self._signals = 0
        self.drain_s = 0.0

    def stop(self, drain_s: float) -> None:
        """Stop after `drain_s` seconds at the latest. Told again, only an end at once counts: a
        signal to all processes comes here, and once more by way of the parent."""
        if not self._told.is_set():
            self.drain_s = drain_s
            self._told.set()
        elif drain_s == 0.0:
            self._now.set()

    def on_signal(self, drain_s: float) -> None:
        """Stop by a signal: the second one means at once."""
        self.stop(0.0 if self._signals else drain_s)
        self._signals += 1

    async def told(self) -> None:
        """Returns when told for the first time."""
        await self._told.wait()

    async def told_at_once(self) -> None:
        """Returns when told to wait no longer."""
        await self._now.wait()


async def run_front_end(
    engine: AsyncLLM,
    plugins: PluginManager,
    *,
    listen_fd: int,
    process_index: int,
    stop: StopSign,
    serving: Callable[[], None],
) -> ExitCode:
    """Serve until `stop` says so or the engine is dead. `serving` is called once, when requests
    are taken. Raises what the front end raises."""
    routes = {
        name: cast(HttpRoutes, made).asgi() for name, made in _routes(plugins, engine).items()
    }
    frontend = cast(
        Frontend,
        plugins.create(
            "frontend",
            plugins.config.serving.frontend,
            engine=engine,
            listen_fd=listen_fd,
            routes=routes,
            process_index=process_index,
        ),
    )
    server = asyncio.create_task(_serve(frontend), name="front end")
    told = asyncio.create_task(stop.told())
    dead = asyncio.create_task(engine.failed())
    try:
        await asyncio.sleep(0)  # what is wrong at once is raised before anyone is told
        with start_spared():
            if not server.done():
                serving()
            await asyncio.wait({server, told, dead}, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
        # A signal to all processes ends engine cores, too; then that is no failure.
        if dead.done() and not told.done():
            logger.critical("the engine is dead, the server stops: %s", dead.result())
            await asyncio.wait({server, told}, timeout=LAST_ANSWERS_S)
            return ExitCode.ENGINE_FAILED
        await _drain(engine, stop, server)
        return ExitCode.STOPPED
    finally:
        ended_by_itself = server.done()
        for task in (told, dead, server):
            task.cancel()
        done, _ = await asyncio.wait({server}, timeout=_CLOSE_S)
        if not done:
            logger.warning("the front end did not end within %.0f s", _CLOSE_S)
        elif not ended_by_itself and not server.cancelled() and server.exception() is not None:
            logger.error("the front end has failed", exc_info=server.exception())


async def _serve(frontend: Frontend) -> None:
    await frontend.serve()
    raise FrameworkError("the front end has ended by itself")


async def _drain(engine: AsyncLLM, stop: StopSign, server: asyncio.Task[None]) -> None:
    """Let requests end, unless nobody can get their answers any more."""
    if engine.num_requests:
        logger.info(
            "stopping: %d requests get %.0f s to end; a second signal aborts them",
            engine.num_requests,
            stop.drain_s,
        )
    else:
        logger.info("stopping")
    drain = asyncio.create_task(engine.drain(stop.drain_s))
    again = asyncio.create_task(stop.told_at_once())
    await asyncio.wait({drain, again, server}, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not drain.done():
        drain.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drain
        await engine.drain(0.0)


def _routes(plugins: PluginManager, engine: AsyncLLM) -> dict[str, Any]:
    """By plugin. ProviderError when one plugin offers several."""
    made: dict[str, Any] = {}
    for found in plugins.providers("http_routes"):
        if found.ref.name in made:
            raise ProviderError(
                f"{found.ref} offers several HTTP routes; they are mounted by the plugin's name, "
                "so it can have one application only",
                plugin=found.ref.name,
            )
        made[found.ref.name] = plugins.create("http_routes", found.provider.name, engine=engine)
    return made


def run_loop(main: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """`asyncio.run`, on uvloop where that is installed. A task that does not end when it is
    cancelled is left behind with the process."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        code = runner.run(main)
        stuck = runner.run(_stuck_tasks())
        if stuck:
            logger.critical("tasks that do not end: %s; the process ends without them", stuck)
            logging.shutdown()
            os._exit(code)
        return code


async def _stuck_tasks() -> list[str]:
    """Names of the tasks that do not end although they are cancelled."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if not tasks:
        return []
    _, pending = await asyncio.wait(tasks, timeout=_CLOSE_S)
    return [task.get_name() for task in pending]

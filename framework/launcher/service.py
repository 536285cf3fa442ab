"""`serve`: a server, from a configuration to its exit code. Launcher process, main thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import msgspec

from framework.config import load_config, require_model
from framework.launcher.asynchronous import AsyncLaunch
from framework.launcher.front_end import StopSign, run_front_end, run_loop
from framework.launcher.listen import check_tls, listen, shown_address
from framework.launcher.processes import SIGNALS, serve_in_processes
from framework.launcher.sync import ConfigSource, no_progress
from framework.plugins.construct import import_target
from framework.plugins.manager import PluginManager
from framework.process.exit_codes import ExitCode
from framework.process.openmp import let_compute_threads_sleep
from framework.process.supervisor import StartUp
from hookspecs.config import EngineConfig, EngineProcess
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["serve"]

logger = logging.getLogger("framework")


def serve(
    config: ConfigSource = None,
    *,
    plugins: Sequence[object] = (),
    report: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
    serving: Callable[[str, PluginManager], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, see ExitCode.

    The first signal lets requests end, for `serving.drain_timeout_s` at most, the second aborts
    them. `serving` is told the address, once requests are taken. Otherwise as `launch`; the
    address is taken, and the front end imported, before the model is loaded.
    """
    let_compute_threads_sleep()
    resolved = load_config(config)
    require_model(resolved.config)
    if resolved.config.engine.process is EngineProcess.IN_PROCESS:
        raise UnsupportedFeatureError(
            "engine.process is in_process, but a server has its engine core in a process of its "
            "own; set it to auto or separate"
        )
    manager = PluginManager.build(_with_stat_loggers(resolved.config), objects=plugins)
    check_tls(manager.config.serving)
    import_target(manager.resolve("frontend", manager.config.serving.frontend))
    shown = StartUp(report or logger.info, progress or no_progress)
    with listen(manager.config.serving) as sock:

        def started() -> None:
            if serving is not None:
                serving(shown_address(sock, manager.config.serving), manager)

        if manager.config.serving.processes == 1:
            return run_loop(_serve_here(manager, sock, shown, started))
        with _terminated_as_interrupt():
            try:
                return serve_in_processes(manager, sock.fileno(), shown, started)
            except KeyboardInterrupt:  # while it started
                return ExitCode.STOPPED


def _with_stat_loggers(config: EngineConfig) -> EngineConfig:
    """The configuration with the stat loggers of a server among all others."""
    loggers = dict.fromkeys((*config.stats.loggers, *config.serving.stat_loggers))
    stats = msgspec.structs.replace(config.stats, loggers=tuple(loggers))
    return msgspec.structs.replace(config, stats=stats)


async def _serve_here(
    manager: PluginManager,
    sock: socket.socket,
    shown: StartUp,
    started: Callable[[], None],
) -> ExitCode:
    """The front end in this process."""
    loop, stop = asyncio.get_running_loop(), StopSign()
    launch = asyncio.create_task(AsyncLaunch(manager, shown.report, shown.progress).start())

    def end_start() -> None:
        stop.stop(0.0)  # should it have just started
        launch.cancel()
        # Fetching a model can not be interrupted; the next signal ends the process.
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, end_start)
    try:
        engine = await launch
    except asyncio.CancelledError:
        return ExitCode.STOPPED
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.on_signal, manager.config.serving.drain_timeout_s)
    try:
        return await run_front_end(
            engine,
            manager,
            listen_fd=sock.fileno(),
            process_index=0,
            stop=stop,
            serving=started,
        )
    finally:
        await engine.shutdown()


@contextlib.contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM while processes start ends the start as Ctrl-C does: what was started is ended."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

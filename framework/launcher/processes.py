"""A server whose front ends run in several processes. Launcher process, main thread."""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

from framework.core.choice import resolve_model
from framework.core.start import FrontEndAddress
from framework.launcher.front_end import LAST_ANSWERS_S
from framework.launcher.front_end_start import FrontEndStart
from framework.launcher.host import EngineHost
from framework.plugins.manager import PluginManager
from framework.process.exit_codes import ExitCode
from framework.process.messages import PeerDied
from framework.process.supervisor import Child, StartUp, stop_all, wait_all_ready
from hookspecs.contracts.model import ResolvedModel
from hookspecs.info import ProcessRole

__all__ = ["serve_in_processes"]

logger = logging.getLogger("framework")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_CLOSE_S: Final = 10.0

Event: TypeAlias = Child | tuple[int, str] | signal.Signals
"""A front end ended; an engine core ended (index, how); a signal came."""
Events: TypeAlias = queue.SimpleQueue[Event]


def serve_in_processes(
    manager: PluginManager, listen_fd: int, shown: StartUp, started: Callable[[], None]
) -> ExitCode:
    """`serving.processes` front ends, all behind one listening socket; this process starts
    them and the engine cores, and ends all of them when one has ended or a signal says so."""
    config = manager.config
    model = resolve_model(manager, shown.progress)
    events: Events = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        host = EngineHost(manager, model, num_engines=config.parallel.data_parallel_size)
        stack.callback(host.close)
        front_ends: list[Child] = []
        stack.callback(stop_all, front_ends)
        _start_front_ends(manager, model, host, listen_fd, events, front_ends)
        deadline = time.monotonic() + config.engine.start_timeout_s
        # They listen before the engine cores exist: these are told where.
        addresses = [each.told(FrontEndAddress, deadline, shown) for each in front_ends]
        host.start(addresses, lambda index, reason: events.put((index, reason)))
        wait_all_ready([*front_ends, *host.children], deadline, shown)
        with _signals_to(events):
            started()
            return _watch(events, front_ends, config.serving.drain_timeout_s)


def _start_front_ends(
    manager: PluginManager,
    model: ResolvedModel,
    host: EngineHost,
    listen_fd: int,
    events: Events,
    front_ends: list[Child],
) -> None:
    shared = Path(host.runtime_dir.sockets, "shared")
    shared.mkdir(mode=0o700)
    for index in range(manager.config.serving.processes):
        child = Child(
            "framework.launcher.front_end_main",
            name=f"front-end-{index}",
            index=index,
            boot=manager.boot(ProcessRole.FRONTEND),
            payload=FrontEndStart(
                model=model,
                process_index=index,
                num_engines=host.num_engines,
                listen_fd=listen_fd,
                shared_dir=str(shared),
                curve=host.curve,
            ),
            runtime_dir=str(host.runtime_dir.sockets),
            on_exit=events.put,
            pass_fds=[listen_fd],
        )
        front_ends.append(child)  # at once: whatever the next one raises, this one is ended


def _watch(events: Events, front_ends: Sequence[Child], drain_s: float) -> ExitCode:
    """Until something ends."""
    event = events.get()
    if isinstance(event, Child):
        logger.critical("the server stops: %s", event.describe_end())
        return ExitCode.ENGINE_FAILED
    if isinstance(event, signal.Signals):
        return _stop(events, front_ends, drain_s)
    _tell_death(front_ends, *event)
    # They answer their callers, then end by themselves.
    _wait(front_ends, LAST_ANSWERS_S + _CLOSE_S)
    return ExitCode.ENGINE_FAILED


def _stop(events: Events, front_ends: Sequence[Child], drain_s: float) -> ExitCode:
    """Requests get `drain_s` seconds; a second signal aborts them."""
    for each in front_ends:
        each.stop(drain_s)
    deadline = time.monotonic() + drain_s + _CLOSE_S
    while time.monotonic() < deadline and not _wait(front_ends, 0.1):
        with contextlib.suppress(queue.Empty):
            event = events.get_nowait()
            if isinstance(event, signal.Signals):
                for each in front_ends:
                    each.stop(0.0)
            elif not isinstance(event, Child):
                _tell_death(front_ends, *event)
    return ExitCode.STOPPED


def _tell_death(front_ends: Sequence[Child], engine_index: int, reason: str) -> None:
    logger.critical("the server stops: %s", reason)
    for each in front_ends:
        each.send(PeerDied(name=f"engine-core-{engine_index}", index=engine_index, reason=reason))


def _wait(children: Sequence[Child], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    return all(each.ended.wait(max(0.0, deadline - time.monotonic())) for each in children)


@contextlib.contextmanager
def _signals_to(events: Events) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        events.put(signal.Signals(number))

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

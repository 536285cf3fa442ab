"""`EngineHost`: what one launch owns outside of its own process: directory, keys, engine cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from framework.client.engine_processes import EngineProcesses
from framework.client.links import EngineLinks
from framework.core.start import FrontEndAddress
from framework.plugins.manager import PluginManager
from framework.process.supervisor import Child, StartUp
from framework.transport.curve import CurveKeys
from framework.transport.runtime_dir import RuntimeDir, sweep
from hookspecs.config import Transport
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import EngineDeadError

__all__ = ["EngineHost"]


class EngineHost:
    """Launcher process. Call `close` whatever happens."""

    def __init__(self, plugins: PluginManager, model: ResolvedModel, *, num_engines: int) -> None:
        """Removes what dead launches of this user have left, and makes this one's directory."""
        sweep()
        self.num_engines = num_engines
        tcp = plugins.config.engine.transport is Transport.TCP
        self.curve = CurveKeys.generate() if tcp else None
        self.runtime_dir = RuntimeDir.create()
        self._plugins = plugins
        self._model = model
        self._links: list[EngineLinks] = []
        self._processes: EngineProcesses | None = None
        self._lock = threading.Lock()
        self._given_up = False

    def link(self, client_index: int = 0) -> EngineLinks:
        """The sockets of a front end in this process; closed with the host."""
        links = EngineLinks(
            client_index=client_index,
            num_engines=self.num_engines,
            runtime_dir=self.runtime_dir,
            settings=self._plugins.config.engine,
            curve=self.curve,
        )
        self._links.append(links)
        return links

    def start(
        self, front_ends: Sequence[FrontEndAddress], on_death: Callable[[int, str], None]
    ) -> None:
        """Start the engine core processes, see `EngineProcesses`. EngineDeadError once the
        start was given up."""
        with self._lock:
            if self._given_up:
                raise EngineDeadError("the start was given up")
            self._processes = EngineProcesses(
                self._plugins,
                self._model,
                front_ends,
                num_engines=self.num_engines,
                runtime_dir=self.runtime_dir,
                curve=self.curve,
                on_death=on_death,
            )

    def wait_ready(self, shown: StartUp) -> None:
        """Until all engine cores are ready; raises the error of the first that fails."""
        assert self._processes is not None
        self._processes.wait_ready(shown)

    @property
    def children(self) -> list[Child]:
        """The processes of the engine cores, by index."""
        return [] if self._processes is None else self._processes.children

    def give_up(self) -> None:
        """End the start that another thread waits for: `wait_ready` raises there. Any thread."""
        with self._lock:
            self._given_up = True
        if self._processes is not None:
            self._processes.stop()

    def pids(self) -> list[int]:
        """Process ids of the engine cores, by index."""
        return [each.pid for each in self.children]

    def close(self, drain_s: float = 0.0) -> None:
        """End the engine cores, which get `drain_s` seconds, close the links, and remove the
        directory. Safe to call twice."""
        processes, self._processes = self._processes, None
        try:
            if processes is not None:
                processes.stop(drain_s)
        finally:
            for links in self._links:
                links.close()
            self.runtime_dir.remove()

"""`EngineProcesses`: the engine core processes of one launch. Launcher process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from framework.core.start import CoreStart, FrontEndAddress
from framework.plugins.manager import PluginManager
from framework.process.supervisor import Child, StartUp, stop_all, wait_all_ready
from framework.transport.curve import CurveKeys
from framework.transport.runtime_dir import RuntimeDir
from hookspecs.contracts.model import ResolvedModel
from hookspecs.info import ProcessRole

__all__ = ["EngineProcesses"]


class EngineProcesses:
    """One child an engine core."""

    def __init__(
        self,
        plugins: PluginManager,
        model: ResolvedModel,
        front_ends: Sequence[FrontEndAddress],
        *,
        num_engines: int,
        runtime_dir: RuntimeDir,
        curve: CurveKeys | None,
        on_death: Callable[[int, str], None],
    ) -> None:
        """Start the processes; they begin to load. `on_death`: (engine index, how it ended),
        called once for a process that ends without being asked to, in a thread of its own."""
        self._start_timeout_s = plugins.config.engine.start_timeout_s
        # With an executor that runs the worker in its own process, a core is a worker, too.
        boot = plugins.boot(ProcessRole.CORE, ProcessRole.WORKER)
        self.children: list[Child] = []
        try:
            for index in range(num_engines):
                self.children.append(
                    Child(
                        "framework.core.main",
                        name=f"engine-core-{index}",
                        index=index,
                        boot=boot,
                        payload=CoreStart(
                            model=model,
                            engine_index=index,
                            front_ends=tuple(front_ends),
                            curve=curve,
                        ),
                        runtime_dir=str(runtime_dir.sockets),
                        on_exit=lambda child: on_death(child.index, child.describe_end()),
                    )
                )
        except BaseException:
            self.stop()
            raise

    def wait_ready(self, shown: StartUp) -> None:
        """Until all are ready. Raises as `wait_all_ready`."""
        wait_all_ready(self.children, time.monotonic() + self._start_timeout_s, shown)

    def stop(self, drain_s: float = 0.0) -> None:
        """End all; requests get `drain_s` seconds. Safe to call twice."""
        stop_all(self.children, drain_s)

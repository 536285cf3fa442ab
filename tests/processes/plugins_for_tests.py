"""A plugin whose worker does what a test needs: it fails, blocks, prints, or answers strangely."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta

from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.frontend import Frontend, FrontendContext
from hookspecs.contracts.worker import WorkerContext, command
from hookspecs.errors import ConfigError, MissingDependencyError, UnsupportedModelError
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, RowFailure, SchedulerOutput

__all__ = ["DrillWorker", "drill"]


class _OwnConfigError(ConfigError):
    """A class that the kernel does not know, of a kind that it does."""


def _wait_for_ever() -> None:
    while True:
        time.sleep(60)


def _print() -> None:
    print("a library talks")


def _raise(error: Exception) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


_STARTS: Final[dict[str, Callable[[], None]]] = {
    "": lambda: None,
    "hang": _wait_for_ever,
    "print": _print,
    "config": _raise(ConfigError("cache.block_size is 3; the drill worker needs 4")),
    "own config": _raise(_OwnConfigError("a kind of ConfigError")),
    "dependency": _raise(MissingDependencyError("needs the package drillbit; install drill[bit]")),
    "model": _raise(UnsupportedModelError("architecture Scripted has no drill")),
    "defect": _raise(RuntimeError("the drill broke \udcff")),
}


class DrillOptions(ScriptedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.drill`."""

    start: Annotated[str, Meta(description="What load_model does, see _STARTS.")] = ""
    sign: Annotated[str, Meta(description="A file that load_model makes.")] = ""
    raise_at_step: Annotated[int, Meta(description="This step, from 1, raises.")] = 0
    fail_at_step: Annotated[int, Meta(description="All requests of this step fail, oddly.")] = 0
    block_at_step: Annotated[int, Meta(description="This step, from 1, waits for `gate`.")] = 0
    gate: Annotated[
        str,
        Meta(description="A file, at the sight of which the step goes on; it makes GATE.reached."),
    ] = ""
    step_s: Annotated[float, Meta(ge=0, description="Seconds that each step takes.")] = 0.0


class DrillWorker(ScriptedWorker):
    """The scripted worker, and the options above."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        assert isinstance(context.options, DrillOptions)
        self._drill: DrillOptions = context.options
        self._steps = 0
        self._scheduled: SchedulerOutput | None = None

    def load_model(self) -> None:
        if self._drill.sign:
            Path(self._drill.sign).touch()
        _STARTS[self._drill.start]()

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._scheduled = scheduled
        super().execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        self._steps += 1
        if self._steps == self._drill.raise_at_step:
            raise RuntimeError(f"the drill broke in step {self._steps}")
        if self._steps == self._drill.fail_at_step:
            assert self._scheduled is not None
            return ModelRunnerOutput(
                num_sampled=np.zeros(len(self._scheduled.slots), np.int32),
                token_ids=np.empty(0, np.int32),
                failures={
                    slot: RowFailure("broken \udcff", plugin="drill", poisoned=True)
                    for slot in self._scheduled.slots.tolist()
                },
            )
        time.sleep(self._drill.step_s)
        if self._steps == self._drill.block_at_step:
            Path(f"{self._drill.gate}.reached").touch()
            while not Path(self._drill.gate).exists():
                time.sleep(0.01)
        return super().sample_tokens(grammar)

    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        """The sum of all elements is the weight; without tensors the drill breaks."""
        if not tensors:
            raise RuntimeError("the drill broke with its weights")
        total = sum(int(np.asarray(tensor).sum()) for tensor in (tensors or {}).values())
        return super().update_weights(path, {"offset": np.array([total])})

    @command
    def nap(self, seconds: float) -> None:
        """Keeps the engine core busy."""
        time.sleep(seconds)

    @command
    def odd(self) -> Any:
        """What no message can hold."""
        return object()

    @command
    def large(self, size: int) -> Any:
        """So many bytes."""
        return bytes(size)

    @command
    def unspeakable(self) -> Any:
        """Raises what can not be shown."""

        class UnspeakableError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise UnspeakableError


class BrokenFrontend(Frontend):
    """Can not be made."""

    def __init__(self, context: FrontendContext) -> None:
        raise ConfigError(f"front end {context.process_index} has no door")

    async def serve(self) -> None: ...


class IdleFrontend(Frontend):
    """Serves nobody, until it is cancelled."""

    async def serve(self) -> None:
        await asyncio.Event().wait()


class DrillPlugin(EngineHooks):
    """Offers the worker `drill`, and what does not work."""

    PLUGIN = PluginInfo(name="drill", api=">=1.0,<2", description="For tests of processes.")

    @hookimpl
    def register_frontends(self) -> Iterable[Provider[Any]]:
        """A front end that can not be made, and one that does nothing."""
        yield Provider("drill-front", f"{__name__}:BrokenFrontend")
        yield Provider("drill-idle", f"{__name__}:IdleFrontend")

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Any]]:
        """The provider `drill`, and two that can not be made."""
        yield Provider(
            "drill",
            f"{__name__}:DrillWorker",
            options=DrillOptions,
            capabilities=CAPABILITIES,
            description="The scripted worker, with accidents.",
        )
        yield Provider("drill-lost", "tests.processes.no_such_module:Worker")
        yield Provider("drill-extra", "tests.processes.needs_drillbit:Worker", extra="bit")


drill = DrillPlugin()

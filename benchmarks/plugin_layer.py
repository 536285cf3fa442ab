"""Cost of the plugin layer in a step: hook calls and wrappers, against the step itself.

The step runs the kernel, the default scheduler and cache manager, and a worker that computes
nothing (`scripted` without verification). What the plugin layer adds is measured directly: the
calls that one step makes to it, in a loop of their own. The gate: under 2 % of a step at 1
running request, under 0.5 % at 256, with no observer installed.
"""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any

import framework
from benchmarks.measure import show, spread
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams
from framework.launcher import Engine
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import StepFinished

OBSERVERS = 5


class Observer:
    """An observer that does nothing."""

    def __init__(self, number: int) -> None:
        self.PLUGIN = PluginInfo(name=f"noop-{number}", api=">=1.0,<2")

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        """Nothing."""


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks plugin-layer", description=__doc__)
    add_arguments(parser, repeats=9, peers=False)
    arguments = parser.parse_args(argv)
    repeats = arguments.repeats
    print("microseconds")
    columns = ("running", "step", "layer, no observer", "share", "with 5 observers", "they add")
    table = Table("plugin-layer", columns, arguments)
    for running in (1, 8, 64, 256):
        with _launch(running, observers=0) as engine:
            step = _step_times(engine, running, repeats)
            layer = _layer_times(engine, repeats)
        with _launch(running, observers=OBSERVERS) as engine:
            observed = _step_times(engine, running, repeats)
        share = statistics.median(layer) / statistics.median(step)
        added = statistics.median(observed) - statistics.median(step)
        cells = (
            str(running),
            _us(step),
            _us(layer),
            f"{share:.2%}",
            _us(observed),
            f"{added * 1e6:.1f}",
        )
        table.row(cells, {"running": running, "step": step, "layer": layer, "observed": observed})
    return 0


def _launch(running: int, observers: int) -> Engine:
    return framework.launch(
        {
            "model": {"name": "scripted"},
            "executor": {"worker": "scripted"},
            "scheduler": {"max_num_seqs": running, "max_num_batched_tokens": 8192},
            "cache": {"num_blocks": 64 * running},
            "stats": {"loggers": []},
            # Of what is installed nothing takes part unasked, such as a sample that wraps phases.
            "plugins": {"activation": "none", "options": {"scripted": {"verify": False}}},
        },
        plugins=[Observer(number) for number in range(observers)],
    )


def _step_times(engine: Engine, running: int, repeats: int) -> list[float]:
    """Seconds of a decode step of the engine core, outputs bundled but not processed."""
    core = _core(engine)
    params = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True, detokenize=False)
    for number in range(running):
        engine.engine.add_request(f"r{number}", [1 + number % 90, 2, 3], params)
    for _ in range(5):
        core.step()
    return [_per_call(core.step, 40) for _ in range(repeats)]


def _layer_times(engine: Engine, repeats: int) -> list[float]:
    """Seconds of what one step asks of the plugin layer when nobody listens: whether anybody
    does, and the notes by which a failure is put down to a plugin."""
    core = _core(engine)
    announce, phases = core._announce, (*core.parts.phase_plugins, "schedule", "sample_tokens")

    def asks() -> None:
        try:
            for phase in phases:
                core._phase = phase
            _ = announce.wants_steps
        except BaseException as error:
            core._stop_because(core._phase, error)
            raise

    return [_per_call(asks, 2000) for _ in range(repeats)]


def _core(engine: Engine) -> Any:
    client: Any = engine.engine._client
    return client._core


def _per_call(call: Callable[[], object], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def _us(seconds: Sequence[float]) -> str:
    return show(spread([each * 1e6 for each in seconds]), 2)

"""Cost of the plugin layer in a step: hook calls and wrappers, against the step itself.

The step runs the kernel, the default scheduler and cache manager, and a worker that computes
nothing (`scripted` without verification). What the plugin layer adds is measured directly: the
calls that one step makes to it, in a loop of their own. The gate: under 2 % of a step at 1
running request, under 0.5 % at 256, with no observer installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import framework
from framework import SamplingParams
from framework.launcher import Engine
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import StepFinished

REPEATS = 9
OBSERVERS = 5


class Observer:
    """An observer that does nothing."""

    def __init__(self, number: int) -> None:
        self.PLUGIN = PluginInfo(name=f"noop-{number}", api=">=1.0,<2")

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        """Nothing."""


def main() -> None:
    """Print the table."""
    print("plugin layer, microseconds (median [min..max] of", REPEATS, "runs)")
    print("| running | step | layer, no observer | share | step with 5 observers | they add |")
    print("|---|---|---|---|---|---|")
    for running in (1, 8, 64, 256):
        with _launch(running, observers=0) as engine:
            step = _step_times(engine, running)
            layer = _layer_times(engine)
        with _launch(running, observers=OBSERVERS) as engine:
            observed = _step_times(engine, running)
        share = statistics.median(layer) / statistics.median(step)
        added = statistics.median(observed) - statistics.median(step)
        print(
            f"| {running} | {_show(step)} | {_show(layer)} | {100 * share:.2f} % "
            f"| {_show(observed)} | {added * 1e6:.1f} |"
        )


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


def _step_times(engine: Engine, running: int) -> list[float]:
    """Seconds of a decode step of the engine core, outputs bundled but not processed."""
    core = _core(engine)
    params = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True, detokenize=False)
    for number in range(running):
        engine.engine.add_request(f"r{number}", [1 + number % 90, 2, 3], params)
    for _ in range(5):
        core.step()
    return [_per_call(core.step, 40) for _ in range(REPEATS)]


def _layer_times(engine: Engine) -> list[float]:
    """Seconds of what one step asks of the plugin layer when nobody listens: whether anybody
    does, and the guards that attribute a failure to a plugin."""
    core = _core(engine)
    calls, guards = core.parts.calls, tuple(core._guards.values())

    def asks() -> None:
        calls.has_observers("on_step_finished")
        for _ in range(2):
            for guard in guards:
                with guard:
                    pass

    return [_per_call(asks, 2000) for _ in range(REPEATS)]


def _core(engine: Engine) -> Any:
    return engine.engine._client._core


def _per_call(call: Callable[[], object], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def _show(seconds: list[float]) -> str:
    median = statistics.median(seconds) * 1e6
    return f"{median:.2f} [{min(seconds) * 1e6:.2f}..{max(seconds) * 1e6:.2f}]"

"""Cost of a decode step of the engine core alone: no model, no front end, no process boundary.

The kernel, the scheduler `continuous`, the cache manager `paged` with its prefix cache, the
executor `uniproc`, and a worker that does nothing (`stub_worker`). All requests are running and
decode: prompts of 128 tokens, blocks of 16. What the worker takes is measured within the same
steps and shown apart. Prompts begin with lengths 128 to 143, so that about a sixteenth of the
requests complete a block in each step, as in an engine that has run for a while.
"""

from __future__ import annotations

import gc
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import framework
from benchmarks.engine_process import EngineProcess
from benchmarks.measure import LoadWatch, ratios, show, spread
from benchmarks.peer_core import ask_steps, peer_core
from benchmarks.peers import how_to_get
from benchmarks.stub_worker import PLUGINS
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams
from framework.launcher import Engine

__all__ = ["core_of", "launch_core", "main", "start_decoding"]

RUNNING = (1, 8, 64, 256, 1024)
STEPS = 640
WARM_UP = 64
PROMPT = 128
BLOCK = 16


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks core-steps", description=__doc__)
    add_arguments(parser, repeats=3)
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        columns = ["running", "step", "99 %", "worker", "rest", "rest a request"]
        peer, told = peer_core(arguments.peers), {}
        if peer is None:
            print(how_to_get("vllm"))
        else:
            stack.enter_context(peer)
            told = {"vllm": str(peer.facts["version"])}
            columns += ["vllm, rest", "ours / vllm"]
        print(f"microseconds; each repeat is the median of {STEPS} steps")
        table = Table("core-steps", columns, arguments, peers=told)
        for running in RUNNING:
            _compare(table, peer, running, arguments.repeats)
    return 0


def _compare(table: Table, peer: EngineProcess | None, running: int, repeats: int) -> None:
    """A row. `rest`: without what stands in the model's place, in both."""
    found: dict[str, list[float]] = {name: [] for name in ("step", "99 %", "worker", "rest")}
    theirs: list[float] = []
    with LoadWatch(f"{running} running") as watch:
        for _ in range(repeats):
            for name, value in _steps(running).items():
                found[name].append(value)
            if peer is not None:
                them = ask_steps(peer, running, steps=STEPS, warm_up=WARM_UP, prompt_tokens=PROMPT)
                theirs.append(_rest(them.seconds, them.stub))
    each = f"{spread(found['rest']).median / running:.2f}"
    cells = [str(running), *(show(spread(values)) for values in found.values()), each]
    if peer is not None:
        cells += [show(spread(theirs)), show(ratios(found["rest"], theirs), 2)]
    facts = {"running": running, **found, "vllm": theirs, "foreign_cores": watch.foreign}
    table.row(cells, facts)


def _steps(running: int) -> dict[str, float]:
    """Of an engine that is new: microseconds by what they are."""
    with launch_core(running) as engine:
        core = core_of(engine)
        start_decoding(engine, running, max_tokens=WARM_UP + STEPS + 64)
        worker = _WorkerClock(core)
        for _ in range(WARM_UP):
            core.step()
        steps: list[float] = []
        workers: list[float] = []
        gc.collect()
        for _ in range(STEPS):
            worker.seconds = 0.0
            begin = time.perf_counter()
            core.step()
            steps.append(time.perf_counter() - begin)
            workers.append(worker.seconds)
    return {
        "step": statistics.median(steps) * 1e6,
        "99 %": sorted(steps)[len(steps) * 99 // 100] * 1e6,
        "worker": statistics.median(workers) * 1e6,
        "rest": _rest(steps, workers),
    }


def _rest(steps: Sequence[float], inside: Sequence[float]) -> float:
    """Microseconds, the median of differences."""
    rest = (step - part for step, part in zip(steps, inside, strict=True))
    return statistics.median(rest) * 1e6


def launch_core(running: int, **sections: dict[str, Any]) -> Engine:
    """An engine for that many requests in its own process; `sections` override its settings."""
    settings: dict[str, dict[str, Any]] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "stub"},
        "engine": {"process": "in_process"},
        "scheduler": {"max_num_seqs": running, "max_num_batched_tokens": max(8192, 160 * running)},
        "cache": {"block_size": BLOCK, "num_blocks": 96 * running + 1},
        "stats": {"loggers": []},
        # Of what is installed nothing takes part unasked, such as a sample that wraps phases.
        "plugins": {"activation": "none"},
    }
    for section, values in sections.items():
        settings[section] = {**settings.get(section, {}), **values}
    return framework.launch(settings, plugins=PLUGINS)


def start_decoding(engine: Engine, running: int, *, max_tokens: int) -> None:
    """Start requests and compute their prompts; afterwards all of them decode."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    for number in range(running):
        prompt = [1 + (number * 131 + place * 17) % 900 for place in range(PROMPT + number % BLOCK)]
        engine.engine.add_request(f"r{number}", prompt, params)
    core_of(engine).step()


def core_of(engine: Engine) -> Any:
    """The engine core of an engine in this process."""
    client: Any = engine.engine._client
    return client._core


class _WorkerClock:
    """Adds up the time that is spent in the worker."""

    def __init__(self, core: Any) -> None:
        self.seconds = 0.0
        worker = core.parts.executor.worker
        for name in ("execute_model", "sample_tokens"):
            setattr(worker, name, self._timed(getattr(worker, name)))

    def _timed(self, call: Any) -> Any:
        clock = time.perf_counter

        def timed(argument: Any) -> Any:
            begin = clock()
            result = call(argument)
            self.seconds += clock() - begin
            return result

        return timed

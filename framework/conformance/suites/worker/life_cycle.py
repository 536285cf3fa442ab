"""Workers from their choice to their end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from framework.conformance.subject import Subject
from framework.conformance.suites.worker.base import Start, WorkerPart
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.noted_loader import LoaderNotes
from framework.conformance.worlds.workers import WorkerWorld
from framework.plugins.construct import import_target
from hookspecs.contracts.worker import Worker
from hookspecs.errors import FrameworkError
from hookspecs.types.kv import KVLayerSpec

__all__ = ["LifeCycle"]

CHEAP_LINES = 20_000
"""Lines of Python that `rate` may execute: looking for a package takes hundreds."""


class LifeCycle(WorkerPart):
    """A worker starts as it is configured, and ends without leaving anything."""

    def test_its_rate_is_cheap(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks how well this machine suits it, and counts the lines of Python that it takes.
        Must: give an int, the same each time, at the cost of a look at what is installed.
        """
        rate: Callable[[], int] = import_target(subject.found).rate
        first, second = rate(), rate()
        assert type(first) is int, f"rate gave {first!r}; it gives an int"
        assert first == second, f"rate gave {first}, then {second}"
        lines = lines_of(rate)
        assert lines <= CHEAP_LINES, f"rate executes {lines} lines; at most {CHEAP_LINES} are cheap"

    def test_it_asks_for_the_loader_that_it_needs(self, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: loads a model as float32 and as bfloat16, of which it is told that the checkpoint has
        float16, and compares what it asks `create_loader` for with what it has that loader load.
        Must: ask for a loader of the type in which it loads, and of that device if it names one,
        so that `auto` chooses one that can; a worker may refuse a type, or need no loader.
        """
        info = msgspec.structs.replace(world.model.info, dtype="float16")
        model = msgspec.structs.replace(world.model, info=info)
        for dtype in ("float32", "bfloat16"):
            config = world.sized(model={"dtype": dtype})
            notes = LoaderNotes(world.create_loader, info.dtype)
            worker = world.create(config, model=model, create_loader=notes)
            try:
                worker.init_device()
                with contextlib.suppress(FrameworkError):
                    worker.load_model()
            finally:
                worker.shutdown()
            for load in notes.loads:
                assert load.asked_dtype == load.dtype, (
                    f"with model.dtype = {dtype} it loads as {load.dtype}, but asked for a loader "
                    f"of {load.asked_dtype}, which may not take {load.dtype}"
                )
                assert load.asked_device in ("", load.device), (
                    f"it loads on {load.device!r}, but asked for a loader for {load.asked_device!r}"
                )

    def test_it_lives_twice(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: starts, generates and shuts down a worker, and another one after it.
        Must: describe its layers and device in the same way and give the same tokens both times.
        """
        lives = []
        for _ in range(2):
            bench = start()
            specs, device = bench.worker.kv_layer_specs(), bench.worker.device
            assert isinstance(device, str) and device, f"device is {device!r}; it is a name"
            assert specs and all(isinstance(spec, KVLayerSpec) for spec in specs), (
                f"kv_layer_specs gave {specs}; needed is a KVLayerSpec of each layer, at least one"
            )
            layers = [spec.layer for spec in specs]
            assert len(set(layers)) == len(layers), f"kv_layer_specs names a layer twice: {layers}"
            wrong = [spec for spec in specs if spec.bytes_per_token < 1]
            assert not wrong, (
                f"{wrong[:1]} keeps {wrong and wrong[0].bytes_per_token} bytes a token"
            )
            lives.append((specs, device, bench.run(world.asks(1))))
            bench.worker.shutdown()
        assert lives[0] == lives[1], "a second worker is not as the first one was"

    def test_shutdown_at_any_time(self, world: WorkerWorld, start: Start) -> None:
        """Requires nothing.
        Does: shuts down after the constructor, init_device, load_model, and after steps, twice each
        time.
        Must: give back what there is, and raise nothing: a start that fails half-way ends so.
        """
        for count in range(3):
            worker = world.create()
            for method in (worker.init_device, worker.load_model)[:count]:
                method()
            worker.shutdown()
            worker.shutdown()
        bench = start()
        bench.add(world.asks(1)[0])
        bench.kernel.step()
        bench.worker.shutdown()
        bench.worker.shutdown()

    def test_nothing_is_left(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: starts, generates, shuts down, and looks for threads and child processes.
        Must: leave none behind.
        """
        leftovers = Leftovers()
        bench = start()
        bench.run(world.asks(1))
        bench.worker.shutdown()
        names = leftovers.names()
        assert not names, f"these live on after the shutdown: {', '.join(names)}"

    def test_cache_bytes_are_as_configured(self, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: asks for the bytes of the KV cache, with `cache.kv_bytes` and without.
        Must: give the configured number, and without one some bytes.
        """
        for configured in (None, 123_456, 1 << 20):
            sections = {} if configured is None else {"kv_bytes": configured, "num_blocks": None}
            worker = world.create(world.sized(cache=sections))
            try:
                worker.init_device()
                worker.load_model()
                given = worker.available_kv_bytes()
            finally:
                worker.shutdown()
            assert type(given) is int and given > 0, f"available_kv_bytes is {given!r}"
            assert configured in (None, given), (
                f"available_kv_bytes is {given} with cache.kv_bytes = {configured}"
            )

    def test_it_knows_how_much_fits_beside_decodes(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing: a worker need not know.
        Does: reads `prefill_beside_decode` once the model is loaded, and once the worker is ready.
        Must: give an int of 1 or more, or None; the scheduler is told the least of all workers.
        """
        worker = world.create()
        try:
            worker.init_device()
            worker.load_model()
            loaded = worker.prefill_beside_decode
        finally:
            worker.shutdown()
        for most in (loaded, start().worker.prefill_beside_decode):
            assert most is None or (type(most) is int and most >= 1), (
                f"prefill_beside_decode is {most!r}; it is an int of 1 or more, or None"
            )

    def test_commands_are_marked(self, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: looks at all commands.
        Must: list those of the contract and its own, each marked with `command`; nothing else can
        be called from outside.
        """
        worker = world.create()
        commands = worker.commands()
        worker.shutdown()
        unmarked = [
            name for name, call in commands.items() if not hasattr(call, "__worker_command__")
        ]
        assert not unmarked, f"commands lists {unmarked}, which are not marked as commands"
        lost = sorted(_marked(Worker) - commands.keys())
        assert not lost, f"commands lacks {', '.join(lost)} of the contract"


def _marked(worker: type[Any]) -> set[str]:
    return {
        name for name in dir(worker) if hasattr(getattr(worker, name, None), "__worker_command__")
    }

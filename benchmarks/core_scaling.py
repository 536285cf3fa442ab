"""Cost of single operations of the engine core against the size of the system around them.

Each operation is measured at three sizes a hundred or a thousand times apart; `times` is its cost
over that at the smallest size: 1 is flat. The parts are those of a real engine core with the worker
`scripted`; what waits and what is cached is put there by the ordinary calls.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import numpy as np

from benchmarks.core_steps import core_of, launch_core
from benchmarks.measure import show, spread
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import EngineCoreRequest, FinishReason

__all__ = ["main"]

WAITING = (10, 1_000, 10_000)
BLOCKS = (1_000, 10_000, 100_000, 1_000_000)
BLOCK = 16
LONG = 32_768
"""Tokens of the prompt that is looked up."""
TIMES = 200
"""Calls of which a repeat takes the median."""

Operation = Callable[[int, int], dict[str, list[float]]]
"""(size, repeats) -> operation to microseconds of each repeat."""


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks core-scaling", description=__doc__)
    add_arguments(parser, repeats=3, peers=False)
    arguments = parser.parse_args(argv)
    print("microseconds a call")
    table = Table("core-scaling", ("operation", "with", "cost", "times"), arguments)
    plans: Sequence[tuple[Operation, str, Sequence[int]]] = (
        (_requests, "waiting", WAITING),
        (_admission("fcfs"), "waiting", WAITING),
        (_admission("priority"), "waiting", WAITING),
        (_admission("fair_share"), "waiting", WAITING),
        (_construction, "blocks", BLOCKS),
        (_blocks, "blocks", BLOCKS),
        (_lookups, "blocks", BLOCKS[1:]),
    )
    for operation, unit, sizes in plans:
        first: dict[str, float] = {}
        for size in sizes:
            for name, values in operation(size, arguments.repeats).items():
                found = spread(values)
                base = first.setdefault(name, found.median)
                cells = (name, f"{size:,} {unit}", show(found), f"{found.median / base:.2f}")
                table.row(cells, {"operation": name, "size": size, "unit": unit, "cost": values})
    return 0


# Requests beside others that wait


def _requests(waiting: int, repeats: int) -> dict[str, list[float]]:
    """Adding and aborting a request, and one that is added, run and finished by a step."""
    found: dict[str, list[float]] = {"add": [], "abort": [], "add, run and finish": []}
    with _core(max_num_seqs=1, policies=["priority"]) as core:
        wires = _wires()
        core.parts.policies.admit = lambda request: request.priority < 0
        for wire in islice(wires, waiting):
            core.add_request(wire)
        for _ in range(repeats):
            new = list(islice(wires, TIMES))
            found["add"].append(_median(core.add_request, new))
            handles = [[wire.handle] for wire in new]
            found["abort"].append(_median(core.abort_requests, handles))
            core.publish()

            def run(wire: EngineCoreRequest) -> None:
                core.add_request(wire)
                core.step()

            urgent = list(islice(_wires(priority=-1), TIMES))
            found["add, run and finish"].append(_median(run, urgent))
    return found


def _admission(policy: str) -> Operation:
    """A step of one running request that starts none of those that wait: since no slot is free,
    and since all are held back."""

    def measure(waiting: int, repeats: int) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for name, slots in (("slots full", 1), ("held back", 2)):
            with _core(max_num_seqs=slots, policies=[policy]) as core:
                core.add_request(next(_wires(max_tokens=repeats * TIMES + 100)))
                core.step()
                core.parts.policies.admit = lambda request: False
                for wire in islice(_wires(), waiting):
                    wire.tenant = f"tenant-{wire.handle % 16}"
                    core.add_request(wire)
                for _ in range(20):
                    core.step()
                found[f"step, {name}, {policy}"] = [
                    _median(lambda _: core.step(), range(TIMES)) for _ in range(repeats)
                ]
        return found

    return measure


# The block cache


def _construction(blocks: int, repeats: int) -> dict[str, list[float]]:
    """An empty cache: microseconds, and KiB."""
    found: dict[str, list[float]] = {"construct the cache": [], "the same, KiB": []}
    with _core(num_blocks=blocks) as core:
        kv = core.parts.kv_cache
        for _ in range(repeats):
            begin = time.perf_counter()
            type(kv)(kv.context)
            found["construct the cache"].append((time.perf_counter() - begin) * 1e6)
            tracemalloc.start()
            made = type(kv)(kv.context)
            found["the same, KiB"].append(tracemalloc.get_traced_memory()[0] / 1024)
            tracemalloc.stop()
            del made
    return found


def _blocks(blocks: int, repeats: int) -> dict[str, list[float]]:
    """Blocks for 128 tokens, completed and freed: with nothing cached, and with everything."""
    names = ("allocate, commit, free 8 blocks", "the same, evicting")
    found: dict[str, list[float]] = {name: [] for name in names}
    with _core(num_blocks=blocks) as core:
        for name, keep in zip(names, (False, True), strict=True):
            if keep:
                _fill(core, blocks)
            for number in range(repeats):
                prompts = [[9_000 + number, place] * (4 * BLOCK) for place in range(TIMES)]
                times = [_hold(core, prompt, keep=keep) for prompt in prompts]
                found[name].append(statistics.median(times) * 1e6)
    return found


def _lookups(blocks: int, repeats: int) -> dict[str, list[float]]:
    """The search for a prompt whose blocks are all cached, and for one that shares nothing."""
    found: dict[str, list[float]] = {}
    with _core(num_blocks=blocks, max_model_len=2 * LONG) as core:
        _fill(core, blocks)
        for name, first in (("hit", 7_001), ("miss", 7_002)):
            prompt = [first, *range(LONG - 1)]
            if name == "hit":
                _hold(core, prompt, keep=True)
            request, kv = core.prepare(_wire(prompt)), core.parts.kv_cache
            found[f"lookup of 32k tokens, {name}"] = [
                _median(kv.lookup, [request] * (TIMES // 10)) for _ in range(repeats)
            ]
    return found


def _fill(core: Any, blocks: int) -> None:
    """Cache other content in all blocks."""
    for number in range(-(-blocks // 128)):
        _hold(core, [number, *range(128 * BLOCK - 1)], keep=True)


def _hold(core: Any, prompt: list[int], *, keep: bool) -> float:
    """A request takes blocks for its prompt, completes them and ends, with its content kept or
    not; the seconds that it took the cache."""
    table, kv, request = core.parts.table, core.parts.kv_cache, core.prepare(_wire(prompt))
    table.enter(request)
    slot = table.start(request, 0)
    slots = np.array([slot], dtype=np.int32)
    begin = time.perf_counter()
    if kv.allocate(request, len(prompt), CachedPrefix()) is None:
        raise RuntimeError(f"no blocks for {len(prompt)} tokens; the cache is too small")
    allocated = time.perf_counter()
    table.advance(slots, np.array([len(prompt)], dtype=np.int32))
    advanced = time.perf_counter()
    kv.commit(slots)
    kv.free(slot, keep=keep)
    end = time.perf_counter()
    table.end(request, FinishReason.ABORT, None)
    table.leave(request)
    table.take_released()
    table.take_started()
    return allocated - begin + end - advanced


# Both


@contextmanager
def _core(
    *, max_num_seqs: int = 1, num_blocks: int = 4096, max_model_len: int = 8192, **scheduler: Any
) -> Iterator[Any]:
    """An engine core, which ends with what is left in it."""
    engine = launch_core(
        max_num_seqs,
        scheduler={"max_num_seqs": max_num_seqs, "max_num_batched_tokens": 8192, **scheduler},
        cache={"num_blocks": num_blocks},
        plugins={"options": {"scripted": {"verify": False, "max_model_len": max_model_len}}},
    )
    with engine:
        yield core_of(engine)


_handles = count()


def _wire(prompt: list[int], *, max_tokens: int = 1, priority: int = 0) -> EngineCoreRequest:
    handle = next(_handles)
    return EngineCoreRequest(
        request_id=f"r{handle}",
        handle=handle,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(temperature=0, max_tokens=max_tokens),
        arrival_time=0.0,
        priority=priority,
    )


def _wires(**fields: Any) -> Iterator[EngineCoreRequest]:
    """Requests of 16 tokens, without end."""
    while True:
        yield _wire([1 + place % 900 for place in range(BLOCK)], **fields)


def _median(call: Callable[[Any], object], arguments: Iterable[Any]) -> float:
    """Microseconds of a call."""
    times = []
    for argument in arguments:
        begin = time.perf_counter()
        call(argument)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6

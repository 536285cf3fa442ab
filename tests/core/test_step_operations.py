"""What a decode step does is bounded, counted in calls: so its cost can not creep up unseen.

Counted are the calls that our code makes in one step of the engine core with the scripted worker:
of Python functions and of functions in C, not what numpy calls inside of itself, nor operators.
The numbers are the same in every run. A bound that breaks says that a step does more than
before: look for what a step need not do (`python -m benchmarks core-steps` says what it costs in
time), or, if it has to, raise the bound in the same change that says why.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted

import builtin_plugins
import framework
import hookspecs

BLOCK = 16
OURS = tuple(str(Path(package.__path__[0])) for package in (framework, hookspecs, builtin_plugins))


class Calls:
    """Calls of one step, by the function called."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and frame.f_code.co_filename.startswith(OURS):
            self.made[argument.__qualname__] += 1
        elif event == "call":
            caller = frame.f_back
            name = frame.f_code.co_name
            ours = caller is not None and caller.f_code.co_filename.startswith(OURS)
            if ours and not name.endswith("_dispatcher"):  # numpy's, which comes and goes
                self.made[frame.f_code.co_qualname] += 1


@cache
def steps(running: int) -> tuple[Counter[str], Counter[str]]:
    """The calls of a step in which no request needs or completes a block, and of one in which
    all do one of these."""
    with launch_scripted(
        scripted={"verify": False},
        engine={"debug": False, "process": "in_process"},
        scheduler={"max_num_seqs": running, "max_num_batched_tokens": 64 * running},
        cache={"block_size": BLOCK, "num_blocks": 16 * running + 1},
    ) as engine:
        for number in range(running):
            prompt = [1 + number, *range(1, 2 * BLOCK)]
            engine.engine.add_request(f"r{number}", prompt, greedy(100))
        core = engine.engine._client._core  # type: ignore[attr-defined]
        counted = []
        for _ in range(2 * BLOCK):
            calls = Calls()
            sys.setprofile(calls)
            try:
                core.step()
            finally:
                sys.setprofile(None)
            counted.append(calls.made)
    counted = sorted(counted[BLOCK:], key=Counter.total)
    return counted[0], counted[-1]


def shown(calls: Counter[str]) -> str:
    return f"{calls.total()} calls; most often {calls.most_common(12)}"


@pytest.mark.parametrize(("running", "bound"), [(1, 180), (64, 240), (256, 440)])
def test_a_decode_step(running: int, bound: int) -> None:
    calls, _ = steps(running)
    assert calls.total() <= bound, f"{running} running: {shown(calls)}"


def test_a_request_more_costs_one_call_in_a_step() -> None:
    less, more = steps(64)[0].total(), steps(256)[0].total()
    assert more - less <= 1.0 * (256 - 64), f"64 running: {less} calls, 256: {more}"


def test_a_block_costs_few_calls() -> None:
    plain, completing = steps(64)
    assert completing.total() - plain.total() <= 22 * 64, shown(completing)

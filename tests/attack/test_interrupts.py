"""Ctrl-C at any line of a batch or stream: the engine goes on as if nothing had been asked."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from framework import SamplingParams

PARAMS = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True, detokenize=False)
STRIDE = 97
"""Lines between two places where the signal comes; a prime reaches all parts in time."""


class SignalAt:
    """A trace function that raises SIGINT before line number `at` of this project."""

    def __init__(self, at: int) -> None:
        self.lines, self.at = 0, at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return self.line if "framework/" in name or "builtin_plugins/" in name else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self.line


@pytest.fixture(autouse=True)
def python_handler() -> Iterator[None]:
    """A process that was started in the background may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.generate([[3, 4, 5, 6, 7], [7] * 9], PARAMS),
        lambda engine: list(engine.stream([3, 4, 5, 6, 7], PARAMS)),
    ],
    ids=["generate", "stream"],
)
def test_at_any_line(launch: Any, answer: Any, call: Callable[[Any], Any]) -> None:
    engine = launch()
    before = answer(engine)
    handler, tracer, at, interrupted = signal.getsignal(signal.SIGINT), sys.gettrace(), 1, 0
    while True:
        trace = SignalAt(at)
        sys.settrace(trace)
        try:
            call(engine)
            done = trace.lines < at
        except KeyboardInterrupt:
            done, interrupted = False, interrupted + 1
        finally:
            sys.settrace(tracer)
        assert signal.getsignal(signal.SIGINT) is handler
        assert answer(engine) == before
        if done:
            break
        at += STRIDE
    assert interrupted

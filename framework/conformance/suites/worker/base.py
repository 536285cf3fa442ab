"""What the parts of the suite of workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.workers import Ask, WorkerBench, WorkerWorld, world_of
from framework.launcher import Engine
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError

__all__ = [
    "REFUSALS",
    "Start",
    "WorkerPart",
    "a_prompt",
    "error_of",
    "expect_refused",
    "expect_same",
    "generated",
]

Start = Callable[..., WorkerBench]
REFUSALS = (InvalidRequestError, UnsupportedFeatureError)


class WorkerPart(Conformance):
    """A worker of the kit's model, or of the one that the settings name."""

    kind = "worker"

    @pytest.fixture
    def world(self, subject: Subject) -> WorkerWorld:
        """The worker's model and configuration."""
        return world_of(subject)

    @pytest.fixture
    def start(self, world: WorkerWorld) -> Iterator[Start]:
        """Makes workers that are ready for steps; they are shut down after the test."""
        benches: list[WorkerBench] = []

        def start(**sizes: Any) -> WorkerBench:
            benches.append(WorkerBench(world, **sizes))
            return benches[-1]

        yield start
        for bench in benches:
            bench.close()


def expect_same(
    given: Sequence[list[int]], wanted: Sequence[list[int]], asks: Sequence[Ask], where: str
) -> None:
    for tokens, right, ask in zip(given, wanted, asks, strict=True):
        assert tokens == right, (
            f"{where} a request with a prompt of {len(ask.prompt)} tokens got {tokens}; alone and "
            f"in one piece it gets {right}"
        )


def generated(engine: Engine, asks: Sequence[Ask]) -> list[list[int]]:
    params = [
        greedy(ask.params.max_tokens or 1, temperature=ask.params.temperature) for ask in asks
    ]
    outputs = engine.generate([ask.prompt for ask in asks], params)
    return [[*output.outputs[0].token_ids] for output in outputs]


def a_prompt(world: WorkerWorld) -> list[int]:
    return world.asks(0)[0].prompt


def error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def expect_refused(call: Callable[[], Any]) -> None:
    refused = error_of(call)
    assert isinstance(refused, REFUSALS), (
        f"what the worker does not declare gave {refused!r}; it is refused with "
        "UnsupportedFeatureError or InvalidRequestError"
    )

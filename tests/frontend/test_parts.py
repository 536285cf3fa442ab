"""A bundle that is processed in parts brings what it brings as a whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from framework import OutputKind, SamplingParams
from framework.frontend.output_batch import ProcessedOutputs

SCRIPTS = [[10, 11, 12], [20], [30, 31], [40, 41, 42, 43], [50], [60, 61]]


def processed(made: Any, max_outputs: int | None) -> tuple[list[list[ProcessedOutputs]], Any]:
    """The parts of every bundle of six requests, one of them with three outputs."""
    made.says(*SCRIPTS)
    for number in range(4):
        params = SamplingParams(
            n=3 if number == 1 else 1,
            temperature=1,
            logprobs=1,
            output_kind=OutputKind.DELTA,
            detokenize=False,
        )
        made.engine.add_request(str(number), [5, 6, 7], params)
    bundles = []
    while made.client.has_unfinished():
        outputs = made.client.get_outputs()
        parts = (
            [made.outputs.process(outputs)]
            if max_outputs is None
            else list(made.outputs.process_parts([outputs], max_outputs))
        )
        bundles.append(copy.deepcopy(parts))
    return bundles, made.outputs.num_requests


def tokens(bundles: list[list[ProcessedOutputs]]) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for part in (part for parts in bundles for part in parts):
        for output in part.request_outputs:
            for each in output.outputs:
                found.setdefault((output.request_id, each.index), []).extend(
                    zip(each.token_ids, each.logprobs or (), strict=True)
                )
    return found


@pytest.mark.parametrize("max_outputs", [1, 2, 3, 5, 6, 100])
def test_parts_are_the_whole(make: Callable[..., Any], max_outputs: int) -> None:
    whole, left = processed(make(), None)
    parts, also_left = processed(make(), max_outputs)
    assert left == also_left == 0
    assert tokens(parts) == tokens(whole)
    for bundle, (wanted,) in zip(parts, whole, strict=True):
        assert all(each.iteration == bundle[-1].iteration for each in bundle)
        assert bundle[-1].iteration == wanted.iteration
    assert len(parts[0]) >= -(-4 // max_outputs)
    assert all(len(part.request_outputs) <= max_outputs for bundle in parts for part in bundle)
    finished = [
        output.request_id
        for each in parts
        for part in each
        for output in part.request_outputs
        if output.finished
    ]
    assert sorted(finished) == ["0", "1", "2", "3"]

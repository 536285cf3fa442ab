"""Seeded sampling through the engine: what else runs, and how, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from framework import SamplingParams
from framework.launcher import Engine

VOCABULARY = 32
EVEN = [[0.0] * VOCABULARY]
SLOPED = [[i / 8 for i in range(VOCABULARY)], [-i / 8 for i in range(VOCABULARY)]]
PROMPTS = [[3 + i, *range(1, 6 + 5 * i)] for i in range(4)]
ROOMY: dict[str, dict[str, Any]] = {
    "cache": {"block_size": 16, "num_blocks": 64},
    "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 512},
}


def sampled(seed: int | None, rows: list[list[float]] = EVEN, **fields: Any) -> SamplingParams:
    fields = {"max_tokens": 16, "ignore_eos": True, "detokenize": False, **fields}
    return SamplingParams(seed=seed, extensions={"scripted": {"logits": rows}}, **fields)


VARIANTS = [
    sampled(1),
    sampled(2**64 - 1, SLOPED, temperature=0.7, top_k=20),
    sampled(-5, SLOPED, temperature=1.6, top_p=0.9, frequency_penalty=0.5),
    sampled(1, SLOPED, repetition_penalty=1.4, min_p=0.05),
]


def start(launch: Any, **sections: Any) -> Engine:
    engine: Engine = launch(scripted={"vocab_size": VOCABULARY}, **{**ROOMY, **sections})
    return engine


def tokens(engine: Engine, prompts: Sequence[list[int]], params: Any) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in engine.generate(prompts, params)]


@pytest.fixture
def alone(launch: Any) -> list[list[int]]:
    engine = start(launch)
    return [
        tokens(engine, [prompt], params)[0]
        for prompt, params in zip(PROMPTS, VARIANTS, strict=True)
    ]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize(
    ("cache", "scheduler"),
    [
        pytest.param({}, {}, id="batched"),
        pytest.param({}, {"max_num_seqs": 2}, id="two at a time"),
        pytest.param({}, {"max_num_batched_tokens": 3}, id="chunked"),
        pytest.param({}, {"long_prefill_token_threshold": 4}, id="prompts in pieces"),
        pytest.param({"block_size": 4, "num_blocks": 16}, {}, id="preempted"),
    ],
)
def test_one_seed_gives_one_output_however_it_runs(
    launch: Any,
    alone: list[list[int]],
    watcher: Any,
    cache: dict[str, Any],
    scheduler: dict[str, Any],
    caching: bool,
) -> None:
    engine = start(
        launch,
        cache={**ROOMY["cache"], **cache, "enable_prefix_caching": caching},
        scheduler={**ROOMY["scheduler"], **scheduler},
    )
    assert tokens(engine, PROMPTS, VARIANTS) == alone
    order = [2, 0, 3, 1]
    again = tokens(engine, [PROMPTS[i] for i in order], [VARIANTS[i] for i in order])
    assert again == [alone[i] for i in order]
    assert len(set(map(tuple, alone))) == len(alone)
    assert (watcher.num_preempted > 0) == (cache != {})


def test_n_outputs_of_one_seed_differ_and_repeat(launch: Any) -> None:
    engine = start(launch)
    params = msgspec.structs.replace(sampled(1), n=4)

    def four() -> list[list[int]]:
        (output,) = engine.generate([[1, 2, 3]], params)
        assert [completion.index for completion in output.outputs] == [0, 1, 2, 3]
        return [completion.token_ids for completion in output.outputs]

    first = four()
    assert len(set(map(tuple, first))) == 4
    assert four() == first
    # Each is what a request of its own gets with the seed plus its index.
    assert first == [tokens(engine, [[1, 2, 3]], sampled(1 + i))[0] for i in range(4)]


def test_n_outputs_without_a_seed_differ(launch: Any) -> None:
    engine = start(launch)
    (output,) = engine.generate([[1, 2, 3]], msgspec.structs.replace(sampled(None), n=4))
    assert len({tuple(completion.token_ids) for completion in output.outputs}) == 4


def test_requests_of_one_seed_are_equal_however_they_overlap(launch: Any) -> None:
    llm = start(launch).engine
    outputs: dict[str, list[int]] = {}
    for number in range(5):
        llm.add_request(f"r{number}", [1, 2, 3], sampled(7))
        for output in [*llm.step(), *llm.step()]:
            outputs[output.request_id] = output.outputs[0].token_ids
    while llm.has_unfinished_requests():
        for output in llm.step():
            outputs[output.request_id] = output.outputs[0].token_ids
    assert len(set(map(tuple, outputs.values()))) == 1
    assert [len(found) for found in outputs.values()] == [16] * 5


def test_a_neighbour_without_a_seed_leaves_the_seed_of_others_alone(launch: Any) -> None:
    engine = start(launch)
    (alone,) = tokens(engine, [[1, 2, 3]], sampled(42))
    others = set()
    for _ in range(10):
        pair = [[4, 5], [1, 2, 3], [6]]
        found = tokens(engine, pair, [sampled(None), sampled(42), sampled(None)])
        assert found[1] == alone
        others.update([tuple(found[0]), tuple(found[2])])
    assert len(others) == 20

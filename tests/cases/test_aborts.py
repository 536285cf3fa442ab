"""Many aborts at once, and ids that are used again."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs.types.sampling import OutputKind
from tests.core.scripted import greedy


def test_a_storm_of_aborts_leaves_the_survivors_alone(
    launch: Any, plain: Any, watcher: Any
) -> None:
    """200 requests in the queue, in their prompt and in their output, 20 times over."""
    engine = launch()
    llm = engine.engine
    survivors = {f"survivor {i}": [3 + i] * (2 + 9 * i) for i in range(4)}
    expected = {name: plain(engine, prompt, 9) for name, prompt in survivors.items()}
    for repeat in range(20):
        names = [f"{repeat}.{i}" for i in range(200)]
        for i, name in enumerate(names):
            llm.add_request(name, [1 + i] * (1 + i % 60), greedy(30))
            if i % 60 == repeat:
                for other, prompt in survivors.items():
                    if other not in llm._outputs:
                        llm.add_request(other, prompt, greedy(9))
        found: dict[str, Any] = {}
        for _ in range(repeat % 7):
            found.update((o.request_id, o) for o in llm.step() if o.finished)
        aborted = llm.abort_request([*names, "never seen"])
        assert all(output.finished for output in aborted)
        while llm.has_unfinished_requests():
            found.update((o.request_id, o) for o in llm.step() if o.finished)
        for name, tokens in expected.items():
            assert found[name].outputs[0].token_ids == tokens
    ended = [event.request_id for event in watcher.finished]
    assert len(ended) == len(set(ended))


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_new_request_under_the_id_of_an_aborted_one_gets_its_own_output(
    launch: Any, plain: Any, steps: int, watcher: Any
) -> None:
    """In the queue, in the prompt, in the output; a stop of the old one is still on its way."""
    engine = launch(scheduler={"max_num_seqs": 2})
    llm = engine.engine
    params = greedy(9, output_kind=OutputKind.DELTA)
    llm.add_request("x", [9] * 40, params)
    for repeat in range(30):
        for _ in range(steps):
            llm.step()
        (last,) = llm.abort_request("x")
        assert last.outputs[0].finish_reason == "abort"
        llm.add_request("x", [3 + repeat, 5], params)
    tokens: list[int] = []
    reasons = []
    while llm.has_unfinished_requests():
        for output in llm.step():
            tokens += output.outputs[0].token_ids
            reasons.append(output.outputs[0].finish_reason)
    assert tokens == plain(engine, [32, 5], 9)
    assert reasons == [None] * 8 + ["length"]
    assert len(watcher.finished) == 31


def test_an_abort_of_what_has_ended_is_ignored(launch: Any) -> None:
    llm = launch().engine
    llm.add_request("x", [1, 2], greedy(2))
    while llm.has_unfinished_requests():
        llm.step()
    assert llm.abort_request(["x", "x", "y"]) == []

"""n outputs of one request that ends early, and batches with a wrong prompt."""

from __future__ import annotations

from typing import Any

import pytest

from framework import SamplingParams
from hookspecs.errors import InvalidRequestError
from tests.core.scripted import greedy, tokens_of
from tests.idle import assert_idle

VOCABULARY = 32


@pytest.fixture
def engine(launch: Any) -> Any:
    return launch(scripted={"vocab_size": VOCABULARY})


def eight(**fields: Any) -> SamplingParams:
    return SamplingParams(
        n=8,
        seed=1,
        max_tokens=100,
        ignore_eos=True,
        detokenize=False,
        extensions={"scripted": {"logits": [[0.0] * VOCABULARY]}},
        **fields,
    )


def test_a_closed_stream_takes_all_its_outputs_with_it(engine: Any, watcher: Any) -> None:
    stream = engine.stream([1, 2, 3], eight())
    next(stream)
    stream.close()
    while engine.engine.has_unfinished_requests():
        engine.engine.step()
    assert_idle(engine)
    assert [str(event.finish_reason) for event in watcher.finished] == ["abort"] * 8


@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_an_abort_by_id_takes_all_outputs(engine: Any, watcher: Any, steps: int) -> None:
    llm = engine.engine
    llm.add_request("x", [1, 2, 3], eight())
    for _ in range(steps):
        llm.step()
    (last,) = llm.abort_request("x")
    assert last.finished
    assert [completion.finish_reason for completion in last.outputs] == ["abort"] * 8
    assert llm.num_requests == 0
    llm.add_request("x", [1, 2], greedy(2))
    while llm.has_unfinished_requests():
        llm.step()
    assert len(watcher.finished) == 9


@pytest.mark.parametrize("which", [0, 3, 7])
def test_a_cancel_while_outputs_are_being_submitted_leaves_none(
    engine: Any, watcher: Any, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    llm = engine.engine
    submit, count = llm._client.add_request, iter(range(8))

    def interrupted(request: Any) -> None:
        if next(count) == which:
            raise KeyboardInterrupt
        submit(request)

    with monkeypatch.context() as patch:
        patch.setattr(llm._client, "add_request", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.add_request("x", [1, 2, 3], eight())
    assert llm.num_requests == 0
    while llm.has_unfinished_requests():
        assert llm.step() == []
    assert_idle(engine)
    assert len(watcher.finished) == which


def test_outputs_that_end_apart_are_one_finished_request(engine: Any) -> None:
    (output,) = engine.generate([[1, 2, 3]], eight(stop_token_ids=[5, 6, 7]))
    assert output.finished
    lengths = [len(completion.token_ids) for completion in output.outputs]
    assert len(set(lengths)) > 1
    for completion in output.outputs:
        stopped = completion.token_ids[-1] in (5, 6, 7)
        assert completion.finish_reason == ("stop" if stopped else "length")
        assert not set(completion.token_ids[:-1]) & {5, 6, 7}


def test_one_prompt_that_is_too_long_refuses_the_batch_and_names_it(
    engine: Any, watcher: Any
) -> None:
    with pytest.raises(InvalidRequestError, match=r"prompt 1.*200.*128"):
        engine.generate([[1, 2], [3] * 200, [4, 5]], greedy(3))
    assert watcher.finished == []
    assert_idle(engine)


def test_outputs_come_in_the_order_of_the_prompts_whoever_ends_first(engine: Any) -> None:
    prompts = [[1 + i] * (1 + 7 * (i % 3)) for i in range(12)]
    params = [
        greedy(20, {"tokens": [3 + i] * (1 + 17 * i % 13)}, ignore_eos=False) for i in range(12)
    ]
    found = tokens_of(engine.generate(prompts, params))
    assert found == [[3 + i] * (1 + 17 * i % 13) + [2] for i in range(12)]

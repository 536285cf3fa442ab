"""What rows put out: the default rule, scripts, logits, failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import GrammarOutput

Drive = Callable[..., Any]


def _decode(worker: Any, slot: int, start: int, steps: int) -> list[int]:
    """Decode steps of one slot; its blocks must reach far enough."""
    tokens = []
    for position in range(start, start + steps):
        output = worker.step((slot, 1, position, True))
        assert output.num_sampled.tolist() == [1]
        tokens += output.token_ids.tolist()
    return tokens


def test_mixed_prefill_and_decode_steps(drive: Drive) -> None:
    worker = drive()
    a, b, c = [5, 6, 7], [10, 11, 12, 13, 14, 15], [9]
    expected = {0: worker.rule(a, 4), 3: worker.rule(b, 2), 1: worker.rule(c, 1)}
    # A whole prompt, and a part of one.
    out = worker.step(
        (0, 3, 0, True),
        (3, 4, 0, False),
        new=[worker.request(0, a, [1]), worker.request(3, b, [2])],
    )
    assert out.num_sampled.tolist() == [1, 0]
    assert out.token_ids.tolist() == expected[0][:1]
    # A decode, the rest of the prompt with a new block, a new prompt; other order of rows.
    out = worker.step(
        (3, 2, 4, True),
        (1, 1, 0, True),
        (0, 1, 3, True),
        new=[worker.request(1, c, [4])],
        blocks=[{3: [5]}],
    )
    assert out.num_sampled.tolist() == [1, 1, 1]
    assert out.token_ids.tolist() == [expected[3][0], expected[1][0], expected[0][1]]
    out = worker.step((0, 1, 4, True), (3, 1, 6, True), blocks=[{0: [6]}])
    assert out.token_ids.tolist() == [expected[0][2], expected[3][1]]
    assert out.failures == {}
    assert out.logprobs is None
    assert worker.samplers == 0


def test_the_default_rule_depends_on_every_token_and_its_place(drive: Drive) -> None:
    worker = drive(vocab_size=50000)
    prompts = [[1, 2, 3], [1, 2, 4], [2, 1, 3], [0, 2, 3], [1, 2, 3, 0], [0, 1, 2, 3], [3]]
    follow = [worker.rule(prompt, 1)[0] for prompt in prompts]
    assert len(set(follow)) == len(follow)


@pytest.mark.parametrize(("vocab_size", "eos"), [(2, 0), (2, 1), (3, 1), (10, 9), (10, 0)])
def test_the_default_rule_gives_every_token_but_the_end_token(
    drive: Drive, vocab_size: int, eos: int
) -> None:
    worker = drive(vocab_size=vocab_size, eos_token_id=eos)
    assert {*worker.rule([1], 150)} == {*range(vocab_size)} - {eos}


def test_resume_equals_undisturbed(drive: Drive) -> None:
    worker = drive()
    prompt = [5, 6, 7]
    expected = worker.rule(prompt, 8)
    out = worker.step((0, 3, 0, True), new=[worker.request(0, prompt, [1, 2, 3])])
    assert [*out.token_ids, *_decode(worker, 0, 3, 2)] == expected[:3]
    # Preempted, its blocks are used by another; then resumed elsewhere, in two chunks.
    worker.step((0, 2, 0, True), new=[worker.request(0, [8, 9], [1])], released=[0])
    known = prompt + expected[:3]
    worker.step((2, 4, 0, False), new=[worker.request(2, known, [4, 5, 6], prompt=3)])
    out = worker.step((2, 2, 4, True))
    assert [*out.token_ids, *_decode(worker, 2, 6, 4)] == expected[3:]


def test_token_scripts_end_with_the_end_token(drive: Drive) -> None:
    worker = drive(eos_token_id=7)
    script = {"tokens": [11, 7, 12]}
    out = worker.step((0, 2, 0, True), new=[worker.request(0, [1, 2], [1, 2], script=script)])
    assert [*out.token_ids, *_decode(worker, 0, 2, 4)] == [11, 7, 12, 7, 7]
    # A resumed request goes on where it was.
    resumed = worker.request(1, [1, 2, 11, 7], [3, 4], prompt=2, script=script)
    assert worker.step((1, 4, 0, True), new=[resumed]).token_ids.tolist() == [12]
    assert worker.samplers == 0


def test_end_token_after(drive: Drive) -> None:
    worker = drive()
    out = worker.step(
        (0, 2, 0, True), new=[worker.request(0, [1, 2], [1, 2], script={"eos_after": 2})]
    )
    assert [*out.token_ids, *_decode(worker, 0, 2, 2)] == [*worker.rule([1, 2], 2), 2]


def test_logits_scripts_go_through_the_sampler_and_repeat_the_last_row(drive: Drive) -> None:
    worker = drive(vocab_size=5)
    script = {"logits": [[0, 0, 0, 1, 0], [0, 0.5, 0, 0, 9]], "eos_after": 3}
    out = worker.step((0, 1, 0, True), new=[worker.request(0, [1], [1, 2], script=script)])
    assert [*out.token_ids, *_decode(worker, 0, 1, 3)] == [3, 4, 4, 2]
    assert worker.samplers == 1


def test_scripted_tokens_go_through_the_sampler_when_parameters_say_more(drive: Drive) -> None:
    worker = drive(vocab_size=20)
    script = {"tokens": [5, 6]}
    out = worker.step(
        *((slot, 1, 0, True) for slot in range(5)),
        new=[
            worker.request(0, [1], [1], script=script, logprobs=2),
            worker.request(1, [1], [2], script=script),
            worker.request(2, [1], [3], script=script, logit_bias={9: 100.0}),
            worker.request(3, [1], [4], script=script, allowed_token_ids=[7]),
            worker.request(4, [1], [5], script=script, temperature=1.0, seed=1, logprobs=0),
        ],
    )
    assert out.token_ids.tolist() == [5, 5, 9, 7, 5]
    assert out.logprob_rows.tolist() == [0, 4]
    assert out.logprobs.counts.tolist() == [3, 1]
    assert out.logprobs.token_ids.tolist()[:2] == [5, 5]


def test_a_request_that_is_not_greedy_is_sampled(drive: Drive) -> None:
    worker = drive(vocab_size=20)
    request = worker.request(0, [1], [1], script={"tokens": [5]}, temperature=2.0, seed=1)
    worker.step((0, 1, 0, True), new=[request])
    assert worker.samplers == 1


def test_rows_are_named_right_after_rows_without_a_token(drive: Drive) -> None:
    worker = drive(vocab_size=20)
    new = [
        worker.request(0, [1, 2], [1]),
        worker.request(1, [3], [2], script={"fail_at": 0}),
        worker.request(2, [4], [3], script={"tokens": [5]}, logprobs=0),
    ]
    out = worker.step((0, 1, 0, False), (1, 1, 0, True), (2, 1, 0, True), new=new)
    assert out.num_sampled.tolist() == [0, 0, 1]
    assert out.token_ids.tolist() == [5]
    assert out.logprob_rows.tolist() == [2]
    assert [*out.failures] == [1]


@pytest.mark.parametrize(
    "fields",
    [
        {"script": {"tokens": [5]}},
        {"script": {"tokens": [20]}},
        {"script": {"logits": [[0.0] * 20]}},
        {"logit_bias": {3: 100.0}},
        {"logprobs": 2},
        {"prompt_logprobs": 1},
    ],
)
def test_a_released_slot_keeps_nothing(drive: Drive, fields: dict[str, Any]) -> None:
    worker = drive(vocab_size=20)
    worker.step((0, 2, 0, True), new=[worker.request(0, [1, 2], [1], **fields)])
    out = worker.step((0, 2, 0, True), new=[worker.request(0, [3, 4], [1])], released=[0])
    assert out.token_ids.tolist() == worker.rule([3, 4], 1)
    assert out.failures == out.prompt_logprobs == {}
    assert out.logprobs is None


def test_min_tokens_hold_back_a_scripted_end_token(drive: Drive) -> None:
    worker = drive(vocab_size=20)
    request = worker.request(0, [1], [1, 2], script={"tokens": []}, min_tokens=2)
    out = worker.step((0, 1, 0, True), new=[request])
    assert [*out.token_ids, *_decode(worker, 0, 1, 2)] == [0, 0, 2]


def test_failing_rows_end_alone(drive: Drive) -> None:
    worker = drive(vocab_size=4)
    nan = [float("nan"), 0, 0, 0]
    good = [0, 3, 0, 0]
    out = worker.step(
        *((slot, 2, 0, True) for slot in range(5)),
        new=[
            worker.request(0, [1, 1], [1], script={"fail_at": 1}),
            worker.request(1, [1, 2], [2], script={"logits": [good, nan]}, logprobs=0),
            worker.request(2, [1, 3], [3]),
            worker.request(3, [1, 0], [4], script={"logits": [good]}, logprobs=0),
            worker.request(4, [1, 0], [5], allowed_token_ids=[]),
        ],
    )
    assert [*out.failures] == [4]
    assert not out.failures[4].poisoned
    assert out.num_sampled.tolist() == [1, 1, 1, 1, 0]
    assert len(out.token_ids) == 4
    expected = worker.rule([1, 3], 3)
    assert out.token_ids[2] == expected[0]
    for computed in (2, 3):  # the second step was scheduled before the failure was known
        out = worker.step(*((slot, 1, computed, True) for slot in (2, 1, 0, 3)))
        assert sorted(out.failures) == [0, 1]
        assert out.failures[0].poisoned
        assert "NaN" in out.failures[1].message
        assert out.num_sampled.tolist() == [1, 0, 0, 1]
        assert out.token_ids.tolist() == [expected[computed - 1], 1]
        assert out.logprob_rows.tolist() == [3]
    # Whoever gets the slots next is not affected.
    new = [worker.request(slot, [1, 3], [6 + slot]) for slot in (0, 1)]
    out = worker.step((0, 2, 0, True), (1, 2, 0, True), new=new, released=[0, 1])
    assert out.failures == {}
    assert out.token_ids.tolist() == [expected[0]] * 2


def test_a_script_that_raises(drive: Drive) -> None:
    worker = drive()
    worker.step((0, 1, 0, True), new=[worker.request(0, [1], [1], script={"raise_at": 1})])
    with pytest.raises(RuntimeError, match=r"slot 0.*output 1"):
        worker.step((0, 1, 1, True))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"tokens": [1, 10]}, "10 is not between 0 and 9"),
        ({"tokens": [-1]}, "-1"),
        ({"logits": [[0] * 10, [0] * 9]}, r"\[9, 10\]"),
    ],
)
def test_a_script_for_another_vocabulary_fails_its_request_only(
    drive: Drive, script: Any, message: str
) -> None:
    worker = drive(vocab_size=10)
    new = [worker.request(0, [1], [1], script=script), worker.request(1, [3], [2])]
    out = worker.step((0, 1, 0, True), (1, 1, 0, True), new=new)
    assert [*out.failures] == [0]
    assert not out.failures[0].poisoned
    assert re.search(message, out.failures[0].message)
    assert out.token_ids.tolist() == worker.rule([3], 1)


def test_prompt_logprobs_do_not_depend_on_chunks(drive: Drive) -> None:
    prompt = [5, 6, 7, 8, 9, 3]
    worker = drive(vocab_size=30)
    whole = worker.step(
        (0, 6, 0, True),
        (1, 1, 0, True),
        new=[
            worker.request(0, prompt, [1, 2], prompt_logprobs=2),
            worker.request(1, [4], [3], prompt_logprobs=1),
        ],
    ).prompt_logprobs
    assert whole[0].counts.tolist() == [0, 3, 3, 3, 3, 3]
    assert whole[1].counts.tolist() == [0]
    rows = whole[0].token_ids.reshape(5, 3)
    assert rows[:, 0].tolist() == prompt[1:]
    assert rows[:, 1].tolist() == [worker.rule(prompt[:i], 1)[0] for i in range(1, 6)]

    new = [worker.request(2, prompt, [4, 5], prompt_logprobs=2)]
    pieces = [
        worker.step((2, 3, 0, False), new=new).prompt_logprobs,
        worker.step((2, 2, 3, False)).prompt_logprobs,
        worker.step((2, 1, 5, True)).prompt_logprobs,
        worker.step((2, 1, 6, True)).prompt_logprobs,
    ]
    assert [[*piece] for piece in pieces] == [[2], [2], [], []]
    for field in ("counts", "token_ids", "logprobs", "ranks"):
        joined: Int32Column = np.concatenate([getattr(piece[2], field) for piece in pieces[:2]])
        assert joined.tolist() == getattr(whole[0], field).tolist()


def test_a_resumed_request_does_not_give_prompt_logprobs_again(drive: Drive) -> None:
    worker = drive(vocab_size=30)
    before = worker.request(0, [5, 6, 7], [1], prompt=3, prompt_logprobs=1)
    assert [*worker.step((0, 3, 0, True), new=[before]).prompt_logprobs] == [0]
    after = worker.request(0, [5, 6, 7, 8], [1], prompt=3, prompt_logprobs=1)
    out = worker.step((0, 4, 0, True), new=[after], released=[0])
    assert out.prompt_logprobs == {}
    assert out.token_ids.tolist() == worker.rule([5, 6, 7, 8], 1)


def test_a_step_without_rows_releases_slots(drive: Drive) -> None:
    worker = drive()
    worker.step((0, 1, 0, True), new=[worker.request(0, [1], [1])])
    out = worker.step(released=[0])
    assert out.num_sampled.tolist() == out.token_ids.tolist() == []
    out = worker.step((0, 1, 0, True), new=[worker.request(0, [3], [1])])
    assert out.token_ids.tolist() == worker.rule([3], 1)


def test_without_verification_the_outputs_are_the_same(drive: Drive) -> None:
    worker = drive(verify=False)
    out = worker.step((0, 3, 0, False), new=[worker.request(0, [4, 5, 6, 7], [])])
    assert out.num_sampled.tolist() == [0]
    out = worker.step((0, 1, 3, True))
    assert [*out.token_ids, *_decode(worker, 0, 4, 9)] == worker.rule([4, 5, 6, 7], 10)


def test_grammar_bitmasks_are_refused(drive: Drive) -> None:
    worker = drive()
    worker.step((0, 1, 0, True), new=[worker.request(0, [1], [1])])
    empty = np.zeros(0, dtype=np.int32)
    with pytest.raises(UnsupportedFeatureError, match="grammar"):
        worker.worker.sample_tokens(GrammarOutput(empty, empty))

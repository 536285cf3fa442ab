"""What the loader takes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from builtin_plugins.model_native.loader import NativeLoader
from builtin_plugins.model_native.plugin import plugin
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.model import (
    LoaderCapability,
    ModelInfo,
    ModelLoaderContext,
    ResolvedModel,
)
from hookspecs.errors import UnsupportedModelError
from tests.model_native.families import FAMILIES, WholeRows, directory, load
from tests.worker_cpu.families import Reference, resolved, save_model

Checkpoint = Callable[[str], ResolvedModel]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def _rate(model: ResolvedModel, **how: Any) -> int:
    return NativeLoader.rate(
        model, **{"dtype": "float32", "device": "cpu", "quantization": None, **how}
    )


def _rewrite(
    source: ResolvedModel,
    to: Path,
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]] = lambda weights: weights,
    **config: Any,
) -> ResolvedModel:
    """The checkpoint with other weights or another configuration."""
    given = json.loads((directory(source) / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(given | config))
    weights = change(load_file(directory(source) / "model.safetensors"))
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return msgspec.structs.replace(source, name=str(to), path=str(to))


def _logits(model: ResolvedModel) -> torch.Tensor:
    loaded = load(model)
    loaded.set_attention(WholeRows([9]))
    return loaded.forward(torch.arange(9) + 3, torch.arange(9), torch.arange(9))


def _expected(model: ResolvedModel) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = Reference(model).module(torch.arange(9)[None] + 3).logits[0]
    return logits


def test_provider() -> None:
    (provider,) = plugin.register_model_loaders()
    assert provider.name == "native"
    assert provider.capabilities == NativeLoader.capabilities == {LoaderCapability.QUANTIZATION}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_families_are_rated_high(family: str, checkpoint: Checkpoint) -> None:
    assert _rate(checkpoint(family)) > 10


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"dtype": "bfloat16"}, "it computes in float32, not in bfloat16"),
        ({"device": "cuda"}, "for the CPU, not for 'cuda'"),
        ({"quantization": "fp8"}, r"to int8, int4, gguf, not to 'fp8' \(model.quantization\)$"),
        ({"quantization": "INT8"}, r"not to 'INT8' \(model.quantization; did you mean int8\?\)$"),
    ],
)
def test_ways_that_are_refused(how: dict[str, Any], reason: str, checkpoint: Checkpoint) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        _rate(checkpoint("llama"), **how)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "does not serve architecture GemmaForCausalLM"),
        ({"architectures": None, "model_type": "mamba"}, "does not serve architecture mamba"),
        ({"model_type": "mistral"}, "does not serve architecture LlamaForCausalLM"),
        ({"hidden_act": "gelu"}, "SiLU, not 'gelu'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "the checkpoint is quantized"),
        ({"auto_map": {"AutoModelForCausalLM": "m.M"}}, "code of its own"),
        ({"head_dim": 7}, "it must be even"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "of type 'longrope'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}, "of type 'dynamic'"),
        ({"rope_parameters": {"full_attention": {}}}, "differ among layers"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "turn a part of each head"),
    ],
)
def test_configurations_that_are_refused(
    config: dict[str, Any], reason: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    model = _rewrite(checkpoint("llama"), tmp_path, **config)
    with pytest.raises(UnsupportedModelError, match=reason):
        _rate(model)
    with pytest.raises(UnsupportedModelError, match=f"loader `native`: .*{reason}"):
        load(model)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_attention_heads": 5}, "heads must be a multiple of kv heads"),
        ({"vocab_size": 2**31 - 1}, r"'model.embed_tokens.weight' .* \(2147483647, 40\)"),
        ({"hidden_size": 2**30}, r"'model.embed_tokens.weight' .* \(199, 1073741824\)"),
        ({"intermediate_size": 2**30}, r"gate_proj.weight' .*\(51, 40\).* \(1073741824, 40\)"),
        ({"num_attention_heads": 8}, r"q_proj.weight' .* \(80, 40\)"),
        ({"head_dim": 2**15}, r"q_proj.weight' .* \(131072, 40\)"),
        ({"num_key_value_heads": 1}, r"k_proj.weight' .* \(10, 40\)"),
        ({"num_hidden_layers": 2**16}, "lacks the weight 'model.layers.3.* with 65536 layers"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_sizes_that_are_refused(
    config: dict[str, Any], reason: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        load(_rewrite(checkpoint("llama"), tmp_path, **config))


def test_a_directory_is_needed(tmp_path: Path) -> None:
    info = ModelInfo(architecture="?", vocab_size=1, max_model_len=1)
    nowhere = ResolvedModel(name="m", path=None, tokenizer_path=None, info=info)
    with pytest.raises(UnsupportedModelError, match="no directory of files"):
        _rate(nowhere)
    with pytest.raises(UnsupportedModelError, match="the configuration can not be read"):
        _rate(msgspec.structs.replace(nowhere, path=str(tmp_path)))


def test_weights_are_needed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = _rewrite(checkpoint("llama"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match=r"has none of model\.safetensors"):
        _rate(model)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: {k: v for k, v in w.items() if k != HEAD}, "lacks the weight 'lm_head.weight'"),
        (lambda w: w | {"model.norm.weight": torch.ones(3)}, r"\(3,\); needed is .*\(40,\)"),
        (lambda w: w | {"model.norm.weight": torch.ones(40).int()}, "is torch.int32"),
    ],
)
def test_weights_that_do_not_fit(
    change: Any, reason: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        load(_rewrite(checkpoint("llama"), tmp_path, change))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_damaged_files(content: bytes, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = _rewrite(checkpoint("llama"), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(content or file.read_bytes()[:3000])
    with pytest.raises(UnsupportedModelError, match="damaged or incomplete"):
        load(model)


def test_several_files(tmp_path: Path) -> None:
    reference = Reference(save_model(tmp_path / "one", **FAMILIES["qwen3"]))
    parts = tmp_path / "parts"
    reference.module.save_pretrained(parts, max_shard_size=20_000)
    assert len(list(parts.glob("*.safetensors"))) > 3
    model = resolved(parts)
    assert _rate(model) > 10
    torch.testing.assert_close(_logits(model), _expected(model), rtol=1e-4, atol=1e-4)
    index = parts / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}))
    with pytest.raises(UnsupportedModelError, match="no index of safetensors files"):
        load(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: {name.removeprefix("model."): tensor for name, tensor in w.items()},
        lambda w: {HEAD if name == EMBEDDING else name: tensor for name, tensor in w.items()},
        lambda w: w | {HEAD: w[EMBEDDING].clone()},
        lambda w: w | {HEAD: 2 * w[EMBEDDING]},
        lambda w: {name: tensor.bfloat16() for name, tensor in w.items()},
        lambda w: w | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(11)},
    ],
    ids=["no prefix", "head alone", "head too", "another head", "bfloat16", "a name too many"],
)
def test_checkpoints_that_are_as_good(change: Any, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = _rewrite(checkpoint("llama_tied"), tmp_path, change)
    torch.testing.assert_close(_logits(model), _expected(model), rtol=1e-4, atol=1e-4)


def test_progress(checkpoint: Checkpoint) -> None:
    told: list[float] = []
    context = ModelLoaderContext(
        config=EngineConfig(model=ModelConfig(name="m")),
        progress=lambda what, fraction: told.append(fraction),
    )
    NativeLoader(context).load(checkpoint("llama"), dtype="float32", device="cpu")
    assert told[0] == 0.0 and told[-1] == 1.0 and told == sorted(told)

"""What the loader `transformers` makes of a checkpoint, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.utils import logging as transformers_logging

from builtin_plugins.model_transformers.loader import TransformersLoader
from builtin_plugins.model_transformers.plugin import plugin
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import LoadedModel, ModelInfo, ModelLoaderContext, ResolvedModel
from hookspecs.errors import UnsupportedModelError

SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}


def save(directory: Path, model_type: str, auto: Any = AutoModelForCausalLM, **fields: Any) -> Any:
    """A checkpoint with random weights; its module."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**SMALL, **fields})
    module = auto.from_config(config, dtype=torch.float32).eval()
    module.save_pretrained(directory)
    return module


def load(
    directory: Path | None,
    dtype: str = "float32",
    max_model_len: int | None = None,
    trust_remote_code: bool = False,
    progress: Callable[[str, float], None] = lambda what, fraction: None,
) -> LoadedModel:
    info = ModelInfo(architecture="?", vocab_size=99, max_model_len=64, hidden_size=32)
    path = None if directory is None else str(directory)
    config = EngineConfig(
        model=ModelConfig(
            name="m", max_model_len=max_model_len, trust_remote_code=trust_remote_code
        )
    )
    return TransformersLoader(ModelLoaderContext(config=config, progress=progress)).load(
        ResolvedModel(name="m", path=path, tokenizer_path=None, info=info),
        dtype=dtype,
        device="cpu",
    )


def causal(rows: list[int]) -> Any:
    """Attention over whole rows of the flattened batch, without a cache."""

    def attention(
        layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **how: Any
    ) -> torch.Tensor:
        groups = query.shape[1] // key.shape[1]
        parts = zip(*(torch.split(x, rows) for x in (query, key, value)), strict=True)
        return torch.cat(
            [
                torch.nn.functional.scaled_dot_product_attention(
                    q.transpose(0, 1),
                    k.transpose(0, 1).repeat_interleave(groups, 0),
                    v.transpose(0, 1).repeat_interleave(groups, 0),
                    is_causal=True,
                    scale=how["scale"],
                ).transpose(0, 1)
                for q, k, v in parts
            ]
        )

    return attention


def test_provider() -> None:
    (provider,) = plugin.register_model_loaders()
    assert provider.name == "transformers"
    assert provider.capabilities == TransformersLoader.capabilities == frozenset()


def test_flattened_batch(tmp_path: Path) -> None:
    module = save(tmp_path, "llama", tie_word_embeddings=True)
    model = load(tmp_path)
    model.set_attention(causal([5, 3]))
    tokens, positions = torch.arange(8) + 3, torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    rows = torch.tensor([7, 1])
    logits = model.forward(tokens, positions, rows)
    assert logits.dtype == torch.float32 and logits.shape == (2, 99)
    with torch.inference_mode():
        first, second = module(tokens[None, :5]).logits[0], module(tokens[None, 5:]).logits[0]
    torch.testing.assert_close(logits, torch.stack([second[2], first[1]]), rtol=1e-4, atol=1e-5)
    assert model.forward(tokens, positions, rows[:0]).shape == (0, 99)
    embedded = model.embed(tokens)
    assert embedded.shape == (8, 32)
    assert torch.equal(model.forward(torch.zeros_like(tokens), positions, rows, embedded), logits)


def test_facts_of_a_model(tmp_path: Path) -> None:
    module = save(tmp_path, "llama", tie_word_embeddings=True)
    model = load(tmp_path)
    assert [(s.layer, s.num_kv_heads, s.head_size, s.dtype) for s in model.layer_specs] == [
        (0, 2, 8, "float32"),
        (1, 2, 8, "float32"),
    ]
    assert model.attention_features == frozenset()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    assert 4 * parameters <= model.weight_bytes < 4 * parameters + 100


def test_needed_features(tmp_path: Path) -> None:
    save(tmp_path / "gemma2", "gemma2", head_dim=16, sliding_window=7, attn_logit_softcapping=2.0)
    assert load(tmp_path / "gemma2", "bfloat16").attention_features == {
        AttentionCapability.BFLOAT16,
        AttentionCapability.SLIDING_WINDOW,
        AttentionCapability.SOFT_CAP,
    }


@pytest.mark.parametrize(
    ("model_type", "auto", "fields", "reason"),
    [
        ("mamba", AutoModelForCausalLM, {}, "type linear_attention"),
        ("rwkv", AutoModelForCausalLM, {}, "recurrent state"),
        ("t5", AutoModelForSeq2SeqLM, T5, "encoder-decoder"),
        ("bert", AutoModelForCausalLM, {}, "not causal"),
        ("mpt", AutoModelForCausalLM, {"d_model": 32, "n_heads": 4, "n_layers": 2}, "replaced"),
        ("bloom", AutoModelForCausalLM, {"n_head": 4, "n_layer": 2}, "replaced"),
        ("vit", AutoModel, {"image_size": 32, "patch_size": 16}, "no causal language model"),
        ("lfm2", AutoModelForCausalLM, {"layer_types": ["conv", "full_attention"]}, "type conv"),
        ("diffllama", AutoModelForCausalLM, {}, r"called for layers \[0, 0, 1, 1\]"),
        (
            "deepseek_v3",
            AutoModelForCausalLM,
            {
                "num_key_value_heads": 4,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 12,
                "n_routed_experts": 4,
                "n_group": 2,
                "topk_group": 1,
                "num_experts_per_tok": 1,
                "moe_intermediate_size": 16,
            },
            "differ in shape",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_before_weights_are_read(
    model_type: str, auto: Any, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    name = type(save(tmp_path, model_type, auto, **fields)).__name__
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        load(tmp_path)
    assert name in str(caught.value)


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=r"lacks 1 weights.*lm_head\.weight"):
        load(tmp_path)


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="no directory of files"):
        load(None)
    with pytest.raises(UnsupportedModelError, match="could not load the configuration"):
        load(tmp_path)
    save(tmp_path, "llama")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UnsupportedModelError, match="could not load the weights"):
        load(tmp_path)


def test_code_of_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.update(model_type="unknown_kind", auto_map={"AutoConfig": "code.Config"})
    path.write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(UnsupportedModelError, match="could not load the configuration"):
        load(tmp_path)


@pytest.mark.parametrize("auto", ["AutoConfig", "AutoModelForCausalLM"])
def test_code_of_another_repository_is_refused(tmp_path: Path, auto: str) -> None:
    save(tmp_path, "llama")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.update(model_type="unknown_kind", auto_map={auto: "org/repo--code.Class"})
    path.write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="org/repo--code"):
        load(tmp_path, trust_remote_code=True)


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 16,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("model_type", "fields", "max_model_len", "length"),
    [
        ("phi3", {"rope_parameters": LONGROPE}, 16, 9),  # short factors
        ("phi3", {"rope_parameters": LONGROPE}, 64, 30),  # long factors
        ("llama", {"rope_parameters": DYNAMIC}, 64, 30),  # not scaled
        ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 16}, 32, 32),  # scaled
    ],
)
def test_rotary_embeddings_do_not_follow_the_neighbours(
    model_type: str, fields: dict[str, Any], max_model_len: int, length: int, tmp_path: Path
) -> None:
    extra = {"original_max_position_embeddings": 16} if model_type == "phi3" else {}
    module = save(tmp_path, model_type, **fields, **extra)
    model = load(tmp_path, max_model_len=max_model_len)
    tokens = torch.arange(length) + 3
    with torch.inference_mode():
        expected = module(tokens[None]).logits[0]
    rows = torch.arange(length)
    model.set_attention(causal([length]))
    alone = model.forward(tokens, rows, rows)
    torch.testing.assert_close(alone, expected, rtol=1e-4, atol=1e-5)
    # A neighbour far behind the lengths that any scaling starts at.
    model.set_attention(causal([length, 1]))
    positions = torch.cat([rows, torch.tensor([max_model_len - 1])])
    beside = model.forward(torch.cat([tokens, tokens[:1]]), positions, rows)
    torch.testing.assert_close(beside, alone, rtol=1e-4, atol=1e-5)


def test_progress_is_told_from_begin_to_end_and_nothing_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, float]] = []
    save(tmp_path, "llama")
    capfd.readouterr()
    shown = transformers_logging.is_progress_bar_enabled()
    load(tmp_path, progress=lambda what, fraction: told.append((what, fraction)))
    fractions = [fraction for _, fraction in told]
    assert {what for what, _ in told} == {"loading weights"}
    assert fractions[0] == 0.0 and fractions[-1] == 1.0 and fractions == sorted(fractions)
    assert len(fractions) > 2
    assert transformers_logging.is_progress_bar_enabled() == shown
    assert transformers_logging.set_tqdm_hook(None) is None
    assert "it/s" not in capfd.readouterr().err

"""Conversion of GGUF files: weights, configuration, and files that are refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from builtin_plugins.model_sources.gguf_convert import convert
from builtin_plugins.model_sources.gguf_file import GgufFile
from hookspecs.errors import UnsupportedModelError


def run(path: Path) -> Path:
    """Converts `path` to a new directory beside it."""
    directory = path.with_suffix("")
    directory.mkdir()
    convert(path, directory, lambda what, fraction: None)
    return directory


def configuration(directory: Path) -> dict:
    return json.loads((directory / "config.json").read_text())


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """The row order that GGUF files of llama models have: (half, pair) to (pair, half)."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        .swapaxes(1, 2)
        .reshape(weight.shape)
    )


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "transformer.h.": "blk.",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    for ours, theirs in _GGUF_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def put(tiny, architecture, model, metadata):
    """Makes `tiny` a file of `model`, whose tensors it keeps as the published converter does."""
    tiny.architecture = architecture
    kept = {k: v for k, v in tiny.metadata.items() if k.startswith("tokenizer.")}
    tiny.metadata = kept | {f"{architecture}.{key}": value for key, value in metadata.items()}
    tiny.tensors = {}
    config = model.config
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = tensor.float().numpy()
        if architecture == "llama" and "q_proj" in name:
            value = interleave(value, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            value = interleave(value, config.num_key_value_heads)
        if architecture == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight")):
            value = value.T
        if architecture == "gpt2" and name.endswith(".c_fc.weight"):
            value = value.T
        tiny.tensors[gguf_name(name)] = value


SHAPE = {
    "vocab_size": 264,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
METADATA = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 10000.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


# The configuration classes change the dictionaries they are given: they get copies.


def _llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**SHAPE | copy.deepcopy(changes)))


def _qwen2(**changes):
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE | copy.deepcopy(changes)))


def _qwen3():
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True))


def _gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=264, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    )


_GPT2_METADATA = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 128,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
}


@pytest.mark.parametrize(
    ("architecture", "make", "metadata"),
    [
        ("llama", lambda: _llama(tie_word_embeddings=True), METADATA),
        ("llama", lambda: _llama(attention_bias=True), METADATA),
        (
            "llama",
            lambda: _llama(rope_scaling={"rope_type": "linear", "factor": 2.0}),
            METADATA | {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
        ),
        ("qwen2", _qwen2, METADATA),
        (
            "qwen2",
            lambda: _qwen2(rope_scaling=YARN),
            METADATA
            | {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 16,
            },
        ),
        (
            "qwen3",
            _qwen3,
            METADATA | {"attention.key_length": 16, "attention.value_length": 16},
        ),
        ("gpt2", _gpt2, _GPT2_METADATA),
    ],
    ids=["llama", "llama-bias", "llama-linear", "qwen2", "qwen2-yarn", "qwen3", "gpt2"],
)
def test_the_converted_model_computes_the_same(tiny, tmp_path, architecture, make, metadata):
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    put(tiny, architecture, model, metadata)
    directory = run(tiny.write(tmp_path / "model.gguf"))

    loaded = AutoModelForCausalLM.from_pretrained(directory).eval()
    assert type(loaded) is type(model)
    assert loaded.config.vocab_size == 264 and loaded.config.max_position_embeddings == 64
    tokens = torch.randint(0, 264, (1, 48))
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits)

    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("hell 12")) == [
        "hell",
        "Ġ",
        "1",
        "2",
    ]


def test_llama3_scaling_is_recovered_from_its_table(tiny, tmp_path):
    shape = {"head_dim": 64, "rope_theta": 500000.0, "max_position_embeddings": 131072}
    model, plain = _llama(**shape, rope_scaling=LLAMA3), _llama(**shape)
    put(
        tiny,
        "llama",
        model,
        METADATA | {"attention.key_length": 64, "rope.freq_base": 500000.0},
    )
    table = plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq
    tiny.tensors["rope_freqs.weight"] = table.numpy()
    assert configuration(run(tiny.write(tmp_path / "model.gguf")))["rope_scaling"] == LLAMA3

    tiny.tensors["rope_freqs.weight"] = table.numpy()[::-1]
    with pytest.raises(UnsupportedModelError, match="frequency table"):
        run(tiny.write(tmp_path / "reversed.gguf"))


def test_weights_are_dequantized_exactly(tiny, tmp_path):
    path = tmp_path / "quantized.gguf"
    tiny.metadata |= {
        "llama.embedding_length": 32,
        "llama.attention.key_length": 8,
        "llama.feed_forward_length": 64,
    }
    shapes = {
        "token_embd.weight": (264, 32),
        "output_norm.weight": (32,),
        "blk.0.attn_norm.weight": (32,),
        "blk.0.attn_q.weight": (16, 32),
        "blk.0.attn_k.weight": (8, 32),
        "blk.0.attn_v.weight": (8, 32),
        "blk.0.attn_output.weight": (32, 32),
        "blk.0.ffn_norm.weight": (32,),
        "blk.0.ffn_gate.weight": (64, 32),
        "blk.0.ffn_up.weight": (64, 32),
        "blk.0.ffn_down.weight": (32, 64),
    }
    kind = gguf.GGMLQuantizationType.Q8_0
    quantized = {
        name: gguf.quantize(np.random.default_rng(1).normal(size=shape).astype(np.float32), kind)
        for name, shape in shapes.items()
        if len(shape) == 2
    }
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in tiny.metadata.items():
        kind_of = {str: "string", bool: "bool", int: "uint32", float: "float32", list: "array"}
        getattr(writer, f"add_{kind_of[type(value)]}")(key, value)
    for name, shape in shapes.items():
        if name in quantized:
            writer.add_tensor(name, quantized[name], raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ones(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    weights = load_file(run(path) / "model.safetensors")
    down = gguf.dequantize(quantized["blk.0.ffn_down.weight"], kind)
    np.testing.assert_array_equal(weights["model.layers.0.mlp.down_proj.weight"], down)
    query = gguf.dequantize(quantized["blk.0.attn_q.weight"], kind)
    written = weights["model.layers.0.self_attn.q_proj.weight"]
    np.testing.assert_array_equal(interleave(written, 2), query)
    assert {weight.dtype for weight in weights.values()} == {np.dtype(np.float32)}


def test_configuration(tiny, tmp_path):
    tiny.metadata |= {"tokenizer.ggml.eot_token_id": 262, "general.sampling.temp": 0.6}
    tiny.metadata["tokenizer.ggml.padding_token_id"] = 1
    directory = run(tiny.write(tmp_path / "tiny.gguf"))
    values = configuration(directory)
    assert values["rms_norm_eps"] == 1e-5  # not 9.999999747378752e-06
    assert values["tie_word_embeddings"] is True and values["rope_scaling"] is None
    assert values["vocab_size"] == 264 and values["head_dim"] == 8
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation == {
        "bos_token_id": 0,
        "eos_token_id": [1, 262],
        "pad_token_id": 1,
        "do_sample": True,
        "temperature": 0.6,
    }


def test_unknown_architecture(tiny, tmp_path):
    tiny.architecture = "mamba"
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*gpt2, llama, qwen2, qwen3"):
        run(tiny.write(tmp_path / "tiny.gguf"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"llama.expert_count": 8}, "expert_count"),
        ({"llama.attention.head_count_kv": [1, 2]}, "different numbers of heads"),
        ({"llama.rope.dimension_count": 4}, "rotated part 4"),
        ({"llama.attention.head_count": 4, "llama.attention.key_length": 8}, "16 rows"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'"),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 2.0,
                "llama.rope.scaling.yarn_beta_fast": 8.0,
            },
            "yarn_beta_fast",
        ),
        ({"split.count": 2}, "--merge"),
        ({"llama.attention.head_count": 0}, "head_count' is 0"),
        ({"llama.block_count": 4_000_000_000}, "lacks"),
        ({"llama.context_length": "long"}, "'long'"),
    ],
)
def test_metadata_that_can_not_be_used(tiny, tmp_path, change, problem):
    tiny.metadata |= change
    with pytest.raises(UnsupportedModelError, match=problem):
        run(tiny.write(tmp_path / "tiny.gguf"))


def test_missing_metadata(tiny, tmp_path):
    del tiny.metadata["llama.block_count"]
    with pytest.raises(UnsupportedModelError, match=r"'llama\.block_count' is missing"):
        run(tiny.write(tmp_path / "tiny.gguf"))


def test_missing_and_unknown_tensors(tiny, tmp_path):
    tiny.tensors["blk.0.strange.weight"] = tiny.tensors.pop("blk.0.ffn_up.weight")
    with pytest.raises(UnsupportedModelError) as caught:
        run(tiny.write(tmp_path / "tiny.gguf"))
    assert "lacks 1 tensors (blk.0.ffn_up.weight)" in str(caught.value)
    assert "unknown 1 tensors (blk.0.strange.weight)" in str(caught.value)


@pytest.mark.parametrize("part", [0.0, 0.0005, 0.05, 0.5, 0.99])
def test_a_truncated_file(tiny, tmp_path, part):
    path = tiny.write(tmp_path / "tiny.gguf")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(UnsupportedModelError, match="not a readable GGUF file"):
        GgufFile(path)


def test_damaged_text(tiny, tmp_path):
    path = tiny.write(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes().replace(b"<tool>", b"<\xff\xff\xff\xff>"))
    with pytest.raises(UnsupportedModelError, match="not valid UTF-8"):
        run(path)


def test_another_format(tmp_path):
    path = tmp_path / "image.gguf"
    path.write_bytes(b"\x89PNG" * 100)
    with pytest.raises(UnsupportedModelError, match="not a readable GGUF file"):
        GgufFile(path)


def test_other_byte_order(tmp_path):
    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="byte order"):
        GgufFile(path)

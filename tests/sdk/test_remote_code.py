"""Which references to code are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from framework.frontend.tokenizer import load_tokenizer
from framework.sdk.remote_code import refuse_foreign_code
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.errors import UnsupportedModelError

FOREIGN = "org/repo--code.Class"


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "auto_map",
    [
        {"AutoConfig": "code.Config", "AutoModel": FOREIGN},
        {"AutoTokenizer": ["code.Slow", FOREIGN]},
        {"AutoTokenizer": [None, FOREIGN]},
        [FOREIGN, None],
    ],
    ids=str,
)
def test_another_repository(tmp_path: Path, name: str, auto_map: Any) -> None:
    (tmp_path / name).write_text(json.dumps({"auto_map": auto_map}))
    with pytest.raises(UnsupportedModelError, match=FOREIGN) as caught:
        refuse_foreign_code(str(tmp_path))
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"auto_map": null}', '{"auto_map": {"AutoTokenizer": ["a.B", null]}}'],
)
def test_all_else_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    refuse_foreign_code(str(tmp_path))
    refuse_foreign_code(str(tmp_path / "missing"))


def test_a_tokenizer_of_another_repository(tmp_path: Path) -> None:
    auto_map = {"AutoTokenizer": [FOREIGN, None]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto_map}))
    info = ModelInfo(architecture="?", vocab_size=99, max_model_len=64, hidden_size=32)
    model = ResolvedModel(name="m", path=None, tokenizer_path=str(tmp_path), info=info)
    with pytest.raises(UnsupportedModelError, match=FOREIGN):
        load_tokenizer(ModelConfig(trust_remote_code=True), model)

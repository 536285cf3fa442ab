"""Model names and files with anything in them: errors that say so, in little memory and time."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

import framework
from builtin_plugins.model_sources.gguf_file import GgufFile
from framework.frontend.tokenizer import load_tokenizer
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.errors import FrameworkError, ModelNotFoundError, UnsupportedModelError

NAMES = [
    *("~nobody-of-this-name/x", "~nobody-of-this-name/x.gguf", "./loop", "loop/x.gguf", "./a\0b"),
    *("./" + "x" * 5_000, "x" * 5_000 + ".gguf", "x\0.gguf", "./\ud800", "\ud800.gguf"),
    *("package:", "package:os", "package:../x", "package:__main__", "package:a.b", "package:\0"),
    *("package:*", "package:" + "x" * 5_000, "package:\u0130", "package:encodings", "a\nb", "-x"),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    with pytest.raises(FrameworkError):
        framework.launch({"model": {"name": name}})


def test_a_tokenizer_path_that_is_none(tmp_path: Path) -> None:
    model = checkpoint(tmp_path)
    for name in ("~nobody-of-this-name/x", "x" * 5_000, "a\0b"):
        with pytest.raises(FrameworkError):
            framework.launch({"model": {"name": model, "tokenizer": name}})


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "max_position_embeddings": 64,
}


def checkpoint(directory: Path, **files: bytes | str | dict[str, Any]) -> str:
    """A model directory; a file name's `.` is `__` here."""
    made: dict[str, Any] = {"config__json": CONFIG, "model__safetensors": b"", **files}
    for name, content in made.items():
        data = json.dumps(content) if isinstance(content, dict) else content
        path = directory / name.replace("__", ".")
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(directory)


DEEP = "[" * 100_000
JSON = {
    "config": {"config__json": DEEP},
    "objects": {"config__json": '{"a":' * 100_000},
    "digits": {"config__json": '{"vocab_size": ' + "9" * 5_000 + "}"},
    "list": {"config__json": "[]"},
    "vocabulary": {"config__json": {**CONFIG, "vocab_size": 10**12}},
    "context": {"config__json": {**CONFIG, "max_position_embeddings": 2**31}},
    "width": {"config__json": {**CONFIG, "hidden_size": -1}},
    "code": {"config__json": {**CONFIG, "auto_map": {"AutoModel": "evil.Model"}}},
    "defaults": {"generation_config__json": DEEP},
    "index": {"model__safetensors__index__json": DEEP},
    "index of numbers": {"model__safetensors__index__json": {"weight_map": {"a": 5}}},
    "index of a list": {"model__safetensors__index__json": {"weight_map": [1]}},
}


@pytest.mark.parametrize("files", JSON.values(), ids=JSON)
def test_json_files(files: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises((UnsupportedModelError, ModelNotFoundError)):
        framework.launch({"model": {"name": checkpoint(tmp_path, **files)}})


@pytest.mark.parametrize("content", ["", "{}", DEEP, b"\xff", '{"added_tokens": 5}'])
def test_tokenizer_files(content: str | bytes, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, tokenizer__json=content)
    info = ModelInfo(architecture="X", vocab_size=64, max_model_len=64, has_tokenizer=True)
    model = ResolvedModel(name="m", path=path, tokenizer_path=path, info=info)
    with pytest.raises(UnsupportedModelError):
        load_tokenizer(ModelConfig(), model)


def header(tensors: int, keys: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


ARRAY, STRING = 9, 8
GGUF = {
    "empty": b"",
    "magic only": b"GGUF",
    "keys": header(0, 2**60),
    "tensors": header(2**60, 0),
    "length of a key": header(0, 1) + struct.pack("<Q", 2**62) + b"x",
    "length of a text": header(0, 1) + entry("a", STRING, struct.pack("<Q", 2**62)),
    "length of an array": header(0, 1) + entry("a", ARRAY, struct.pack("<IQ", 4, 2**60)),
    "length of bytes": header(0, 1) + entry("a", ARRAY, struct.pack("<IQ", 0, 2**31)),
    "arrays of arrays": header(0, 1) + entry("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 5_000),
    "type": header(0, 1) + entry("a", 99, bytes(8)),
    "dimensions": header(1, 0) + struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**31),
}


@pytest.mark.parametrize("content", GGUF.values(), ids=GGUF)
def test_gguf_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModelError):
        GgufFile(path)


def test_a_cache_directory_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(0, 0))
    for name in ("~nobody-of-this-name/x", "x" * 5_000, "/dev/null/x"):
        monkeypatch.setenv("FRAMEWORK_CACHE_DIR", name)
        with pytest.raises(ModelNotFoundError):
            framework.launch({"model": {"name": str(path)}})

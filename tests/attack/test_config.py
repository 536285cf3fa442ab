"""Configuration sources with anything in them: ConfigError, never another exception."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from framework.config import load_config
from hookspecs.errors import ConfigError

FILES = {
    "binary": bytes(range(256)),
    "nested": b"a = " + b"[" * 20_000,
    "nested tables": b"[plugins.options.x]\na = " + b"{a=" * 5_000,
    "digits": b"[cache]\nnum_blocks = " + b"9" * 5_000,
    "not utf-8": '[model]\nname = "\u00e9"'.encode("latin-1"),
    "wrong types": b"cache = 3\nmodel = [1]",
    "date": b"[model]\nname = 1979-05-27",
    "nan": b"[stats]\ninterval_s = nan",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "engine.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(path, environ={})


def test_paths(tmp_path: Path) -> None:
    os.symlink("loop", tmp_path / "loop")
    names: list[Any] = [
        tmp_path,
        tmp_path / "loop",
        "~nobody-of-this-name/x",
        "x" * 5_000,
        "",
        "/dev/zero",
    ]
    for name in names:
        with pytest.raises(ConfigError):
            load_config(file=name, environ={})


VALUES = {
    "FRAMEWORK_PLUGINS__OPTIONS": ["{", "[1]", "[" * 20_000, '{"a":' * 20_000],
    "FRAMEWORK_PLUGINS__ENABLE": ["[" * 20_000],
    "FRAMEWORK_CACHE__BLOCK_SIZE": ["9" * 5_000, "1e400", "\udcff", ""],
    "FRAMEWORK_MODEL__NAME": ["\udcff\udcfe"],
    "FRAMEWORK___X": ["1"],
    "FRAMEWORK_CACHE____X": ["1"],
}


@pytest.mark.parametrize("variable", VALUES)
def test_environment(variable: str) -> None:
    for value in VALUES[variable]:
        with pytest.raises(ConfigError):
            load_config(environ={variable: value})


@pytest.mark.parametrize("text", ["[" * 20_000, "9" * 5_000, "1\nx = 2"])
def test_an_option_that_is_neither_json_nor_toml_is_text(text: str) -> None:
    environ = {"FRAMEWORK_PLUGINS__OPTIONS__SCRIPTED__VOCAB_SIZE": text}
    config: Any = load_config(environ=environ).config
    assert config.plugins.options == {"scripted": {"vocab_size": text}}

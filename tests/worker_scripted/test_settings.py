"""Settings for a model, which the worker `scripted` has not."""

from __future__ import annotations

from typing import Any

import pytest

import framework
from builtin_plugins.worker_scripted.settings import check_settings
from framework.config import load_config
from hookspecs.errors import UnsupportedFeatureError

SCRIPTED = {"model": {"name": "scripted"}, "executor": {"worker": "scripted"}}


def test_a_quantization_is_refused() -> None:
    settings: dict[str, Any] = {**SCRIPTED, "model": {"name": "scripted", "quantization": "int8"}}
    with pytest.raises(UnsupportedFeatureError, match=r"quantization is 'int8', .* Leave it out"):
        framework.launch(settings)


def test_settings_without_effect_are_told() -> None:
    lines: list[str] = []
    config = load_config(
        {
            "model": {"name": "scripted", "loader": "native", "dtype": "float32"},
            "cache": {"kv_dtype": "float16"},
            "executor": {"worker": "scripted", "attention": "sdpa", "threads": 2},
        },
        environ={},
    ).config
    check_settings(config, lines.append)
    assert [line.split(" ")[0] for line in lines] == [
        "model.loader",
        "model.dtype",
        "cache.kv_dtype",
        "executor.attention",
        "executor.threads",
    ]
    assert all("has no effect with the worker `scripted`" in line for line in lines)


def test_nothing_is_told_of_the_defaults() -> None:
    check_settings(load_config(SCRIPTED, environ={}).config, pytest.fail)

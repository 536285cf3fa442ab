"""What is asked for and can not be done refuses the start; what is off is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import launch_scripted

import framework
from hookspecs.errors import ConfigError, UnsupportedFeatureError


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({"executor": {"tensor_parallel_size": 2}}, ["tensor_parallel_size", "uniproc"]),
        ({"executor": {"pipeline_parallel_size": 2}}, ["pipeline_parallel_size", "uniproc"]),
        ({"parallel": {"data_parallel_size": 2}}, ["data_parallel_size"]),
        ({"model": {"quantization": "int8", "loader": "transformers"}}, ["quantization"]),
        ({"scheduler": {"async_stepping": "on"}}, ["async_stepping"]),
    ],
)
def test_an_explicit_request_is_refused(sections: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(UnsupportedFeatureError) as error:
        launch_scripted(**sections)
    for name in names:
        assert name in str(error.value)


def test_settings_without_effect_are_said() -> None:
    lines: list[str] = []
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "cache": {"num_blocks": 8},
        "stats": {"loggers": []},
        "parallel": {"data_parallel_rank": 1},
        "kv_transfer": {"role": "prefill"},
    }
    with framework.launch(settings, report=lines.append):
        pass
    silent = [line for line in lines if "has no effect" in line]
    assert [line.split()[0] for line in silent] == [
        "parallel.data_parallel_rank",
        "kv_transfer.role",
    ]


def test_a_limit_above_the_models_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"5000.*4096"):
        launch_scripted(model={"name": "scripted", "max_model_len": 5000})


def test_a_cache_that_holds_no_request_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num_blocks|kv_bytes"):
        launch_scripted(
            cache={"num_blocks": 2, "block_size": 1},
            scripted={"num_groups": 2, "sliding_window": 8},
        )

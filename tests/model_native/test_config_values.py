"""Values of config.json that no model can have."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import framework
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import UnsupportedModelError
from tests.model_native.families import directory, load

Checkpoint = Callable[[str], ResolvedModel]

NO_NUMBERS: list[Any] = ["x", True, [], {}, float("nan"), float("inf"), -1, 10**400]
SIZES = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
]
ROPE: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {
        "factor": 4.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "attention_factor": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 32,
    },
}


def _changed(source: ResolvedModel, to: Path, **config: Any) -> ResolvedModel:
    """The checkpoint with another configuration."""
    given = json.loads((directory(source) / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(given | config))
    if not (to / "model.safetensors").exists():
        (to / "model.safetensors").symlink_to(directory(source) / "model.safetensors")
    return msgspec.structs.replace(source, name=str(to), path=str(to))


def _refused(model: ResolvedModel, key: str, value: object) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        load(model)
    said = str(caught.value)
    assert f"config.json' has {key} = {value!r:.60}; it must be a" in said
    assert " from " in said and "Correct the file" in said
    assert "\n" not in said and len(said) < 500


@pytest.mark.parametrize("key", SIZES)
def test_sizes(key: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    for value in [*NO_NUMBERS, 0, 1.5, 2**40]:
        _refused(_changed(checkpoint("llama"), tmp_path, **{key: value}), key, value)


NULLS = {"num_key_value_heads", "head_dim"}


@pytest.mark.parametrize("key", ["rms_norm_eps", *sorted(set(SIZES) - NULLS)])
def test_null(key: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    _refused(_changed(checkpoint("llama"), tmp_path, **{key: None}), key, None)


@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": None},
        {"sliding_window": None},
        {"rope_theta": None},
        {"rope_theta": 1e4, "rope_parameters": None},
        {"sliding_window": "x"},
    ],
    ids=str,
)
def test_values_that_are_fine(
    config: dict[str, Any], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    load(_changed(checkpoint("llama"), tmp_path, **config))


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta"])
def test_numbers(key: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    for value in NO_NUMBERS:
        _refused(_changed(checkpoint("llama"), tmp_path, **{key: value}), key, value)


def test_a_base_of_the_angles_that_is_nowhere(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = _changed(checkpoint("llama"), tmp_path, rope_parameters=None, rope_theta=None)
    _refused(model, "rope_theta", None)


def test_many_labels(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for value in [2**40, "x"]:
        _refused(_changed(checkpoint("llama"), tmp_path, num_labels=value), "num_labels", value)


@pytest.mark.parametrize("family", ["mistral", "qwen2_windows"])
def test_windows(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    for value in [*NO_NUMBERS, 0]:
        model = _changed(checkpoint(family), tmp_path, sliding_window=value)
        _refused(model, "sliding_window", value)


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", sorted(ROPE))
def test_rotary_embeddings(kind: str, key: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    right = {"rope_type": kind, "rope_theta": 1e4, **ROPE[kind]}
    other = {"rope_parameters": None} if key == "rope_scaling" else {}
    load(_changed(checkpoint("llama"), tmp_path, **other, **{key: right}))
    for name in [*ROPE[kind], "rope_theta"]:
        for value in NO_NUMBERS:
            if isinstance(value, dict):
                continue  # taken for values of some layers
            given = {**other, key: {**right, name: value}}
            _refused(_changed(checkpoint("llama"), tmp_path, **given), f"{key}.{name}", value)


@pytest.mark.parametrize("kind", ["linear", "llama3"])
def test_rotary_embeddings_that_lack_a_value(
    kind: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    for name in sorted({"rope_theta", *ROPE[kind]} - {"original_max_position_embeddings"}):
        rope = {"rope_type": kind, **ROPE[kind], name: None}
        model = _changed(checkpoint("llama"), tmp_path, rope_parameters=rope)
        _refused(model, f"rope_parameters.{name}", None)


@pytest.mark.parametrize("rope", ["x", 3, [1], float("nan"), {"rope_type": [1]}])
def test_rotary_embeddings_that_are_none(rope: Any, checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"rope_parameters = .* an object|type \[1\]"):
        load(_changed(checkpoint("llama"), tmp_path, rope_parameters=rope))


def test_angles_are_finite(checkpoint: Checkpoint, tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1, **ROPE["yarn"]}
    with pytest.raises(UnsupportedModelError, match="Correct the file"):
        load(_changed(checkpoint("llama"), tmp_path, rope_parameters=rope))


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": "x"},
        {"rms_norm_eps": float("nan")},
        {"num_attention_heads": 0},
        {"attention_bias": "x"},
        {"vocab_size": 2**31 - 1},
        {"num_hidden_layers": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
    ],
    ids=str,
)
def test_an_engine_tells_it_in_one_line(
    config: dict[str, Any], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Also where the loader is chosen: no other one is tried with wrong values."""
    model = _changed(checkpoint("llama"), tmp_path, **config)
    settings = {
        "model": {"name": model.path, "tokenizer": "none"},
        "executor": {"worker": "cpu", "threads": 1},
        "cache": {"num_blocks": 8},
    }
    with pytest.raises(UnsupportedModelError) as caught:
        framework.launch(settings)
    assert "\n" not in str(caught.value) and "orrect th" in str(caught.value)


@pytest.mark.parametrize("index", [False, True])
def test_weights_in_a_pipe(index: bool, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = _changed(checkpoint("llama"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    name = "part.safetensors" if index else "model.safetensors"
    if index:
        weight_map = {"weight_map": {"model.norm.weight": name}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(weight_map))
    os.mkfifo(tmp_path / name)
    with pytest.raises(UnsupportedModelError, match=r"it is no file|has none of"):
        load(model)


def test_a_configuration_that_is_no_file(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _changed(checkpoint("llama"), tmp_path)
    (tmp_path / "config.json").unlink()
    monkeypatch.chdir(tmp_path)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("config.json")
        with pytest.raises(UnsupportedModelError, match=r"config\.json' is a socket"):
            load(model)

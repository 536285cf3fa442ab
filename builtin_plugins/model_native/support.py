"""Which models the loader `native` serves, told by their config.json alone.

Light: it is asked while loaders are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from builtin_plugins.model_native.config_values import rope_values
from framework.sdk.model_directory.json_file import read_object
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import UnsupportedModelError

__all__ = ["ARCHITECTURES", "check_support", "read_config"]

ARCHITECTURES: Final[Mapping[str, str]] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""To the `model_type` that belongs to it."""

_STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Types whose frequencies do not follow the length of a sequence."""
_WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")


def check_support(model: ResolvedModel, *, dtype: str, device: str) -> Path:
    """The model's directory. UnsupportedModelError, with the reason, for what is not served."""
    if device != "cpu":
        raise UnsupportedModelError(f"its kernels are for the CPU, not for {device!r}")
    if dtype != "float32":
        raise UnsupportedModelError(f"it computes in float32, not in {dtype}")
    if model.path is None:
        raise UnsupportedModelError(f"model {model.name!r} has no directory of files")
    path = Path(model.path)
    reason = _reason(read_config(path))
    if reason is not None:
        raise UnsupportedModelError(reason)
    if not any((path / name).is_file() for name in _WEIGHT_FILES):
        raise UnsupportedModelError(f"{str(path)!r} has none of {', '.join(_WEIGHT_FILES)}")
    return path


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a model's directory, as it is there. UnsupportedModelError."""
    try:
        return read_object(path / "config.json")
    except OSError as error:
        raise UnsupportedModelError(f"the configuration can not be read: {error}") from error


def _reason(config: Mapping[str, Any]) -> str | None:
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(name, str) or ARCHITECTURES.get(name) != config.get("model_type"):
        return (
            f"it does not serve architecture {name or config.get('model_type')}, only "
            f"{', '.join(ARCHITECTURES)}"
        )
    if config.get("quantization_config"):
        return "the checkpoint is quantized"
    auto_map = config.get("auto_map")
    if isinstance(auto_map, dict) and "AutoModelForCausalLM" in auto_map:
        return "the checkpoint has code of its own"
    if config.get("hidden_act", "silu") != "silu":
        return f"its activation is SiLU, not {config['hidden_act']!r}"
    head_size = config.get("head_dim")
    if isinstance(head_size, int) and head_size > 1 and head_size % 2:
        return f"its head size is {head_size}; it must be even"
    return _rope_reason(config)


def _rope_reason(config: Mapping[str, Any]) -> str | None:
    _, rope = rope_values(config)
    if not isinstance(rope, dict):
        return None  # wrong for every loader: `check_values` says so
    if any(isinstance(value, dict) for value in rope.values()):
        return "its rotary embeddings differ among layers"
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in _STATIC_ROPE:
        return f"its rotary embeddings are of type {kind!r}, not {', '.join(_STATIC_ROPE)}"
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if part not in (None, 1, 1.0):
        return f"its rotary embeddings turn a part of each head ({part})"
    return None

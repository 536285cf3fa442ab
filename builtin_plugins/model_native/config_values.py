"""Which values of config.json a model can have: told before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hookspecs.errors import UnsupportedModelError

__all__ = ["check_values", "rope_values"]

_MOST: Final = 2**31 - 1
"""Token ids and positions are int32."""


@dataclass(frozen=True)
class _Number:
    """What a value must be. One that is missing has a default unless it is `needed`; so has null
    where it is allowed."""

    lowest: float
    highest: float
    whole: bool = False
    needed: bool = False
    null: bool = False

    def __str__(self) -> str:
        kind = "whole number" if self.whole else "number"
        return f"a {kind} from {self.lowest} to {self.highest}" + ", or null" * self.null

    def allows(self, value: object) -> bool:
        if value is None:
            return self.null
        types = int if self.whole else (int, float)
        # A comparison, unlike a conversion, takes integers of any size; NaN fails it.
        return (
            isinstance(value, types)
            and not isinstance(value, bool)
            and self.lowest <= value <= self.highest
        )


_SIZE: Final = _Number(1, _MOST, whole=True)
_SIZE_OR_NULL: Final = _Number(1, _MOST, whole=True, null=True)
_FACTOR: Final = _Number(1e-6, 1e30, null=True)
_NEEDED_FACTOR: Final = _Number(1e-6, 1e30, needed=True)

_VALUES: Final[Mapping[str, _Number]] = {
    "vocab_size": _SIZE,
    "hidden_size": _SIZE,
    "intermediate_size": _SIZE,
    # transformers makes lists and tables of as many.
    "num_hidden_layers": _Number(1, 2**16, whole=True),
    "num_labels": _Number(0, 2**16, whole=True),
    "num_attention_heads": _SIZE,
    "num_key_value_heads": _SIZE_OR_NULL,
    "head_dim": _Number(2, 2**16, whole=True, null=True),
    "max_position_embeddings": _SIZE,
    "rms_norm_eps": _Number(0, 1),
}
_WINDOW: Final[Mapping[str, _Number]] = {"sliding_window": _SIZE_OR_NULL}

_ROPE: Final[Mapping[str, _Number]] = {
    # From 1 on no frequency is above 1.
    "rope_theta": _Number(1, 1e30),
    "factor": _FACTOR,
    "original_max_position_embeddings": _Number(1, _MOST, null=True),
    "low_freq_factor": _FACTOR,
    "high_freq_factor": _FACTOR,
    "attention_factor": _FACTOR,
    "beta_fast": _Number(0, 1e30, null=True),
    "beta_slow": _Number(0, 1e30, null=True),
    "mscale": _Number(0, 1e30, null=True),
    "mscale_all_dim": _Number(0, 1e30, null=True),
}
_NEEDED: Final[Mapping[str, Mapping[str, _Number]]] = {
    "linear": {"factor": _NEEDED_FACTOR},
    "llama3": dict.fromkeys(("factor", "low_freq_factor", "high_freq_factor"), _NEEDED_FACTOR),
}
"""By type of the rotary embeddings."""


def rope_values(config: Mapping[str, Any]) -> tuple[str, Any]:
    """Key and value of what a configuration says of rotary embeddings; an empty object if it says
    nothing."""
    for key in ("rope_parameters", "rope_scaling"):  # the second one is of older checkpoints
        if config.get(key):
            return key, config[key]
    return "rope_parameters", {}


def check_values(config: Mapping[str, Any], path: Path) -> None:
    """Of config.json at `path`, as it was read. UnsupportedModelError with key, value and what is
    allowed for the first number that no model can have."""
    _check(config, _VALUES, "", path)
    if config.get("model_type") == "mistral" or config.get("use_sliding_window"):
        _check(config, _WINDOW, "", path)
    key, rope = rope_values(config)
    if not isinstance(rope, dict):
        raise _wrong(path, key, rope, "an object")
    if config.get("rope_theta") is not None or "rope_theta" not in rope:
        _check(config, {"rope_theta": _ROPE["rope_theta"]}, "", path)
    kind = rope.get("rope_type", rope.get("type"))
    needed = _NEEDED.get(kind, {}) if isinstance(kind, str) else {}
    _check(rope, {**_ROPE, **needed}, f"{key}.", path)


def _check(
    values: Mapping[str, Any], allowed: Mapping[str, _Number], prefix: str, path: Path
) -> None:
    for key, number in allowed.items():
        given = key in values or number.needed
        if given and not number.allows(values.get(key)):
            raise _wrong(path, prefix + key, values.get(key), str(number))


def _wrong(path: Path, key: str, value: object, allowed: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{str(path)!r} has {key} = {value!r:.60}; it must be {allowed}. "
        "Correct the file or download the model again."
    )

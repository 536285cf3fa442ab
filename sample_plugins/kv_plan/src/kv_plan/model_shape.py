"""What the layers of a model keep for a token, from its config.json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

__all__ = ["ModelShape", "read_model_shape"]

_MAX_JSON = 16 << 20
"""Bytes that are read of a configuration; they have a few thousand."""
_MOST = 2**31 - 1

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LENGTH = ("max_position_embeddings", "n_positions")
"""Families have other names for the same; the first is the usual one."""

_UNLIKE = {
    "is_encoder_decoder": "it has an encoder",
    "kv_lora_rank": "its attention keeps latent vectors, not heads",
    "num_kv_shared_layers": "its layers share keys and values",
    "multi_query": "its number of KV heads depends on its family",
    "global_head_dim": "its layers have heads of different sizes",
    "attn_layer_period": "not all of its layers have attention",
    "attn_layer_indices": "not all of its layers have attention",
    "hybrid_override_pattern": "not all of its layers have attention",
}
"""Keys that, when set, make the sum below wrong."""

_LAYER_TYPES = ("full_attention", "sliding_attention")
_ALL_SLIDING = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
"""Families that use `sliding_window` in every layer."""


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of attention that differ in nothing but their window."""

    architecture: str
    windows: tuple[int | None, ...]
    """Of each layer: the tokens that it looks back at; None: all."""
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: str | None
    """Of the checkpoint; None if it does not say."""
    max_model_len: int
    notes: tuple[str, ...] = ()
    """What was assumed."""


def read_model_shape(name: str) -> ModelShape:
    """`name`: a directory with config.json, or the file. Reads nothing else.

    ModelNotFoundError when there is none, UnsupportedModelError when it is not one of a model whose
    cache is known.
    """
    path = _config_path(name)
    config = _read_object(path)
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, dict) else config
    what = repr(str(path))
    for key, reason in _UNLIKE.items():
        if values.get(key):
            raise UnsupportedModelError(
                f"{what} has {key} = {values[key]!r}: {reason}, so its cache can not be told from "
                "this file. Start the engine with the model; its log has the size of the cache."
            )
    heads = _whole(what, values, _HEADS)
    hidden = _whole(what, values, _HIDDEN)
    windows, notes = _windows(what, values, _whole(what, values, _LAYERS))
    names = config.get("architectures")
    dtype = values.get("dtype") or values.get("torch_dtype")
    return ModelShape(
        architecture=str(names[0]) if isinstance(names, list) and names else "unknown",
        windows=windows,
        num_heads=heads,
        num_kv_heads=_whole(what, values, _KV_HEADS, heads),
        head_size=_whole(what, values, ("head_dim",), hidden // heads),
        dtype=dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
        max_model_len=_whole(what, values, _LENGTH),
        notes=notes,
    )


def _config_path(name: str) -> Path:
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            return path
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelNotFoundError(
            f"{name[:256]!r} can not be used as a path ({str(error)[:256]}). Correct it."
        ) from error
    raise ModelNotFoundError(
        f"there is no file {str(path)!r}. Give the directory of a model, which has a config.json, "
        "or such a file. Hub names and archives are not looked up: download the file first."
    )


def _read_object(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_JSON + 1)
    except OSError as error:
        raise ModelNotFoundError(
            f"{str(path)!r} can not be read ({error}). Check its permissions."
        ) from error
    try:
        value = json.loads(data.decode("utf-8")) if len(data) <= _MAX_JSON else None
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{str(path)!r} is not valid JSON ({str(error)[:256]}). Download it again."
        ) from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(
            f"{str(path)!r} is not a JSON object of at most {_MAX_JSON} bytes, as the config.json "
            "of a model is. Give that file, or its directory."
        )
    return value


def _whole(
    what: str, values: Mapping[str, Any], names: tuple[str, ...], default: int | None = None
) -> int:
    """The first of the names that is there."""
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST):
            raise UnsupportedModelError(
                f"{what} has {name} = {value!r}; needed is a whole number from 1 to {_MOST}. "
                "Correct it in a copy of the file."
            )
        return value
    if default is None or default < 1:
        raise UnsupportedModelError(
            f"{what} has no {' or '.join(names)}, which the config.json of a text model has. Give "
            "such a file, or add the value to a copy of it."
        )
    return default


def _windows(
    what: str, values: Mapping[str, Any], num_layers: int
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The window of each layer, and what was assumed."""
    full: tuple[int | None, ...] = (None,) * num_layers
    kinds = values.get("layer_types")
    if kinds is not None:
        if not (isinstance(kinds, list) and len(kinds) == num_layers):
            raise UnsupportedModelError(
                f"{what} has layer_types that are not a list of {num_layers}, one for each layer. "
                "Correct it in a copy of the file."
            )
        other = next((kind for kind in kinds if kind not in _LAYER_TYPES), None)
        if other is not None:
            raise UnsupportedModelError(
                f"{what} has layers of type {other!r}; known are {' and '.join(_LAYER_TYPES)}. "
                "Start the engine with the model; its log has the size of the cache."
            )
        if "sliding_attention" not in kinds:
            return full, ()
        window = _whole(what, values, ("sliding_window",))
        return tuple(window if kind == "sliding_attention" else None for kind in kinds), ()
    if values.get("sliding_window") is None or values.get("use_sliding_window") is False:
        return full, ()
    window = _whole(what, values, ("sliding_window",))
    if values.get("model_type") in _ALL_SLIDING:
        return (window,) * num_layers, ()
    return full, (
        f"sliding_window is {window}, but the file has no layer_types: counted as if no layer had "
        "a window, so more may fit",
    )

"""Reads a `ModelInfo` from the JSON files of a checkpoint; imports no model library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.sdk.model_directory.json_file import read_object
from hookspecs.contracts.model import ModelInfo
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

__all__ = ["read_model_info"]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_RANDOM_DEFAULTS = ("temperature", "top_p", "top_k", "min_p")
_OTHER_DEFAULTS = ("repetition_penalty", "max_new_tokens")
_RENAMED = {"max_new_tokens": "max_tokens"}

_MOST = 2**31 - 1
"""Token ids and positions are int32."""
_OMITTED: Mapping[str, Mapping[str, int]] = {
    # Published Gemma 3 configurations leave out what equals the default of their class.
    "gemma3_text": {"vocab_size": 262208, "max_position_embeddings": 131072},
}


def read_model_info(directory: Path, *, trust_remote_code: bool) -> ModelInfo:
    """The facts about the checkpoint in `directory`, from its JSON files.

    Raises ModelNotFoundError when `config.json` is missing, UnsupportedModelError when a file
    is not valid JSON, lacks a needed value, or asks for code of the checkpoint to be run
    without `trust_remote_code`; OSError when a file can not be read.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise ModelNotFoundError(
            f"{str(directory)!r} has no config.json; a model directory needs config.json and "
            "*.safetensors files. Give the directory that holds them, or download the model again."
        )
    config = read_object(path)
    if "auto_map" in config and not trust_remote_code:
        raise UnsupportedModelError(
            f"{str(path)!r} has auto_map = {config['auto_map']!r}: the model runs Python code that "
            "comes with the checkpoint. Set model.trust_remote_code to true if you trust its "
            "author; it is false now."
        )
    generation_path = directory / "generation_config.json"
    generation = read_object(generation_path) if generation_path.is_file() else {}
    nested = config.get("text_config")
    text: dict[str, Any] = {**config, **nested} if isinstance(nested, dict) else config

    bos = _token_ids(text, "bos_token_id", path) or _token_ids(
        generation, "bos_token_id", generation_path
    )
    eos = (
        *_token_ids(generation, "eos_token_id", generation_path),
        *_token_ids(config, "eos_token_id", path),
        *_token_ids(text, "eos_token_id", path),
    )
    return ModelInfo(
        architecture=_architecture(config, path),
        vocab_size=_positive(text, ("vocab_size",), path),
        max_model_len=_positive(text, ("max_position_embeddings", "n_positions"), path),
        eos_token_ids=tuple(dict.fromkeys(eos)),
        bos_token_id=bos[0] if bos else None,
        hidden_size=_positive(text, ("hidden_size", "n_embd", "d_model"), path),
        dtype=_dtype(config, text),
        generation_defaults=_generation_defaults(generation),
        has_tokenizer=any((directory / name).is_file() for name in _TOKENIZER_FILES),
    )


def _architecture(config: Mapping[str, Any], path: Path) -> str:
    names = config.get("architectures")
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise UnsupportedModelError(
            f"{str(path)!r} has architectures = {names!r}; needed is a list with the class name of "
            'the model, e.g. ["LlamaForCausalLM"]. Add it to the file.'
        )
    return names[0]


def _positive(config: Mapping[str, Any], keys: tuple[str, ...], path: Path) -> int:
    defaults = _OMITTED.get(str(config.get("model_type")), {})
    for source in (config, defaults):
        for key in keys:
            value = source.get(key)
            if value is None:
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole and 0 < value <= _MOST):
                raise UnsupportedModelError(
                    f"{str(path)!r} has {key} = {value!r:.60}; it must be a whole number from 1 to "
                    f"{_MOST}. Correct the file or download the model again."
                )
            return value
    raise UnsupportedModelError(
        f"{str(path)!r} has no {' or '.join(keys)}; a language model needs it. "
        "Check that this is a text model, and add the value to the file if it is."
    )


def _token_ids(config: Mapping[str, Any], key: str, path: Path) -> tuple[int, ...]:
    value = config.get(key)
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i <= _MOST for i in ids):
        raise UnsupportedModelError(
            f"{str(path)!r} has {key} = {value!r:.60}; it must be a token id (0 to {_MOST}) or a "
            "list of token ids. Correct the file."
        )
    return tuple(ids)


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for source in (config, text):
        for key in ("dtype", "torch_dtype"):
            value = source.get(key)
            if isinstance(value, str):
                return value.removeprefix("torch.")
    return "float32"


def _generation_defaults(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Recommended sampling settings, by the name that SamplingParams has for them.

    `do_sample` false is greedy decoding, whatever else is given for random sampling; many
    authors leave it out beside a temperature, and mean the temperature.
    """
    greedy = generation.get("do_sample") is False
    keys = _OTHER_DEFAULTS if greedy else (*_RANDOM_DEFAULTS, *_OTHER_DEFAULTS)
    given = {
        _RENAMED.get(key, key): generation[key] for key in keys if generation.get(key) is not None
    }
    return {"temperature": 0.0, **given} if greedy else given

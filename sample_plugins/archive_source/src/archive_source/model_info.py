"""Reads a `ModelInfo` from the JSON files of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from hookspecs.contracts.model import ModelInfo
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError
from msgspec import Meta

__all__ = ["read_model_info"]

_MAX_JSON = 16 << 20
"""Bytes of a configuration; they have a few thousand."""

T = TypeVar("T")
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Config(msgspec.Struct):
    """What is read of config.json; of a model with several parts, its text part."""

    architectures: Annotated[list[str], Meta(min_length=1)]
    vocab_size: Count
    max_position_embeddings: Count
    hidden_size: Count
    eos_token_id: TokenId | list[TokenId] | None = None
    bos_token_id: TokenId | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    """The name of `dtype` before transformers 5."""


class _Generation(msgspec.Struct):
    """What is read of generation_config.json."""

    eos_token_id: TokenId | list[TokenId] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None


def read_model_info(directory: Path, *, has_tokenizer: bool) -> ModelInfo:
    """ModelNotFoundError if there are no weights, UnsupportedModelError if a file is not what it
    should be, OSError if it can not be read."""
    path = directory / "config.json"
    values = _read_object(path)
    text = values.get("text_config")
    if isinstance(text, dict):
        values = {**values, **text, "architectures": values.get("architectures")}
    config = _checked(path, values, _Config)
    path = directory / "generation_config.json"
    found = _read_object(path) if path.is_file() else {}
    generation = _checked(path, found, _Generation)
    _check_weights(directory)
    ends = (*_ids(generation.eos_token_id), *_ids(config.eos_token_id))
    return ModelInfo(
        architecture=config.architectures[0],
        vocab_size=config.vocab_size,
        max_model_len=config.max_position_embeddings,
        eos_token_ids=tuple(dict.fromkeys(ends)),
        bos_token_id=config.bos_token_id,
        hidden_size=config.hidden_size,
        dtype=(config.dtype or config.torch_dtype or "float32").removeprefix("torch."),
        generation_defaults=_defaults(generation),
        has_tokenizer=has_tokenizer,
    )


def _read_object(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_MAX_JSON + 1)
    if len(data) > _MAX_JSON:
        raise UnsupportedModelError(
            f"{str(path)!r} has more than {_MAX_JSON} bytes, the most that is read of a "
            "configuration. Make the archive again."
        )
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{str(path)!r} is not a JSON object ({error}). Make the archive again."
        ) from error


def _checked(path: Path, values: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UnsupportedModelError(
            f"{str(path)!r}: {error}. Needed is the configuration of a text model in the form of "
            "transformers; correct the file and make the archive again."
        ) from error


def _ids(value: int | list[int] | None) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _defaults(generation: _Generation) -> dict[str, Any]:
    """Recommended sampling, by the names of SamplingParams. Without `do_sample` it is greedy,
    whatever is given for random sampling."""
    given = {
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "top_k": generation.top_k,
        "min_p": generation.min_p,
    }
    if generation.do_sample is False:
        given = {"temperature": 0.0}
    given["repetition_penalty"] = generation.repetition_penalty
    given["max_tokens"] = generation.max_new_tokens
    return {name: value for name, value in given.items() if value is not None}


def _check_weights(directory: Path) -> None:
    if not any(directory.glob("*.safetensors")):
        raise ModelNotFoundError(
            f"{str(directory)!r} has a config.json, but no *.safetensors files; other formats of "
            "weights are not read. Save the model as safetensors (transformers: save_pretrained) "
            "and make the archive again."
        )

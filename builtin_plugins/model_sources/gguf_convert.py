"""Converts a GGUF file to a directory in Hugging Face layout, float32.

The weights are dequantized exactly, and a record tells where they are in the file; the tokenizer
is built from the metadata of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builtin_plugins.model_sources.gguf_architectures import Change, architecture_of
from builtin_plugins.model_sources.gguf_file import GgufFile
from builtin_plugins.model_sources.gguf_record import write_record
from builtin_plugins.model_sources.gguf_tokenizer import write_tokenizer
from builtin_plugins.model_sources.gguf_weights import OUTPUT_TENSOR, plan_tensors, write_weights

__all__ = ["convert"]

_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
}


def convert(path: Path, directory: Path, progress: Callable[[str, float], None]) -> None:
    """Writes the model in the GGUF file `path` to `directory`, which exists and is empty.

    `progress` is called with what is done and the fraction of it, 0 to 1. Raises
    UnsupportedModelError when the file is damaged or of a kind that can not be converted; the
    content of `directory` is then undefined.
    """
    progress(f"reading the metadata of {path.name}", 0.0)
    file = GgufFile(path)
    architecture = architecture_of(file)
    config = architecture.config(file)
    tensors = plan_tensors(file, architecture, config)
    special = _special_tokens(file)

    write_tokenizer(file, directory)
    _write_json(directory / "generation_config.json", {**special, **_sampling_defaults(file)})
    config |= {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": int(file.tensors["token_embd.weight"].shape[1]),
        "tie_word_embeddings": OUTPUT_TENSOR not in file.tensors,
        "torch_dtype": "float32",
        **special,
    }
    _write_json(directory / "config.json", config)
    write_weights(file, tensors, directory / "model.safetensors", progress)
    write_record(directory, path, (t for t in tensors if t.change is not Change.TRANSPOSE))


def _special_tokens(file: GgufFile) -> dict[str, Any]:
    """Ids of the special tokens. The ends of a turn and of a message end a generation too."""
    ends = [file.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    known = list(dict.fromkeys(token for token in ends if token is not None))
    ids = {
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": known[0] if len(known) == 1 else known or None,
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id"),
    }
    return {name: value for name, value in ids.items() if value is not None}


def _sampling_defaults(file: GgufFile) -> dict[str, Any]:
    values = {name: file.get(key) for name, key in _SAMPLING.items()}
    present = {name: value for name, value in values.items() if value is not None}
    return {"do_sample": True, **present} if present else {}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

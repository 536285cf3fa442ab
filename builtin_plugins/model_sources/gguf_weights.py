"""Writes the tensors of a GGUF file as one float32 safetensors file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import ReaderTensor
from gguf.quants import dequantize

from builtin_plugins.model_sources.gguf_architectures import Architecture, Change, TensorRule
from builtin_plugins.model_sources.gguf_file import GgufFile
from builtin_plugins.model_sources.gguf_rope import FREQUENCY_TENSOR

__all__ = ["OUTPUT_TENSOR", "PlannedTensor", "plan_tensors", "write_weights"]

OUTPUT_TENSOR = "output.weight"
"""Missing from the file when the model uses its input embedding for the output too."""

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor to write: its Hugging Face name and shape, and what it is made from.

    `heads` is the number of heads that the rows belong to; it matters to UNPERMUTE changes.
    """

    name: str
    shape: tuple[int, ...]
    source: ReaderTensor
    change: Change
    heads: int


def plan_tensors(
    file: GgufFile, architecture: Architecture, config: Mapping[str, Any]
) -> list[PlannedTensor]:
    """The tensors to write, in the order of the file.

    Raises UnsupportedModelError when one that the architecture needs is missing, or when the
    file has one that the architecture does not know.
    """
    layers = config["num_hidden_layers"] if "num_hidden_layers" in config else config["n_layer"]
    rules = dict(architecture.top)
    # A damaged number of layers can be huge; one layer more than there can be is reported below.
    for n in range(min(layers, len(file.tensors) + 1)):
        for suffix, rule in architecture.layer(file).items():
            rules[f"blk.{n}.{suffix}"] = TensorRule(rule.name.format(n=n), rule.change)

    missing = [name for name in rules if name not in file.tensors and name != OUTPUT_TENSOR]
    unknown = [name for name in file.tensors if name not in rules and name != FREQUENCY_TENSOR]
    if missing or unknown:
        parts = [
            f"{what} {len(names)} tensors ({', '.join(names[:5])}{', ...' * (len(names) > 5)})"
            for what, names in (("it lacks", missing), ("it has unknown", unknown))
            if names
        ]
        raise file.error(
            f"its tensors do not fit {architecture.class_name} with {layers} layers: "
            + " and ".join(parts),
            "The file is damaged, or a variant that is not supported; use another version of it.",
        )
    return [
        _plan(file, tensor, rules[name], config)
        for name, tensor in file.tensors.items()
        if name in rules
    ]


def _plan(
    file: GgufFile, tensor: ReaderTensor, rule: TensorRule, config: Mapping[str, Any]
) -> PlannedTensor:
    # GGUF lists the dimension that varies fastest first.
    shape = tuple(int(n) for n in reversed(tensor.shape))
    if rule.change is Change.TRANSPOSE:
        shape = shape[::-1]
    heads = 0
    if rule.change in (Change.UNPERMUTE_QUERY, Change.UNPERMUTE_KEY):
        query = rule.change is Change.UNPERMUTE_QUERY
        heads = config["num_attention_heads" if query else "num_key_value_heads"]
        if shape[0] != heads * config["head_dim"]:
            raise file.error(
                f"tensor {tensor.name!r} has {shape[0]} rows; {heads} heads of size "
                f"{config['head_dim']} need {heads * config['head_dim']}",
                "The file is damaged; download it again.",
            )
    return PlannedTensor(rule.name, shape, tensor, rule.change, heads)


def write_weights(
    file: GgufFile,
    tensors: list[PlannedTensor],
    path: Path,
    progress: Callable[[str, float], None],
) -> None:
    """Writes `tensors` to `path` one after another, so that only one is in memory at a time."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for tensor in tensors:
        size = 4 * math.prod(tensor.shape)  # bytes
        entries[tensor.name] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": (total, total + size),
        }
        total += size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)

    what = f"converting {file.path.name}"
    progress(what, 0.0)
    with path.open("wb") as output:
        output.write(len(header).to_bytes(8, "little"))
        output.write(header)
        for tensor in tensors:
            output.write(np.ascontiguousarray(_values(file, tensor), dtype="<f4").data)
            progress(what, entries[tensor.name]["data_offsets"][1] / total)


def _values(file: GgufFile, tensor: PlannedTensor) -> FloatArray:
    source = tensor.source
    try:
        values: FloatArray = dequantize(source.data, source.tensor_type)
    except NotImplementedError as error:
        raise file.error(
            f"tensor {source.name!r} has the type {source.tensor_type.name}, which can not be read",
            "Use a version of the model with another quantization, such as Q8_0.",
        ) from error
    if tensor.change is Change.TRANSPOSE:
        return values.T
    if tensor.change is Change.NONE:
        return values
    # From (pair, half) to (half, pair) within each head.
    pairs = values.reshape(tensor.heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)

"""Reads the scaling of rotary position embeddings from a GGUF file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from builtin_plugins.model_sources.gguf_file import GgufFile

__all__ = ["FREQUENCY_TENSOR", "rope_scaling"]

FREQUENCY_TENSOR = "rope_freqs.weight"

# The values of all published models with this scaling; GGUF keeps only the resulting table.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL = 1.0, 4.0, 8192

_YARN_KEYS = (
    "attn_factor",
    "yarn_log_multiplier",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
)


def rope_scaling(file: GgufFile, arch: str, head_dim: int, theta: float) -> dict[str, Any] | None:
    """The value of `rope_scaling` in config.json; None when positions are not scaled.

    Raises UnsupportedModelError for a kind of scaling that is not linear, yarn or llama3.
    """
    prefix = f"{arch}.rope.scaling"
    kind = file.get(f"{prefix}.type") or "linear"
    factor = file.get(f"{prefix}.factor") or file.get(f"{arch}.rope.scale_linear") or 1.0
    if FREQUENCY_TENSOR in file.tensors:
        return _from_table(file, head_dim, theta)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    special = sorted(k for k in _YARN_KEYS if file.get(f"{prefix}.{k}") is not None)
    if kind == "yarn" and not special:
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": file.require(f"{prefix}.original_context_length"),
        }
    raise file.error(
        f"position scaling of type {kind!r} with {special or 'no further settings'} is not "
        "supported; supported are none, linear, llama3, and yarn without further settings",
        "Use the model in Hugging Face format.",
    )


def _from_table(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any] | None:
    """Recovers the parameters of llama3 scaling from its table of divisors, head_dim/2 floats."""
    table = np.asarray(file.tensors[FREQUENCY_TENSOR].data, dtype=np.float64).reshape(-1)
    if np.all(table == 1.0):
        return None
    factor = float(f"{table.max():.6g}")
    expected = _llama3_table(head_dim, theta, factor)
    if table.shape != expected.shape or not np.allclose(table, expected, rtol=1e-4):
        raise file.error(
            f"the frequency table {FREQUENCY_TENSOR!r} is not that of llama3 scaling with the "
            f"published values (low_freq_factor {_LLAMA3_LOW}, high_freq_factor {_LLAMA3_HIGH}, "
            f"original context {_LLAMA3_ORIGINAL})",
            "Use the model in Hugging Face format.",
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }


def _llama3_table(head_dim: int, theta: float, factor: float) -> npt.NDArray[np.float64]:
    """Divisors of the head_dim/2 frequencies: 1 for short waves, `factor` for long ones."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    turns = _LLAMA3_ORIGINAL / (2 * math.pi * theta**exponents)  # in the original context
    smooth = np.clip((turns - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW), 0.0, 1.0)
    result: npt.NDArray[np.float64] = 1.0 / ((1.0 - smooth) / factor + smooth)
    return result

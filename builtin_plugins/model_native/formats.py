"""Formats of weights, and which of them `model.quantization` means."""

from __future__ import annotations

from typing import Final

__all__ = [
    "FLOAT32",
    "FORMATS",
    "GGUF",
    "GGUF_RECORD",
    "GROUPED",
    "INT4",
    "INT8",
    "INT8_GROUPED",
    "linear_format",
]

FLOAT32: Final = 0
INT8: Final = 1
INT4: Final = 2
INT8_GROUPED: Final = 3
"""As `enum linear_format` of kernels/linear.h."""

GROUPED: Final = frozenset({INT4, INT8_GROUPED})
"""Formats with a scale and a minimum for each group of 32 inputs."""

GGUF: Final = "gguf"
"""As the GGUF file has each weight, not one format of ours."""

GGUF_RECORD: Final = "gguf.json"
"""In the directory of a model that was converted from a GGUF file."""

FORMATS: Final = ("int8", "int4", GGUF)
"""Values of `model.quantization`."""


def linear_format(quantization: str | None, *, head: bool) -> int:
    """Of the linear layers, or of the head, which is more sensitive."""
    if quantization is None:
        return FLOAT32
    if head:
        return INT8_GROUPED
    return INT8 if quantization == "int8" else INT4

"""Blocks of GGUF types as groups of 32 weights: codes, a scale and a minimum.

The layout of the blocks is that of ggml (https://github.com/ggml-org/ggml, ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK_TYPES", "BlockType", "Groups"]

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
Parts = tuple[Array, Array, Array]
"""Codes, scales and minima."""
GROUP: Final = 32


class Groups(NamedTuple):
    """Weights `scales * codes + minima` of whole rows."""

    codes: Bytes
    """uint8 [rows, in]"""
    scales: npt.NDArray[np.float16]
    """[rows, in / 32]"""
    minima: npt.NDArray[np.float16]
    """[rows, in / 32]"""


class BlockType(NamedTuple):
    """A type whose blocks are one or more groups."""

    weights: int
    """In a block."""
    size: int
    """Of a block, in bytes."""
    bits: int
    """Of a code."""
    read: Callable[[Bytes], Parts]
    """Blocks uint8 [n, size] to codes [n, weights], scales and minima [n, weights / 32]."""

    def groups(self, rows: Bytes) -> Groups:
        """Of uint8 [rows, bytes of a row]. Q4_K's and Q5_K's scales and minima are products,
        which are rounded to 11 bits; all other values are those of the file. What is too large
        becomes infinity."""
        codes, scales, minima = self.read(rows.reshape(-1, self.size))
        with np.errstate(over="ignore"):
            scales, minima = scales.astype(np.float16), minima.astype(np.float16)
        codes = codes.astype(np.uint8, copy=False)
        return Groups(*(part.reshape(len(rows), -1) for part in (codes, scales, minima)))


def _half(blocks: Bytes, place: int) -> npt.NDArray[np.float32]:
    """[n, 1]: the binary16 number at a place of each block."""
    return np.ascontiguousarray(blocks[:, place : place + 2]).view("<f2").astype(np.float32)


def _nibbles(blocks: Bytes) -> Array:
    """[n, 32]: lower halves of 16 bytes, then upper ones."""
    return np.concatenate((blocks & 15, blocks >> 4), axis=1)


def _fifth_bits(blocks: Bytes) -> Array:
    """[n, 32]: bits of 4 bytes, worth 16."""
    return np.unpackbits(blocks, axis=1, bitorder="little") << 4


def _q4_0(b: Bytes) -> Parts:
    scale = _half(b, 0)
    return _nibbles(b[:, 2:]), scale, -8 * scale


def _q4_1(b: Bytes) -> Parts:
    return _nibbles(b[:, 4:]), _half(b, 0), _half(b, 2)


def _q5_0(b: Bytes) -> Parts:
    scale = _half(b, 0)
    return _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6]), scale, -16 * scale


def _q5_1(b: Bytes) -> Parts:
    return _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8]), _half(b, 0), _half(b, 2)


def _q8_0(b: Bytes) -> Parts:
    scale = _half(b, 0)
    return b[:, 2:] ^ 0x80, scale, -128 * scale


def _k_scales(b: Bytes) -> tuple[Array, Array]:
    """[n, 8] each: 6-bit factors of scales and minima, times those of the block."""
    low, high, tops = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.concatenate((low & 63, (tops & 15) | (low >> 6) << 4), axis=1)
    minima = np.concatenate((high & 63, (tops >> 4) | (high >> 6) << 4), axis=1)
    return _half(b, 0) * scales, -_half(b, 2) * minima


def _k_nibbles(b: Bytes) -> Array:
    """[n, 256]: of each 32 bytes the lower halves, then the upper ones."""
    quads = b.reshape(len(b), 4, 1, GROUP)
    return np.concatenate((quads & 15, quads >> 4), axis=2).reshape(len(b), -1)


def _q4_k(b: Bytes) -> Parts:
    return (_k_nibbles(b[:, 16:]), *_k_scales(b))


def _q5_k(b: Bytes) -> Parts:
    # Bit g of byte i belongs to weight i of group g.
    bits = np.unpackbits(b[:, 16:48, None], axis=2, bitorder="little").swapaxes(1, 2)
    return (_k_nibbles(b[:, 48:]) | bits.reshape(len(b), -1) << 4, *_k_scales(b))


BLOCK_TYPES: Final = {
    "Q4_0": BlockType(32, 18, 4, _q4_0),
    "Q4_1": BlockType(32, 20, 4, _q4_1),
    "Q4_K": BlockType(256, 144, 4, _q4_k),
    "Q5_0": BlockType(32, 22, 5, _q5_0),
    "Q5_1": BlockType(32, 24, 5, _q5_1),
    "Q5_K": BlockType(256, 176, 5, _q5_k),
    "Q8_0": BlockType(32, 34, 8, _q8_0),
}

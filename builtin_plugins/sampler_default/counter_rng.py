"""Random numbers that are a function of (seed, position): no state, so nothing can disturb it.

The stream of a seed is SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014) whose start is the mixed seed; its n-th number is computed directly.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["request_seed", "uniforms"]

_MASK = 2**64 - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniforms(seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64[rows] in [0, 1), multiples of 2**-53: number `position` of the stream `seed`."""
    counter = _mix(seeds + _GAMMA) + (positions.astype(np.uint64) + np.uint64(1)) * _GAMMA
    return (_mix(counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def request_seed(seed: int | None, engine_seed: int, request_id: str) -> int:
    """The 64 bits that a request draws from.

    Its own seed modulo 2**64 (so -1 and 2**64 - 1 are one seed); without one, the first 8 bytes
    of BLAKE2b over "<engine_seed>:<request_id>", the same in every process.
    """
    if seed is not None:
        return seed & _MASK
    text = f"{engine_seed}:{request_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64, a bijection of 64 bits. Array products wrap modulo 2**64."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))

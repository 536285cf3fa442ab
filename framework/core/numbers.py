"""Bounds that numbers of a request must keep so that a step can not fail by them.

Front ends refuse much more (`framework.frontend.validation`); this is what an engine core does not
take on trust.
"""

from __future__ import annotations

from typing import Final

from hookspecs.types.request import EngineCoreRequest

__all__ = ["wrong_numbers"]

_BOUNDS: Final = (
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 2.0),
    ("min_tokens", 0, 2**31 - 1),
    ("top_k", -1, 2**63 - 1),
)


def wrong_numbers(wire: EngineCoreRequest, vocab_size: int) -> str | None:
    """What is wrong with a request's numbers, if anything; NaN is wrong everywhere."""
    params = wire.sampling_params
    for name, low, high in _BOUNDS:
        value = getattr(params, name)
        if not low <= value <= high:
            return f"{name} is {value}; it must be in [{low}, {high}]"
    end = wire.eos_token_id
    if end is not None and not 0 <= end < vocab_size:
        return f"eos_token_id is {end}; token ids of this model are in [0, {vocab_size})"
    return None

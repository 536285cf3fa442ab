"""The workloads, as token ids: the same for every engine, drawn from a seed.

All are greedy and ignore the end-of-sequence token. A variant has the shape of a workload and
other ids: for warming up, and so that a prefix cache never helps from repeat to repeat.
"""

from __future__ import annotations

import hashlib
import json
from random import Random

import msgspec

__all__ = ["WORKLOADS", "Workload", "digest"]

_IDS = range(100, 49000)
"""Ordinary tokens of the small model: without the special ones, which come first."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that are there at once, except where a table sends them in turn."""

    name: str
    about: str
    requests: int
    shared: int = 0
    """Tokens that all prompts begin with."""
    own: int
    """Tokens of each prompt after them."""
    new_tokens: int
    """Of each output."""

    @property
    def prompt_tokens(self) -> int:
        """Of one prompt."""
        return self.shared + self.own

    def prompts(self, variant: int = 0) -> list[list[int]]:
        """Token ids of each prompt."""
        draw = Random(f"{self.name} {variant}")
        shared = draw.choices(_IDS, k=self.shared)
        return [shared + draw.choices(_IDS, k=self.own) for _ in range(self.requests)]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="W1", about="batch", requests=64, own=128, new_tokens=128),
        Workload(name="W2", about="shared prefix", requests=32, shared=512, own=32, new_tokens=64),
        Workload(name="W3", about="single stream", requests=1, own=128, new_tokens=256),
        Workload(name="W4", about="long prompt", requests=1, own=1536, new_tokens=8),
        Workload(name="W5", about="serving, 16 at a time", requests=100, own=128, new_tokens=64),
    )
}


def digest(prompts: list[list[int]]) -> str:
    """16 hexadecimal digits that change when an id does."""
    return hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]

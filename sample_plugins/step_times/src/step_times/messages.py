"""What the halves say to each other."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["Kind", "Measured", "Step"]


class Kind(StrEnum):
    """What a step computes."""

    PREFILL = "prefill"
    MIXED = "mixed"
    DECODE = "decode"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """To the worker, which sends it back: so the core half keeps no books of steps under way."""

    number: int
    rows: int
    prefill_tokens: int
    """Of prompts, and of what is computed again after a preemption."""
    decode_tokens: int
    sent_at: float
    """Seconds of the core's clock, which no other process compares with its own."""
    between_s: float
    """Seconds that the core took since the reply before; 0 where it may have waited."""

    @property
    def kind(self) -> Kind:
        """By its tokens."""
        if not self.prefill_tokens:
            return Kind.DECODE
        return Kind.MIXED if self.decode_tokens else Kind.PREFILL


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """To the core."""

    step: Step
    worker_s: float
    """Seconds from the launch of the forward to its sampled tokens."""
    cpu_s: float
    """Seconds of processor time of the worker's process, all its threads, in that time."""

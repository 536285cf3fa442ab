"""What a report holds."""

from __future__ import annotations

import msgspec

from step_times.messages import Measured

__all__ = ["Report", "Totals"]


class Totals(msgspec.Struct, kw_only=True):
    """Sums over the steps of one kind. Times are seconds."""

    steps: int = 0
    rows: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    worker_s: float = 0.0
    max_worker_s: float = 0.0
    """Of the slowest step."""
    cpu_s: float = 0.0
    core_s: float = 0.0

    def add(self, measured: Measured, core_s: float) -> None:
        """One step."""
        step = measured.step
        self.steps += 1
        self.rows += step.rows
        self.prefill_tokens += step.prefill_tokens
        self.decode_tokens += step.decode_tokens
        self.worker_s += measured.worker_s
        self.max_worker_s = max(self.max_worker_s, measured.worker_s)
        self.cpu_s += measured.cpu_s
        self.core_s += core_s


class Report(msgspec.Struct, kw_only=True):
    """Consecutive steps of one engine core, by what they computed."""

    engine_index: int
    first_step: int = 0
    last_step: int = 0
    num_steps: int = 0
    core_share: float = 0.0
    """Of the time of all these steps, what was the core's: 0 to 1."""
    kinds: dict[str, Totals] = msgspec.field(default_factory=dict)

    def add(self, measured: Measured, core_s: float) -> None:
        """One step. `core_s`: seconds of it that were not the worker's."""
        self.last_step = measured.step.number
        self.first_step = self.first_step or self.last_step
        self.num_steps += 1
        self.kinds.setdefault(measured.step.kind, Totals()).add(measured, core_s)
        in_core = sum(totals.core_s for totals in self.kinds.values())
        in_all = in_core + sum(totals.worker_s for totals in self.kinds.values())
        self.core_share = in_core / in_all if in_all else 0.0

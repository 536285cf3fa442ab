"""`fcfs`: first come, first served."""

from __future__ import annotations

from hookspecs.contracts.policy import SchedulingPolicy

__all__ = ["FcfsPolicy"]


class FcfsPolicy(SchedulingPolicy):
    """Adds nothing to the order that ends every order: preempted first, then arrival."""

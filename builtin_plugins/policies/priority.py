"""`priority`: smaller priority numbers first."""

from __future__ import annotations

from builtin_plugins.policies.options import PriorityOptions
from hookspecs.contracts.policy import (
    OrderKey,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView

__all__ = ["PriorityPolicy"]


class PriorityPolicy(SchedulingPolicy):
    """Orders by `priority`. With `preempt_running`, a waiting request that finds no room
    pushes out running ones of a larger number; never one of its own."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        options: PriorityOptions = context.options or PriorityOptions()
        self._preempt_running = options.preempt_running

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """(priority,)"""
        return (request.priority,)

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        """Whether `waiting` is more urgent; None unless `preempt_running` is set."""
        return waiting.priority < running.priority if self._preempt_running else None

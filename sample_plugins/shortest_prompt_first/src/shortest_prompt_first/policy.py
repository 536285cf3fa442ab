"""The policy. Core process, main thread."""

from __future__ import annotations

from typing import ClassVar

from hookspecs.contracts.policy import (
    OrderKey,
    PolicyCapability,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView

from shortest_prompt_first.options import ShortestPromptFirstOptions

__all__ = ["ShortestPromptFirst"]


class ShortestPromptFirst(SchedulingPolicy):
    """Orders requests by prompt length, less what they earned by waiting, never below zero.

    Zero is the bound on starvation: no later request overtakes one that is at zero, since the
    kernel breaks ties by arrival (requests that resume after a preemption first). It is also
    why the order is dynamic: two requests at zero are in the order of arrival, whatever their
    order was before.
    """

    capabilities: ClassVar[frozenset[PolicyCapability]] = frozenset(
        {PolicyCapability.DYNAMIC_ORDER}
    )

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        options: ShortestPromptFirstOptions = context.options
        self._rate = options.aging_tokens_per_s

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """(tokens,): of the prompt, less aging; at least 0."""
        earned = self._rate * (view.now - request.arrival_time)
        return (max(0.0, request.num_prompt_tokens - earned),)

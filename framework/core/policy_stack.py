"""Several scheduling policies as one, combined by a fixed rule. Core process, main thread.

Order keys concatenate; admit = all; victim = first answer; caps = minimum; preempts = first
answer. After the policies' keys come (preempted first, arrival), so the order is total.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

from hookspecs.contracts.policy import (
    Admission,
    OrderKey,
    PolicyCapability,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.errors import ContractViolation
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["PolicyStack"]


class PolicyStack:
    """Implements the `PolicyStack` protocol."""

    def __init__(self, policies: Sequence[SchedulingPolicy], view: SchedulerView) -> None:
        self._policies = tuple(policies)
        self._view = view
        self._admitting = self._overriding("admit")
        self._capping = self._overriding("cap_tokens")
        self._choosing = self._overriding("select_victim")
        self._pushing = self._overriding("preempts")
        self._expiring = self._overriding("expire")
        self.only_started = False
        """Requests that have never started are not admitted: the engine is pausing."""
        self._dynamic = tuple(
            policy for policy in policies if PolicyCapability.DYNAMIC_ORDER in policy.capabilities
        )
        first = policies.index(self._dynamic[0]) if self._dynamic else len(policies)
        self._before_dynamic = self._policies[:first]
        self.dynamic_order = bool(self._dynamic)

    def _overriding(self, method: str) -> tuple[SchedulingPolicy, ...]:
        """Policies that have an opinion: those that kept the default cost nothing."""
        default = getattr(SchedulingPolicy, method)
        return tuple(p for p in self._policies if getattr(type(p), method, None) is not default)

    def key(self, request: RequestView) -> OrderKey:
        view = self._view
        keys = chain.from_iterable(policy.order_key(request, view) for policy in self._policies)
        return (*keys, self._resumed(request), request.arrival)

    def _resumed(self, request: RequestView) -> int:
        preempted = request.status is RequestStatus.PREEMPTED or request.num_preemptions
        return 0 if preempted else 1

    def place(self, request: RequestView) -> tuple[Hashable, OrderKey] | None:
        groups = tuple(policy.order_group(request) for policy in self._dynamic)
        if not groups or None in groups:
            return None
        # Keys behind those of a policy that orders its groups strictly decide nothing there.
        view = self._view
        keys = chain.from_iterable(p.order_key(request, view) for p in self._before_dynamic)
        return groups, (*keys, self._resumed(request), request.arrival)

    def admit(self, request: RequestView) -> bool:
        if self.only_started and request.status is RequestStatus.WAITING:
            return False
        for policy in self._admitting:
            answer = policy.admit(request, self._view)
            if not isinstance(answer, Admission):
                raise ContractViolation(
                    f"policy {type(policy).__name__} answered {answer!r} to admit; it must be "
                    "an Admission",
                    plugin=policy.context.plugin,
                )
            if answer is not Admission.ADMIT:
                return False
        return True

    def expire(self) -> list[str]:
        if not self._expiring:
            return []
        return [rid for policy in self._expiring for rid in policy.expire(self._view)]

    def cap_tokens(self, budget: int) -> int:
        if not self._capping:
            return budget
        caps = [budget]
        for policy in self._capping:
            cap = policy.cap_tokens(self._view)
            if cap is not None:
                caps.append(cap)
        return max(1, min(caps))

    def select_victim(self, candidates: Sequence[RequestView]) -> RequestView:
        for policy in self._choosing:
            victim = policy.select_victim(candidates, self._view)
            if victim is None:
                continue
            if all(victim is not candidate for candidate in candidates):
                raise ContractViolation(
                    f"policy {type(policy).__name__} chose a victim that is no candidate",
                    plugin=policy.context.plugin,
                )
            return victim
        return candidates[-1]

    def preempts(self, waiting: RequestView, running: RequestView) -> bool:
        for policy in self._pushing:
            answer = policy.preempts(waiting, running)
            if answer is not None:
                return answer
        return False

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        for policy in self._policies:
            policy.on_finish(request, reason)

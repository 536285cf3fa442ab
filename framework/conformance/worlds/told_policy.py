"""`ToldPolicy`: a scheduling policy that decides as a test tells it, and keeps a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from hookspecs.config import EngineConfig
from hookspecs.contracts.policy import (
    Admission,
    OrderKey,
    PolicyCapability,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["MovingPolicy", "PolicyFault", "TenantPolicy", "ToldPolicy"]


class PolicyFault(Exception):
    """Raised by a policy that was told to."""


class ToldPolicy(SchedulingPolicy):
    """Orders by priority, smaller first; the rest as told."""

    def __init__(self) -> None:
        super().__init__(PolicyContext(config=EngineConfig(), name="told"))
        self.ranks: dict[str, int] = {}
        """Request id to what comes in place of its priority."""
        self.held: set[str] = set()
        """Ids of requests that are not admitted."""
        self.late: list[str] = []
        """Ids that `expire` names."""
        self.cap: int | None = None
        self.pushes: bool | None = None
        self.fault = ""
        """The method that raises."""
        self.keys: Counter[str] = Counter()
        """How often each request's key was asked for."""
        self.asked: Counter[str] = Counter()
        """How often each request was asked about by `admit`."""
        self.expire_calls = 0
        self.victims: list[str] = []
        """Whom `select_victim` chose: one in the middle."""
        self.finished: list[tuple[str, FinishReason]] = []

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        self._maybe_raise("order_key")
        self.keys[request.request_id] += 1
        return (self.ranks.get(request.request_id, request.priority),)

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        self._maybe_raise("admit")
        self.asked[request.request_id] += 1
        return Admission.WAIT if request.request_id in self.held else Admission.ADMIT

    def expire(self, view: SchedulerView) -> Iterable[str]:
        self._maybe_raise("expire")
        self.expire_calls += 1
        return list(self.late)

    def cap_tokens(self, view: SchedulerView) -> int | None:
        self._maybe_raise("cap_tokens")
        return self.cap

    def select_victim(
        self, candidates: Sequence[RequestView], view: SchedulerView
    ) -> RequestView | None:
        victim = candidates[(len(candidates) - 1) // 2]
        self.victims.append(victim.request_id)
        return victim

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        return self.pushes

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self._maybe_raise("on_finish")
        self.finished.append((request.request_id, reason))

    def _maybe_raise(self, method: str) -> None:
        if self.fault == method:
            raise PolicyFault(method)


class MovingPolicy(ToldPolicy):
    """The same, but its ranks change while requests wait."""

    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})


class TenantPolicy(MovingPolicy):
    """Tenants are groups, and come in the order of their ranks."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        super().order_key(request, view)
        preempted = request.status is RequestStatus.PREEMPTED
        return (self.ranks.get(request.tenant, 0), not preempted, request.arrival)

    def order_group(self, request: RequestView) -> Hashable:
        return request.tenant

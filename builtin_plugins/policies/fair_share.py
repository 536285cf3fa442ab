"""`fair_share`: tokens are shared between tenants in proportion to weights.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models"
(OSDI 2024): each tenant has a counter of served tokens over its weight, and whoever's is
smallest goes first. A tenant that comes, or comes back after a pause, is lifted to a floor, so that
nobody can save up: to the smallest counter of those that are active, as in the paper; beyond it, to
the virtual time of Parekh and Gallager, "A Generalized Processor Sharing Approach to Flow Control"
(IEEE/ACM Transactions on Networking 1(3), 1993), as far as tenants that have left advanced it.
Otherwise tenants that are new each time would all come in at the smallest counter, which would
not grow, and starve those that are above it.
"""

from __future__ import annotations

from builtin_plugins.policies.options import FairShareOptions
from hookspecs.contracts.policy import (
    OrderKey,
    PolicyCapability,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["FairSharePolicy"]

_SWEEP_AT = 1024
"""Idle tenants that are remembered before those without effect are dropped."""


class _Tenant:
    """What is known of one tenant with unfinished requests."""

    def __init__(self, lift: float, served: int) -> None:
        self.lift = lift
        """What the counter was raised by, in tokens over weight."""
        self.served = served
        """Tokens served to it before it became active."""
        self.requests: dict[str, RequestView] = {}
        self.tail = 0.0
        """Key of the next request to be queued."""


class FairSharePolicy(SchedulingPolicy):
    """Orders by the virtual token counter of the tenant.

    A tenant's waiting requests are charged in advance, each with the tokens of those before
    it: so one step that starts several requests spreads them over tenants too. Tokens are paid
    for once: what a preempted request computes again is not charged a second time. Keys are
    computed once a step (a new `view.now`) for all waiting requests, O(n log n).
    """

    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._options: FairShareOptions = context.options or FairShareOptions()
        self._active: dict[str, _Tenant] = {}
        self._idle: dict[str, float] = {}
        self._floor = 0.0
        """The smallest counter that a tenant can have that becomes active now."""
        self._last_to_leave: str | None = None
        self._left: dict[str, int] = {}
        """Tenants that became idle since another became active; tokens served to each before."""
        self._keys: dict[str, float] = {}
        self._keys_time: float | None = None
        self._sweep_at = _SWEEP_AT

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """(virtual time at which its tenant's turn comes to it,)"""
        key = self._keys.get(request.request_id)
        if key is None:  # It comes last of its tenant's: the others need not be looked at.
            tenant = self._active.get(request.tenant) or self._join(request.tenant, view)
            tenant.requests[request.request_id] = request
            key = self._queue(request, tenant)
        elif view.now != self._keys_time:
            self._keys_time = view.now
            self._keys.clear()
            for name, tenant in self._active.items():
                self._charge(name, tenant, view)
            key = self._keys[request.request_id]
        return (key,)

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        """Forget the request; with its last one the tenant becomes idle."""
        self._keys.pop(request.request_id, None)
        tenant = self._active.get(request.tenant)
        if tenant is None or tenant.requests.pop(request.request_id, None) is None:
            return
        if not tenant.requests:
            del self._active[request.tenant]
            self._idle[request.tenant] = tenant.lift
            self._left[request.tenant] = tenant.served
            self._last_to_leave = request.tenant

    def _weight(self, tenant: str) -> float:
        return self._options.weights.get(tenant, self._options.default_weight)

    def _counter(self, tenant: str, lift: float, view: SchedulerView) -> float:
        return view.served_tokens(tenant) / self._weight(tenant) + lift

    def _charge(self, name: str, tenant: _Tenant, view: SchedulerView) -> None:
        """Set the keys of all requests of a tenant."""
        counter = tenant.tail = self._counter(name, tenant.lift, view)
        waiting = []
        for request_id, request in tenant.requests.items():
            if request.status is RequestStatus.RUNNING:
                self._keys[request_id] = counter
            else:
                waiting.append(request)
        waiting.sort(key=lambda r: (r.status is not RequestStatus.PREEMPTED, r.arrival))
        for request in waiting:
            self._queue(request, tenant)

    def _queue(self, request: RequestView, tenant: _Tenant) -> float:
        key = self._keys[request.request_id] = tenant.tail
        # One that has an output was preempted, and has computed all of its tokens but the last.
        unpaid = 1 if request.num_output_tokens else request.num_tokens
        tenant.tail += unpaid / self._weight(request.tenant)
        return key

    def _join(self, name: str, view: SchedulerView) -> _Tenant:
        """A tenant becomes active: lift its counter to the floor."""
        self._raise_floor(view)
        lift = self._idle.pop(name, 0.0)
        lift += max(0.0, self._floor - self._counter(name, lift, view))
        tenant = self._active[name] = _Tenant(lift, view.served_tokens(name))
        tenant.tail = self._counter(name, lift, view)
        self._sweep(view)
        return tenant

    def _raise_floor(self, view: SchedulerView) -> None:
        """To the level of those that are active, or were last. O(active tenants)."""
        level = 0.0
        if self._active:
            counters = [self._counter(name, each.lift, view) for name, each in self._active.items()]
            weights = sum(map(self._weight, [*self._active, *self._left]))
            # The kernel may have forgotten what it served to one that left.
            served = sum(max(0, view.served_tokens(n) - was) for n, was in self._left.items())
            level = max(min(counters), min(self._floor + served / weights, max(counters)))
        elif self._last_to_leave is not None:
            level = self._counter(self._last_to_leave, self._idle[self._last_to_leave], view)
        self._floor = max(self._floor, level)
        self._left.clear()

    def _sweep(self, view: SchedulerView) -> None:
        """Drop idle tenants below the floor: they would be lifted to it anyway. Amortised O(1)
        a call."""
        if len(self._idle) < self._sweep_at:
            return
        self._idle = {
            name: lift
            for name, lift in self._idle.items()
            if self._counter(name, lift, view) > self._floor
        }
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._idle))

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

from bisect import bisect_left, insort
from typing import NamedTuple

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


class _Waiting(NamedTuple):
    """A request that waits, or has started since it was looked at."""

    resumed: int
    """0: preempted."""
    arrival: int
    request: RequestView
    unpaid: int
    """Tokens that it will be charged."""


class _Tenant:
    """What is known of one tenant with unfinished requests."""

    def __init__(self, lift: float, served: int) -> None:
        self.lift = lift
        """What the counter was raised by, in tokens over weight."""
        self.served = served
        """Tokens served to it before it became active."""
        self.requests: dict[str, _Waiting | None] = {}
        """None: it runs."""
        self.queue: list[_Waiting] = []
        """In order: preempted first, then by arrival."""
        self.unpaid = 0
        """Of all in the queue."""
        self.time: float | None = None
        """The step that what follows belongs to."""
        self.counter = 0.0
        self.charged = 0
        """How many of the queue were charged in advance, from its beginning."""
        self.ahead = 0
        """Their unpaid tokens."""
        self.aheads: dict[str, int] = {}
        """Of each of them, the unpaid tokens of those before it."""

    def begin(self, time: float, counter: float) -> None:
        """A step begins: nobody is charged in advance."""
        self.time, self.counter = time, counter
        self.charged = self.ahead = 0
        self.aheads.clear()
        while self.queue and self._drop_started(self.queue[0]):
            pass

    def add(self, waiting: _Waiting) -> None:
        """A request is queued."""
        insort(self.queue, waiting)
        self.unpaid += waiting.unpaid
        self.requests[waiting.request.request_id] = waiting
        if self.queue[-1] is waiting:  # those before it need not be looked at
            self.aheads[waiting.request.request_id] = self.unpaid - waiting.unpaid
        elif self.charged and waiting < self.queue[self.charged]:
            self.charged += 1
            self.ahead += waiting.unpaid
            self.aheads[waiting.request.request_id] = 0

    def remove(self, waiting: _Waiting) -> None:
        """A request waits no more."""
        place = bisect_left(self.queue, waiting)
        del self.queue[place]
        self.unpaid -= waiting.unpaid
        if place < self.charged:
            self.charged -= 1
            self.ahead -= waiting.unpaid

    def unpaid_before(self, waiting: _Waiting) -> int:
        """Tokens that those before it in the queue will be charged. O(1) for the first one that
        was not asked about in this step."""
        request_id = waiting.request.request_id
        while request_id not in self.aheads:
            first = self.queue[self.charged]
            if not self._drop_started(first):
                self.aheads.setdefault(first.request.request_id, self.ahead)
                self.ahead += first.unpaid
                self.charged += 1
        return self.aheads[request_id]

    def _drop_started(self, waiting: _Waiting) -> bool:
        if waiting.request.status is not RequestStatus.RUNNING:
            return False
        self.remove(waiting)
        self.requests[waiting.request.request_id] = None
        return True


class FairSharePolicy(SchedulingPolicy):
    """Orders by the virtual token counter of the tenant.

    A tenant's waiting requests are charged in advance, each with the tokens of those before
    it: so one step that starts several requests spreads them over tenants too. Tokens are paid
    for once: what a preempted request computes again is not charged a second time. A key costs the
    same whatever the number of those that wait: a step asks for that of the first of each tenant.
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
        self._sweep_at = _SWEEP_AT

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """(virtual time at which its tenant's turn comes to it,)"""
        name = request.tenant
        tenant = self._active.get(name) or self._join(name, view)
        if tenant.time != view.now:
            tenant.begin(view.now, self._counter(name, tenant.lift, view))
        if request.status is RequestStatus.RUNNING:
            # One that has started in this step keeps the key that it was asked for before.
            return (tenant.counter + tenant.aheads.get(request.request_id, 0) / self._weight(name),)
        waiting = tenant.requests.get(request.request_id)
        resumed = int(request.status is not RequestStatus.PREEMPTED)
        # One that has an output was preempted, and has computed all of its tokens but the last.
        unpaid = 1 if request.num_output_tokens else request.num_tokens
        if waiting is None or (waiting.resumed, waiting.unpaid) != (resumed, unpaid):
            if waiting is not None:
                tenant.remove(waiting)
            waiting = _Waiting(resumed, request.arrival, request, unpaid)
            tenant.add(waiting)
        return (tenant.counter + tenant.unpaid_before(waiting) / self._weight(name),)

    def order_group(self, request: RequestView) -> str:
        """Its tenant."""
        return request.tenant

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        """Forget the request; with its last one the tenant becomes idle."""
        tenant = self._active.get(request.tenant)
        if tenant is None or request.request_id not in tenant.requests:
            return
        waiting = tenant.requests.pop(request.request_id)
        if waiting is not None:
            tenant.remove(waiting)
        if not tenant.requests:
            del self._active[request.tenant]
            self._idle[request.tenant] = tenant.lift
            self._left[request.tenant] = tenant.served
            self._last_to_leave = request.tenant

    def _weight(self, tenant: str) -> float:
        return self._options.weights.get(tenant, self._options.default_weight)

    def _counter(self, tenant: str, lift: float, view: SchedulerView) -> float:
        return view.served_tokens(tenant) / self._weight(tenant) + lift

    def _join(self, name: str, view: SchedulerView) -> _Tenant:
        """A tenant becomes active: lift its counter to the floor."""
        self._raise_floor(view)
        lift = self._idle.pop(name, 0.0)
        lift += max(0.0, self._floor - self._counter(name, lift, view))
        tenant = self._active[name] = _Tenant(lift, view.served_tokens(name))
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

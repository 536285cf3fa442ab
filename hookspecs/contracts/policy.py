"""Scheduling policies: small decisions that stack, over a narrow read-only view.

The kernel combines the policies of `scheduler.policies` by a fixed rule: order keys
concatenate, admit = all, victim = first answer, caps = minimum, preempts = first that is not
None. The complete order of two requests is (keys of all policies, preempted first, arrival),
one total order for admission, victim choice and eviction alike.
Called in the core process, main thread.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum, StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from hookspecs.contracts.base import Context
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason

__all__ = [
    "Admission",
    "OrderKey",
    "PolicyCapability",
    "PolicyContext",
    "PolicyStack",
    "SchedulerView",
    "SchedulingPolicy",
]

OrderKey = tuple[Any, ...]
"""Comparable; smaller comes first. All keys of one policy have the same shape."""


class PolicyCapability(StrEnum):
    """What a policy needs beyond a key fixed when a request is queued."""

    DYNAMIC_ORDER = "dynamic_order"
    """Keys change while requests wait: `order_key` is asked for all of them every step, of an
    `order_group` for the first ones. It may be asked for a request again in a step (a `view.now`),
    and answers the same then."""


class Admission(Enum):
    """Answer to `admit`."""

    ADMIT = "admit"
    WAIT = "wait"
    """Not now; requests behind it are still considered."""


@runtime_checkable
class SchedulerView(Protocol):
    """The narrow view of resources that a policy gets; valid during the call."""

    @property
    def now(self) -> float:
        """Seconds, monotonic clock; one value a step."""

    @property
    def num_running(self) -> int:
        """Running requests."""

    @property
    def num_waiting(self) -> int:
        """Waiting requests, preempted ones included. In `admit` the one that is asked about still
        counts."""

    @property
    def free_blocks(self) -> int:
        """Blocks that can be given out now, cached ones that nobody uses included."""

    @property
    def total_blocks(self) -> int:
        """Blocks of the cache."""

    def blocks_needed(self, request: RequestView) -> int:
        """Blocks for all of its present tokens, without prefix hits."""

    def served_tokens(self, tenant: str) -> int:
        """Tokens computed for a tenant since start: prefix hits, and what is computed again after
        a preemption, are not counted. Tenants that were away for long may begin at 0 again."""

    @property
    def recent_step_s(self) -> float:
        """Moving average of the time of a step, seconds; 0 before the first."""


class PolicyContext(Context, frozen=True, kw_only=True):
    """Context of a scheduling policy."""


class SchedulingPolicy(ABC):
    """One scheduling concern. Every method has a neutral default: override what matters.

    Nobody tells a policy that a request starts or is preempted: `request.status` says it. To know
    who runs, keep the requests that `admit` was asked about and count those that are RUNNING.
    What is kept of a request, or of its tenant, is given up in `on_finish`.
    """

    capabilities: ClassVar[frozenset[PolicyCapability]] = frozenset()

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """Its place in the queue: once when it is queued (again after a preemption), or every
        step for all waiting requests with DYNAMIC_ORDER."""
        return ()

    def order_group(self, request: RequestView) -> Hashable:
        """With DYNAMIC_ORDER: whose place in the order changes together, such as the requests of
        a tenant. By the keys of this policy those of a group that wait are at all times strictly
        in the order (preempted first, arrival). So a scheduler may ask for the keys of the first
        ones only: what a step costs does not grow with the number of those behind. Asked when a
        request is queued (again after a preemption), and the same while it waits. None: no such
        group."""
        return None

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        """Whether it may start now. Asked in order, for requests that would fit: one that is
        admitted by all policies starts, unless there is no room after all, as when those that it
        pushes out do not make it. So ADMIT is no start, and a request may be asked about again.

        Policies are asked in their order, and after the first WAIT no others. A request that
        starts does so before the next one is asked about: its status is RUNNING then, and
        `view.num_running` counts it.

        A scheduler may bound how many requests a step passes over. The built-in one passes over
        the first 64, then 192 others, which take turns: where more are held back, a request
        behind the first ones is asked about once in several steps.
        """
        return Admission.ADMIT

    def expire(self, view: SchedulerView) -> Iterable[str]:
        """Ids of waiting requests to end with finish reason `timeout`; once a step."""
        return ()

    def cap_tokens(self, view: SchedulerView) -> int | None:
        """Most tokens of this step; None: no opinion. Below 1 counts as 1."""
        return None

    def select_victim(
        self, candidates: Sequence[RequestView], view: SchedulerView
    ) -> RequestView | None:
        """Which running request to preempt when blocks are short; None: no opinion (the last
        in the order). Candidates come in the order, last is least."""
        return None

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        """Whether `waiting` may push out `running`, which comes after it in the order, when
        there is no room for it; None: no opinion (no)."""
        return None

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        """A request that was queued has ended (exactly once), also one that never ran: give up
        what is kept of it."""


class PolicyStack(Protocol):
    """The selected policies as one, combined by the kernel's rule; lent to the scheduler."""

    @property
    def dynamic_order(self) -> bool:
        """Whether keys must be asked anew every step."""

    def key(self, request: RequestView) -> OrderKey:
        """The complete key in the total order."""

    def place(self, request: RequestView) -> tuple[Hashable, OrderKey] | None:
        """With `dynamic_order`: a group, and a key that does not change while the request waits.
        Those of a group are in the order of that key at all times, so only the first of them need
        be asked for its `key`. None: ask for it every step."""

    def admit(self, request: RequestView) -> bool:
        """Whether all policies admit it now."""

    def expire(self) -> list[str]:
        """Ids to end with `timeout`. One may come twice, or wait no more: then it is ignored."""

    def cap_tokens(self, budget: int) -> int:
        """`budget`, or the smallest cap below it, at least 1."""

    def select_victim(self, candidates: Sequence[RequestView]) -> RequestView:
        """One of `candidates` (not empty, in order); the last when no policy answers."""

    def preempts(self, waiting: RequestView, running: RequestView) -> bool:
        """Whether `waiting` pushes out `running`."""

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        """Tell all policies."""

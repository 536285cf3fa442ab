"""The scheduler: decides which requests run and how many tokens each computes in a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar

from hookspecs.contracts.base import Context
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.policy import PolicyStack
from hookspecs.contracts.request_view import RequestTable, RequestView
from hookspecs.types.columns import Int32Column
from hookspecs.types.request import FinishReason
from hookspecs.types.step import SchedulerOutput

__all__ = ["Scheduler", "SchedulerCapability", "SchedulerContext"]


class SchedulerCapability(StrEnum):
    """What a scheduler can do."""

    ASYNC_STEPPING = "async_stepping"
    """`schedule` may be called while the step before still runs."""
    PREEMPTION = "preemption"
    """Preempts running requests where blocks are short, whom `select_victim` chooses, and for
    those that `preempts` lets push others out. Without it only `preempt_all` preempts."""
    DRAFT_TOKENS = "draft_tokens"


class SchedulerContext(Context, frozen=True, kw_only=True):
    """Context of a scheduler."""

    requests: RequestTable
    kv_cache: KVCacheManager
    policies: PolicyStack
    max_model_len: int
    prefill_beside_decode: int | None = None
    """Tokens of prompts, at least as many as requests decode, beyond which a step that others
    decode in takes too long for these: `scheduler.prefill_beside_decode`, else in an engine core
    process what the worker says. None: no limit. A scheduler may ignore it."""


class Scheduler(ABC):
    """Owns the queues. Changes the state of requests through the request table, blocks through
    the KV cache manager, and nothing else; the kernel checks what it returns.

    Policies are heard through the scheduler alone: it ends the requests of `expire` once a step,
    gives out at most `cap_tokens` of `scheduler.max_num_batched_tokens`, starts requests in the
    order of `key` if `admit` agrees, each before it asks about the next, and passes
    `on_request_finished` on to `on_finish`. A
    request starts by `lookup`, `RequestTable.start`, `allocate`, `record_lookup` and
    `RequestTable.describe`; it is preempted by `free` and `RequestTable.preempt`.

    Core process, main thread.
    """

    capabilities: ClassVar[frozenset[SchedulerCapability]] = frozenset()

    def __init__(self, context: SchedulerContext) -> None:
        self.context = context

    @abstractmethod
    def add_request(self, request: RequestView) -> None:
        """Queue a request (status WAITING). The kernel has refused those that may come to more
        tokens than an empty cache holds."""

    @abstractmethod
    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        """A request has ended for a reason outside `schedule` (abort, stop, failure) or by
        `RequestTable.finish`: drop it from the queues. Exactly once a request.

        If it ran, `request.slot` still names its slot; its blocks are already freed by the
        kernel.
        """

    @abstractmethod
    def schedule(self) -> SchedulerOutput:
        """Decide the next step. May be empty. Every request started in it is among its
        rows and its `new_requests`. The kernel fills in `step`, `released_slots` and
        `preempted_request_ids`, checks the rest and advances `num_computed_tokens`."""

    @abstractmethod
    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        """The tokens of a step were applied. `applied`: the slots of `scheduled` that still
        run. Requests that ended were told by `on_request_finished` before."""

    @property
    @abstractmethod
    def num_waiting(self) -> int:
        """Requests in the queues."""

    @property
    @abstractmethod
    def num_running(self) -> int:
        """Requests that hold a slot."""

    @abstractmethod
    def preempt_all(self) -> None:
        """Preempt every running request, before the cache is reset or given up: afterwards none
        holds a slot. Between two steps."""

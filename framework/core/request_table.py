"""The record of running requests, by slot: the only place where a request changes state.

What changes by one rule for all rows of a step lies in numpy columns indexed by slot; request
objects are touched at events (start, block boundary, stop). Core process, main thread.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from framework.core.request import Request
from framework.core.step_rows import StepRows
from framework.core.tenants import TenantLedger
from hookspecs.contracts.request_view import RequestView
from hookspecs.errors import ContractViolation
from hookspecs.types.columns import BoolColumn, Int32Column, Int64Column
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import NewRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PendingFinish", "RequestTable"]


class PendingFinish(NamedTuple):
    """A request that the scheduler wants ended."""

    request: Request
    reason: FinishReason
    message: str


class RequestTable:
    """Implements the `RequestTable` protocol of the contract, and what only the kernel uses."""

    def __init__(self, max_num_seqs: int) -> None:
        self.num_tokens: Int32Column = np.zeros(max_num_seqs, np.int32)
        self.num_computed_tokens: Int32Column = np.zeros(max_num_seqs, np.int32)
        self.running: BoolColumn = np.zeros(max_num_seqs, np.bool_)
        self.max_total_tokens: Int32Column = np.zeros(max_num_seqs, np.int32)
        self.eos_token_id: Int32Column = np.full(max_num_seqs, -1, np.int32)
        """-1: none."""
        self.has_stop_tokens: BoolColumn = np.zeros(max_num_seqs, np.bool_)
        self.pooling: BoolColumn = np.zeros(max_num_seqs, np.bool_)
        """It gives a vector, no tokens."""
        self.first_output: BoolColumn = np.zeros(max_num_seqs, np.bool_)
        """The next token is the first that its user gets."""
        self.handles: Int64Column = np.zeros(max_num_seqs, np.int64)
        self.clients: Int32Column = np.zeros(max_num_seqs, np.int32)
        self.tenants: Int32Column = np.zeros(max_num_seqs, np.int32)
        self.requests: list[Request | None] = [None] * max_num_seqs
        self.output_token_ids: list[list[int]] = [[] for _ in range(max_num_seqs)]
        """The output tokens of the request in each slot."""
        self.step_rows = StepRows(self, np.zeros(0, np.int32))
        """The rows of the last decision that was found right."""
        self._rows_hold = False
        """Whether the same requests run in the same slots since."""
        self._free = list(range(max_num_seqs))
        self._released: list[int] = []
        self._started: list[Request] = []
        self._preempted: list[str] = []
        self._pending_finishes: list[PendingFinish] = []
        self.eventful = False
        """Whether there may be something for the `take_` methods to return."""
        self.tenant_ledger = TenantLedger(self._charge_running)
        self._charged: Int32Column = np.zeros(max_num_seqs, np.int32)
        """Tokens that were charged to the tenant: what is recomputed is not charged again."""
        self._uncharged = False
        """Whether tokens were computed since those that run were charged."""

    @property
    def num_free_slots(self) -> int:
        return len(self._free)

    @property
    def num_running(self) -> int:
        """Slots in use."""
        return len(self.requests) - len(self._free)

    def at(self, slot: int) -> Request:
        request = self.requests[slot] if 0 <= slot < len(self.requests) else None
        if request is None:
            raise KeyError(f"no request runs in slot {slot}")
        return request

    def find_rows(self, slots: Int32Column) -> StepRows | None:
        """The rows of the step before if they are those of `slots`: then a request runs in each,
        and none is named twice."""
        rows = self.step_rows
        return rows if self._rows_hold and rows.are(slots) else None

    def keep_rows(self, slots: Int32Column) -> StepRows:
        """The rows of slots that were found right, for this step and those after it."""
        rows = self.step_rows = StepRows(self, slots)
        self._rows_hold = True
        return rows

    @property
    def any_started(self) -> bool:
        """Whether any were started since the last `take_started`."""
        return bool(self._started)

    @property
    def started(self) -> list[Request]:
        """Requests that were started since the last `take_started` and still run."""
        return [request for request in self._started if request.slot >= 0]

    def enter(self, request: Request) -> None:
        """A request is about to be queued."""
        request.tenant_index = self.tenant_ledger.enter(request.tenant)

    def leave(self, request: Request) -> None:
        """A request has ended; nothing of it stays."""
        if request.tenant_index >= 0:
            self.tenant_ledger.leave(request.tenant)

    def advance(self, slots: Int32Column, num_tokens: Int32Column) -> None:
        """Count scheduled tokens as computed."""
        index = slots.astype(np.intp)
        # Not in place: of one element that takes twice as long.
        self.num_computed_tokens[index] = self.num_computed_tokens[index] + num_tokens
        self._uncharged = True

    def start(self, request: RequestView, num_computed_tokens: int) -> int:
        own = cast(Request, request)
        if own.status not in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
            raise ContractViolation(
                f"request {own.request_id!r} was started while it is {own.status.name}; only a "
                "waiting or preempted request can start"
            )
        if not 0 <= num_computed_tokens < own.num_tokens:
            raise ContractViolation(
                f"request {own.request_id!r} was started with {num_computed_tokens} computed "
                f"tokens of {own.num_tokens}; at least the last token must be computed"
            )
        if num_computed_tokens and own.computes_whole_prompt:
            raise ContractViolation(
                f"request {own.request_id!r} was started with {num_computed_tokens} computed "
                "tokens, but it must compute its whole prompt"
            )
        if not self._free:
            raise ContractViolation(
                f"request {own.request_id!r} was started without a free slot; "
                f"all {len(self.requests)} are in use (scheduler.max_num_seqs)"
            )
        slot = heapq.heappop(self._free)
        own.slot = slot
        own.status = RequestStatus.RUNNING
        self.eventful = True
        if not own.emitted:
            own.prompt_logprobs.clear()
        if not own.num_preemptions:
            own.num_cached_tokens = num_computed_tokens
        self.requests[slot] = own
        self.output_token_ids[slot] = own.output_token_ids
        self._rows_hold = False
        self.num_tokens[slot] = own.num_tokens
        self.num_computed_tokens[slot] = num_computed_tokens
        self.running[slot] = True
        self.max_total_tokens[slot] = own.max_total_tokens
        eos = own.wire.eos_token_id
        self.eos_token_id[slot] = -1 if eos is None else eos
        self.has_stop_tokens[slot] = bool(own.stop_token_ids)
        self.pooling[slot] = own.wire.pooling is not None
        self.first_output[slot] = not own.emitted
        self.handles[slot] = own.wire.handle
        self.clients[slot] = own.wire.client_index
        self.tenants[slot] = own.tenant_index
        self._charged[slot] = max(own.num_charged_tokens, num_computed_tokens)
        self._started.append(own)
        return slot

    def describe(self, request: RequestView, block_ids: tuple[list[int], ...]) -> NewRequest:
        own = cast(Request, request)
        return NewRequest(
            request_id=own.request_id,
            slot=own.slot,
            token_ids=own.token_ids,
            num_prompt_tokens=own.num_prompt_tokens,
            num_computed_tokens=int(self.num_computed_tokens[own.slot]),
            block_ids=block_ids,
            sampling_params=own.sampling_params,
            eos_token_id=own.wire.eos_token_id,
            prompt_embeds=own.wire.prompt_embeds,
            adapter=own.adapter,
            pooling=own.wire.pooling,
        )

    def preempt(self, request: RequestView) -> None:
        own = cast(Request, request)
        if own.status is not RequestStatus.RUNNING:
            raise ContractViolation(
                f"request {own.request_id!r} was preempted while it is {own.status.name}; only a "
                "running request can be"
            )
        self._release(own)
        own.status = RequestStatus.PREEMPTED
        own.num_preemptions += 1
        self._preempted.append(own.request_id)

    def finish(self, request: RequestView, reason: FinishReason, message: str = "") -> None:
        own = cast(Request, request)
        if not own.finished:
            self.eventful = True
            self._pending_finishes.append(PendingFinish(own, reason, message))

    def end(self, request: Request, reason: FinishReason, error: str | None) -> None:
        """Any state -> FINISHED; a slot becomes free."""
        if request.slot >= 0:
            self._release(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        request.error = error

    def take_released(self) -> list[int]:
        """Slots that became free since the last call."""
        released, self._released = self._released, []
        return released

    def take_started(self) -> list[Request]:
        """Requests that were started since the last call."""
        started, self._started = self._started, []
        return started

    def take_preempted(self) -> list[str]:
        """Ids of requests that were preempted since the last call."""
        preempted, self._preempted = self._preempted, []
        return preempted

    def take_pending_finishes(self) -> list[PendingFinish]:
        """Requests that the scheduler wants ended."""
        pending, self._pending_finishes = self._pending_finishes, []
        return pending

    def _release(self, request: Request) -> None:
        slot = request.slot
        self._charge(np.array([slot]))
        request.num_charged_tokens = int(self._charged[slot])
        self.requests[slot] = None
        self.output_token_ids[slot] = []
        self._rows_hold = False
        self.running[slot] = False
        heapq.heappush(self._free, slot)
        self._released.append(slot)
        self.eventful = True
        request.slot = -1

    def _charge_running(self) -> None:
        if self._uncharged:
            self._uncharged = False
            self._charge(self.running.nonzero()[0])

    def _charge(self, slots: NDArray[np.intp]) -> None:
        """Charge computed tokens to their tenants, once each."""
        computed, charged = self.num_computed_tokens[slots], self._charged[slots]
        self.tenant_ledger.count(self.tenants[slots], np.maximum(computed - charged, 0))
        self._charged[slots] = np.maximum(computed, charged)

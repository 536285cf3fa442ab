"""What the kernel lends to schedulers, policies and cache managers: requests by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from hookspecs.types.columns import Int32Column
from hookspecs.types.request import AdapterRef, FinishReason, RequestStatus
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import NewRequest

__all__ = ["RequestTable", "RequestView"]


@runtime_checkable
class RequestView(Protocol):
    """One request, read-only. Valid until the request has finished."""

    @property
    def request_id(self) -> str:
        """Unique within the engine."""

    @property
    def slot(self) -> int:
        """Its slot while it runs, else -1."""

    @property
    def status(self) -> RequestStatus:
        """Where it is."""

    @property
    def sampling_params(self) -> SamplingParams:
        """Its parameters; not to be changed."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled so far."""

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""

    @property
    def max_total_tokens(self) -> int:
        """The most tokens that it can come to: the limit of prompt and output."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Prompt and output tokens; a copy."""

    @property
    def block_hashes(self) -> Sequence[bytes]:
        """Keys of its complete blocks in order, each covering all tokens before it and what
        isolates them (cache salt, adapter, embeds). Made by the kernel."""

    @property
    def priority(self) -> int:
        """Smaller runs first."""

    @property
    def tenant(self) -> str:
        """Who is served."""

    @property
    def deadline(self) -> float | None:
        """Seconds, monotonic clock; None: none."""

    @property
    def arrival(self) -> int:
        """Position in the order of arrival at this engine: a total order."""

    @property
    def arrival_time(self) -> float:
        """Seconds, monotonic clock."""

    @property
    def num_preemptions(self) -> int:
        """How often it was preempted."""

    @property
    def adapter(self) -> AdapterRef | None:
        """Its adapter."""

    @property
    def computes_whole_prompt(self) -> bool:
        """Whether all its prompt tokens must be computed, none taken from the prefix cache: it
        wants something of each of them (prompt logprobs, their mean). It may leave blocks there."""


@runtime_checkable
class RequestTable(Protocol):
    """The kernel's record of running requests, and the only way to change their state.

    Columns are indexed by slot (length `max_num_seqs`), written by the kernel only; a row of
    a free slot is undefined. Lives in the core process, main thread.
    """

    @property
    def num_tokens(self) -> Int32Column:
        """int32[max_num_seqs]: prompt and output tokens (with promised ones, when
        stepping asynchronously)."""

    @property
    def num_computed_tokens(self) -> Int32Column:
        """int32[max_num_seqs]: tokens whose KV exists or is being produced. Advanced by the
        kernel when `schedule` returns."""

    @property
    def num_free_slots(self) -> int:
        """How many requests may still start."""

    def at(self, slot: int) -> RequestView:
        """The request that runs in `slot`. KeyError if none."""

    def start(self, request: RequestView, num_computed_tokens: int) -> int:
        """WAITING or PREEMPTED -> RUNNING; returns its slot.

        `num_computed_tokens` must be less than its `num_tokens`: the last token is always
        recomputed. Raises ContractViolation otherwise, or without a free slot.
        """

    def describe(self, request: RequestView, block_ids: tuple[list[int], ...]) -> NewRequest:
        """What workers are told about a request that was started in this step; for
        `SchedulerOutput.new_requests`. `block_ids`: its whole block tables, one a group."""

    def preempt(self, request: RequestView) -> None:
        """RUNNING -> PREEMPTED; its slot becomes free. Its blocks must be freed too."""

    def finish(self, request: RequestView, reason: FinishReason, message: str = "") -> None:
        """End a request that the scheduler refuses (from any state); the kernel tells its
        user and calls the scheduler's `on_request_finished` after the phase."""

"""A request as the kernel keeps it; lent to plugins as a `RequestView`. Core process."""

from __future__ import annotations

from framework.core.block_hash import chain_root, extend_hashes
from hookspecs.types.columns import Float32Column
from hookspecs.types.pooling import PoolingType
from hookspecs.types.request import AdapterRef, EngineCoreRequest, FinishReason, RequestStatus
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns

__all__ = ["Request"]


class Request:
    """One request from its arrival to its finish.

    Only `RequestTable` and the step's update change it.
    """

    __slots__ = (
        "_block_size",
        "_hashes",
        "_root",
        "arrival",
        "emitted",
        "error",
        "finish_reason",
        "max_total_tokens",
        "num_cached_tokens",
        "num_charged_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "output_token_ids",
        "pooled",
        "prompt_logprobs",
        "prompt_token_ids",
        "queued_at",
        "refusal",
        "scheduled_at",
        "slot",
        "status",
        "stop_token_ids",
        "tenant_index",
        "wire",
    )

    def __init__(
        self,
        wire: EngineCoreRequest,
        *,
        arrival: int,
        max_model_len: int,
        block_size: int,
        queued_at: float,
    ) -> None:
        params = wire.sampling_params
        self.wire = wire
        self.arrival = arrival
        self.queued_at = queued_at
        self.scheduled_at: float | None = None
        self.slot = -1
        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.refusal: str | None = None
        """Why it can not be served whatever happens."""
        self.prompt_token_ids = wire.prompt_token_ids
        self.num_prompt_tokens = len(wire.prompt_token_ids)
        self.output_token_ids: list[int] = []
        self.stop_token_ids = frozenset(params.stop_token_ids or ())
        room = max_model_len - self.num_prompt_tokens
        if wire.pooling is not None:
            allowed = min(room, 1)
        else:
            allowed = room if params.max_tokens is None else min(room, params.max_tokens)
        self.max_total_tokens = self.num_prompt_tokens + allowed
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        self.num_charged_tokens = 0
        """Tokens already charged to the tenant, while it does not run."""
        self.tenant_index = -1
        self.emitted = False
        """Whether the first output (with prefill facts and prompt logprobs) was given."""
        self.prompt_logprobs: list[LogprobColumns] = []
        self.pooled: Float32Column | None = None
        """The vector of a pooling request, once there."""
        self._block_size = block_size
        self._root = b""
        self._hashes: list[bytes] = []

    @property
    def request_id(self) -> str:
        return self.wire.request_id

    @property
    def sampling_params(self) -> SamplingParams:
        return self.wire.sampling_params

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + len(self.output_token_ids)

    @property
    def token_ids(self) -> list[int]:
        return self.prompt_token_ids + self.output_token_ids

    @property
    def block_hashes(self) -> list[bytes]:
        done = len(self._hashes) * self._block_size
        rest = self.num_prompt_tokens + len(self.output_token_ids) - done
        if rest >= self._block_size:
            if not self._root:
                self._root = chain_root(self.wire.cache_salt, self.wire.adapter)
            if done >= self.num_prompt_tokens:
                tokens = self.output_token_ids[done - self.num_prompt_tokens :]
            else:
                tokens = self.prompt_token_ids[done:] + self.output_token_ids
            extend_hashes(
                self._hashes, self._root, tokens, done, self._block_size, self.wire.prompt_embeds
            )
        return self._hashes

    @property
    def priority(self) -> int:
        return self.wire.priority

    @property
    def tenant(self) -> str:
        return self.wire.tenant

    @property
    def deadline(self) -> float | None:
        return self.wire.deadline

    @property
    def arrival_time(self) -> float:
        return self.wire.arrival_time

    @property
    def adapter(self) -> AdapterRef | None:
        return self.wire.adapter

    @property
    def computes_whole_prompt(self) -> bool:
        pooling = self.wire.pooling
        if pooling is not None:
            return pooling.pooling is PoolingType.MEAN
        return self.wire.sampling_params.prompt_logprobs is not None and not self.emitted

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.status is RequestStatus.FINISHED

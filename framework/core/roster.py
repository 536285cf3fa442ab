"""`Roster`: which requests are in an engine core, and whether one can be taken.

Core process. `prepare` runs in any thread, all else in the main thread.
"""

from __future__ import annotations

from collections.abc import Collection

from framework.core.numbers import wrong_numbers
from framework.core.parts import EngineParts
from framework.core.pooling import pooling_refusal
from framework.core.request import Request
from hookspecs.types.request import EngineCoreRequest

__all__ = ["Roster"]


class Roster:
    """Requests by their names, from their arrival to their end."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._by_id: dict[str, Request] = {}
        self._by_handle: dict[tuple[int, int], Request] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def requests(self) -> Collection[Request]:
        """All of them, in the order of arrival."""
        return self._by_id.values()

    def find(self, client_index: int, handle: int) -> Request | None:
        """By the number that its front end gave it."""
        return self._by_handle.get((client_index, handle))

    def taken(self, wire: EngineCoreRequest) -> str | None:
        """What is wrong if its names are in use."""
        key = (wire.client_index, wire.handle)
        if wire.request_id not in self._by_id and key not in self._by_handle:
            return None
        return (
            f"a request with id {wire.request_id!r} or handle {wire.handle} of client "
            f"{wire.client_index} is still in the engine; both must be unique"
        )

    def make(self, wire: EngineCoreRequest) -> Request:
        """The engine's own form of a request. Any thread."""
        request = Request(
            wire,
            arrival=0,
            max_model_len=self._parts.max_model_len,
            block_size=self._parts.config.cache.block_size,
            queued_at=self._parts.clock(),
        )
        request.refusal = self._refusal(request)
        return request

    def prepare(self, wire: EngineCoreRequest) -> Request:
        """`make`, with what costs time computed."""
        request = self.make(wire)
        if request.refusal is None:
            _ = request.block_hashes
        return request

    def number(self, request: Request) -> None:
        """It arrives now."""
        request.arrival, request.queued_at = self._arrivals, self._parts.clock()
        self._arrivals += 1

    def enter(self, request: Request) -> None:
        """It is in the engine."""
        self._by_id[request.request_id] = request
        self._by_handle[request.wire.client_index, request.wire.handle] = request

    def leave(self, request: Request) -> None:
        """It has ended; its names can be used again."""
        del self._by_id[request.request_id]
        del self._by_handle[request.wire.client_index, request.wire.handle]

    def _refusal(self, request: Request) -> str | None:
        """Why a request can not be served whatever happens; front ends check the same, and
        more, before they send one."""
        parts = self._parts
        limit, cache, info = parts.max_model_len, parts.cache_tokens, parts.model.info
        ids = request.prompt_token_ids
        if not ids or min(ids) < 0 or max(ids) >= info.vocab_size:
            return f"the prompt must have token ids in [0, {info.vocab_size}), and at least one"
        if request.num_prompt_tokens >= limit:
            return (
                f"the prompt has {request.num_prompt_tokens} tokens; the limit of prompt and "
                f"output is {limit}"
            )
        if request.max_total_tokens <= request.num_prompt_tokens:
            return f"max_tokens is {request.sampling_params.max_tokens}; it must be at least 1"
        if request.max_total_tokens > cache:
            return (
                f"the request can come to {request.max_total_tokens} tokens (prompt "
                f"{request.num_prompt_tokens}), but the KV cache holds {cache}; lower max_tokens "
                "or raise cache.kv_bytes"
            )
        wrong = wrong_numbers(request.wire, info.vocab_size)
        if wrong is not None:
            return wrong
        pooling = request.wire.pooling
        if pooling is None:
            return None
        return pooling_refusal(pooling, info.hidden_size, parts.worker_capabilities)

"""`ProcessedRequest`: a validated request as the front end keeps it."""

from __future__ import annotations

import msgspec

from hookspecs.types.request import EngineCoreRequest
from hookspecs.types.sampling import SamplingParams

__all__ = ["ProcessedRequest"]


class ProcessedRequest(msgspec.Struct, kw_only=True):
    """One user request, and the n engine requests that it becomes."""

    request_id: str
    """As the user gave it."""
    prompt: str | None
    """Its text, if it came with one."""
    prompt_token_ids: list[int]
    params: SamplingParams
    """A copy of the user's, after filters; n as asked."""
    requests: list[EngineCoreRequest]
    """One for each of the n outputs, by index."""
    arrival_time: float
    """Seconds, monotonic clock of the front end."""
    model_end_tokens: frozenset[int] = frozenset()
    """Tokens that end an output without being its stop reason."""

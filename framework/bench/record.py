"""What is known of one request."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import msgspec

__all__ = ["RequestError", "RequestRecord"]


class RequestError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request failed; equal ones are counted together."""

    kind: str
    """`connect`, `disconnect`, `timeout`, `status`, `answer` (not what was asked for) or `event`
    (an error in the middle of a stream)."""
    message: str
    status: int | None = None
    """Of HTTP; None without an answer."""


@dataclass(slots=True)
class RequestRecord:
    """All times are seconds of one monotonic clock."""

    scheduled: float
    """From when latencies count: the arrival in an open loop, the sending in a closed one."""
    sent: float | None = None
    """When the generator began: None while it waited for `max_concurrency`."""
    ended: float | None = None
    """None: the run was ended before."""
    chunk_times: array[float] = field(default_factory=lambda: array("d"))
    """When each chunk with tokens came."""
    chunk_tokens: array[int] = field(default_factory=lambda: array("q"))
    """Tokens of each of them, if the server says so in every chunk."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """As the server counts, in `usage`; None if it does not say."""
    cached_tokens: int = 0
    """Of the prompt, which the server had in its prefix cache; 0 also if it does not say."""
    error: RequestError | None = None
    long: bool = False
    """Its prompt is one of the long ones of a mixed load."""

    @property
    def completed(self) -> bool:
        """It ended, and well."""
        return self.ended is not None and self.error is None

"""Requests on their way to an engine core, and how they end."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hookspecs.types.pooling import PoolingParams
from hookspecs.types.sampling import SamplingParams

__all__ = ["AdapterRef", "EngineCoreRequest", "FinishReason", "RequestStatus"]


class FinishReason(IntEnum):
    """Why a request ended. The names are what users see, in lower case."""

    STOP = 0
    """An end token, a stop token or a stop string."""
    LENGTH = 1
    """max_tokens, or the context of the model."""
    ABORT = 2
    """The caller, or the engine on its behalf, gave it up."""
    ERROR = 3
    """It failed; the output's error says why."""
    TIMEOUT = 4
    """Its deadline passed while it waited."""

    def __str__(self) -> str:
        return self.name.lower()


class RequestStatus(IntEnum):
    """Where a request is. Everything from FINISHED on holds no blocks and no slot."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class AdapterRef(msgspec.Struct, frozen=True):
    """A fine-tuned adapter (LoRA) by name and version; both isolate cached blocks."""

    name: str
    version: str = ""


class EngineCoreRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request, as a front end sends it to an engine core (n is already 1)."""

    request_id: str
    """Unique within the engine."""
    handle: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """The front end's own number for it, never used twice; outputs refer to it."""
    prompt_token_ids: list[int]
    """With prompt_embeds: one filler id a position."""
    sampling_params: SamplingParams
    arrival_time: float
    """Seconds, monotonic clock of the front end's machine."""
    eos_token_id: int | None = None
    """The model's primary end token; None when it is ignored."""
    client_index: int = 0
    priority: int = 0
    """Smaller runs first, under the priority policy."""
    tenant: str = ""
    """Who is served, under the fair-share policy."""
    deadline: float | None = None
    """Latest time to start, seconds, monotonic clock; under the deadline policy."""
    cache_salt: str = ""
    """Requests share cached blocks only within one salt."""
    adapter: AdapterRef | None = None
    prompt_embeds: Any = None
    """float array [prompt tokens, hidden size], or None."""
    external_request_id: str = ""
    """The id that the user gave."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Free, bounded attributes that reach the finished record."""
    trace_headers: dict[str, str] = msgspec.field(default_factory=dict)
    current_wave: int = 0
    data_parallel_rank: int | None = None
    pooling: PoolingParams | None = None
    """If given, the prompt is pooled to one vector and no token is sampled."""
    num_emitted_tokens: int = 0
    """When a request continues on another engine: how many of the prompt's last tokens were
    already given to the user as output."""

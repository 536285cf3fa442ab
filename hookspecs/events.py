"""Events: the one argument of every filter and observer, a frozen struct each.

Adding information is adding a field with a default, so a plugin's signature never changes.
"""

from __future__ import annotations

import msgspec

from hookspecs.config import EngineConfig
from hookspecs.info import ProcessRole
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.pooling import PoolingParams
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = [
    "CacheReset",
    "ConfigResolved",
    "EngineFailed",
    "EngineStarted",
    "EngineStopping",
    "Event",
    "OutputReady",
    "PluginFailed",
    "RequestAdmitted",
    "RequestFinished",
    "RequestReceived",
    "RequestRejected",
    "StepFinished",
    "WorkerReady",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""


class ConfigResolved(Event, frozen=True, kw_only=True):
    """The configuration, from all its sources, before anything is made from it."""

    config: EngineConfig


class RequestReceived(Event, frozen=True, kw_only=True):
    """A request that passed validation and is about to be sent to an engine core."""

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    tenant: str = ""
    priority: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    pooling: PoolingParams | None = None
    """Given for a pooling request, to which `params` mean nothing. A filter may change it, but
    neither give it to a request without nor take it away."""


class RequestRejected(Event, frozen=True, kw_only=True):
    """Returned by a filter instead of a request: the caller gets `reason`."""

    reason: str


class OutputReady(Event, frozen=True, kw_only=True):
    """An output that is about to be given to its user."""

    output: RequestOutput
    output_kind: OutputKind = OutputKind.CUMULATIVE
    """Whether texts and tokens are those since the last output of the request, or all so far."""


class PluginFailed(Event, frozen=True, kw_only=True):
    """A plugin raised where it may."""

    plugin: str
    hook: str
    error: str
    """Type and message."""
    action: str
    """What was done: `logged`, `quarantined`, `detached`, `request failed`,
    `command failed`."""
    role: ProcessRole


class EngineStarted(Event, frozen=True, kw_only=True):
    """An engine core is ready."""

    engine_index: int
    model: str
    max_model_len: int
    num_blocks: int
    block_size: int
    plugins: dict[str, str]
    """Kind or slot to the provider chosen for it."""


class EngineStopping(Event, frozen=True, kw_only=True):
    """An engine core is about to stop."""

    engine_index: int
    reason: str


class EngineFailed(Event, frozen=True, kw_only=True):
    """An engine core stops because of an error."""

    engine_index: int
    error: str
    plugin: str | None = None


class WorkerReady(Event, frozen=True, kw_only=True):
    """A worker has loaded its part of the model."""

    rank: int
    device: str
    plugins: tuple[str, ...]


class RequestAdmitted(Event, frozen=True, kw_only=True):
    """A request left the queue for the first time."""

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    queue_time: float
    """Seconds."""
    tenant: str = ""


class RequestFinished(Event, frozen=True, kw_only=True):
    """A request ended, whatever the cause. Exactly once a request."""

    request_id: str
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    num_preemptions: int = 0
    error: str | None = None
    tenant: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class StepFinished(Event, frozen=True, kw_only=True):
    """A step ran on the device and its tokens were applied to their requests."""

    step: int
    num_scheduled_tokens: int
    num_rows: int
    num_sampled_tokens: int
    num_running: int
    num_waiting: int
    preempted_request_ids: tuple[str, ...]
    schedule_s: float
    execute_s: float
    """From launch of the forward to its sampled tokens."""
    update_s: float


class CacheReset(Event, frozen=True, kw_only=True):
    """All cached blocks were forgotten."""

    engine_index: int

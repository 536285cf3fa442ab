"""`EngineCoreClient`: how a front end reaches an engine core, wherever that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import EngineCoreRequest, FinishReason

__all__ = ["EngineCoreClient", "EngineInfo"]


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine core tells its front ends when it is ready."""

    max_model_len: int
    """Prompt and output tokens of one request: the effective limit, everywhere the same."""
    cache_tokens: int
    """Most tokens that one request can hold in the KV cache; may be below max_model_len."""
    num_blocks: int
    """Blocks of the KV cache, without the null block."""
    block_size: int
    """Tokens a block."""
    worker: str
    """Name of the worker provider."""
    capabilities: frozenset[str] = frozenset()
    """WorkerCapability values of the worker."""


class EngineCoreClient(ABC):
    """One front end's connection to one engine core. Front-end process, one thread.

    Every method may raise EngineDeadError once the engine core has stopped.
    """

    @property
    @abstractmethod
    def info(self) -> EngineInfo:
        """Facts of the engine core, fixed from its start."""

    @abstractmethod
    def add_request(self, request: EngineCoreRequest) -> None:
        """Hand over a validated request; its handle has never been used before."""

    @abstractmethod
    def abort_requests(
        self, handles: Sequence[int], reason: FinishReason = FinishReason.ABORT
    ) -> None:
        """End requests for a reason that the front end knows. Handles that have finished
        already, or are unknown, are ignored."""

    @abstractmethod
    def get_outputs(self) -> EngineCoreOutputs:
        """The next bundle of outputs. In-process this runs one step; else it waits for one."""

    @abstractmethod
    def has_unfinished(self) -> bool:
        """Whether the engine core has requests that have not finished."""

    @abstractmethod
    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing happens, while requests use blocks."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close the connection, and stop the engine core if it is this client's own. Safe to
        call twice."""

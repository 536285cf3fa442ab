"""`EngineCoreClient`: how a front end reaches an engine core, wherever that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from framework.core.info import EngineInfo
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import EngineCoreRequest, FinishReason

__all__ = ["EngineCoreClient"]


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

    @property
    def has_outputs(self) -> bool:
        """Whether `get_outputs` returns at once, without a step."""
        return False

    @property
    def is_stuck(self) -> bool:
        """Whether no output will come until this caller does something about the engine's state:
        it is paused, and nobody else can reach it."""
        return False

    @abstractmethod
    def command(self, arguments: CommandArguments) -> Any:
        """Run a control command and wait for its answer; raises its failure. Outputs that come
        meanwhile are kept for `get_outputs`."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close the connection, and stop the engine core if it is this client's own. Safe to
        call twice."""

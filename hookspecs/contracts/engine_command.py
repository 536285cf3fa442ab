"""Engine commands: what a plugin lets users ask of an engine core while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.contracts.kv_cache import CacheView
from hookspecs.contracts.policy import SchedulerView
from hookspecs.contracts.request_view import RequestView

__all__ = ["EngineCommand", "EngineCommandContext", "EngineView", "NoArguments"]


class NoArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a command that takes none."""


@runtime_checkable
class EngineView(Protocol):
    """What the kernel lends to commands: live objects, no copies, which are to be read during a
    call and in its thread only, and kept by nobody. Each access at another time or in another
    thread raises ContractViolation; what was got from it before is not guarded."""

    @property
    def scheduler(self) -> SchedulerView:
        """Requests in numbers, time, served tokens."""

    @property
    def cache(self) -> CacheView:
        """Blocks in numbers."""

    def requests(self) -> Sequence[RequestView]:
        """All requests that have not ended, in the order of arrival."""

    def call_workers(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """Run a command of the workers; results in rank order. CommandError for an unknown one,
        one that the engine keeps to itself, or while the workers' memory sleeps; TimeoutError
        after `timeout` seconds; the worker's own exception. None of them, let through by `run`, is
        put down to the command."""


class EngineCommandContext(Context, frozen=True, kw_only=True):
    """Context of an engine command."""

    engine: EngineView
    engine_index: int = 0


class EngineCommand(ABC):
    """A command that the front end runs on every engine by `EngineClient.command`; the provider's
    name is the command. It may be an HTTP route's other half.

    The name has no underscore and is none of `drain`, `pause`, `resume` and `sleep`. A command that
    the engine itself gets in a later version has an underscore, so no name is ever taken away.

    Constructed when the engine starts. Core process, main thread, between two steps: it must
    return promptly, since no request advances meanwhile. What it raises is its caller's error
    (InvalidRequestError and CommandError as they are, anything else as CommandError) and harms
    no request. What was raised in another plugin's code, as in that of a worker, is put down to
    that plugin.
    """

    Arguments: ClassVar[type[msgspec.Struct]] = NoArguments
    """Frozen, keyword-only, `forbid_unknown_fields`; checked before `run` is called."""

    def __init__(self, context: EngineCommandContext) -> None:
        self.context = context

    @abstractmethod
    def run(self, arguments: Any) -> Any:
        """Do it. `arguments`: an instance of `Arguments`. The result must be encodable by
        msgspec; front ends get it as plain values."""

    def close(self) -> None:
        """The engine stops. The last call."""
        return

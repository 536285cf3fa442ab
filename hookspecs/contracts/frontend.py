"""Front ends, HTTP routes and CLI commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from hookspecs.contracts.base import Context
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = [
    "CliCommand",
    "CliContext",
    "EngineClient",
    "Frontend",
    "FrontendContext",
    "HttpRoutes",
    "HttpRoutesContext",
]


class EngineClient(Protocol):
    """What the kernel lends to front ends and routes."""

    def generate(
        self, prompt: Any, params: SamplingParams, *, request_id: str
    ) -> AsyncIterator[RequestOutput]:
        """Outputs of one request until it has finished; closing the iterator aborts it."""

    async def abort(self, request_id: str) -> None:
        """End a request with finish reason `abort`."""

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """A registered control command."""


class FrontendContext(Context, frozen=True, kw_only=True):
    """Context of a front end."""

    engine: EngineClient


class Frontend(ABC):
    """Takes requests from users. Front-end process, its event loop."""

    def __init__(self, context: FrontendContext) -> None:
        self.context = context

    @abstractmethod
    async def serve(self) -> None:
        """Until cancelled or the engine is dead."""


class HttpRoutesContext(Context, frozen=True, kw_only=True):
    """Context of HTTP routes."""

    engine: EngineClient


class HttpRoutes(ABC):
    """Routes under the front end's own server, behind its authentication."""

    prefix: str
    """Path below which all of them lie."""

    def __init__(self, context: HttpRoutesContext) -> None:
        self.context = context

    @abstractmethod
    def asgi(self) -> Any:
        """An ASGI application, mounted at `prefix`."""


class CliContext(Context, frozen=True, kw_only=True):
    """Context of a CLI command."""


class CliCommand(ABC):
    """`framework NAME …`; the provider's name is the command."""

    def __init__(self, context: CliContext) -> None:
        self.context = context

    @abstractmethod
    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare its arguments."""

    @abstractmethod
    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        """Do it; returns the exit code."""

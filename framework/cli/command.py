"""What a command is, and what commands are lent."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from framework.config import ResolvedConfig
from framework.plugins.manager import PluginManager
from framework.plugins.report import PluginReport
from hookspecs.config import EngineConfig
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["Command", "Handle", "Launch", "Serve", "Session"]


class Handle(Protocol):
    """The part of a launched engine that commands use."""

    def generate(
        self, prompts: Sequence[Any], params: SamplingParams, *, progress: bool = False
    ) -> list[RequestOutput]:
        """Outputs in the order of the prompts; a progress bar on standard error if wanted."""

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[RequestOutput]:
        """What is new of one prompt's output, as it comes; closing it aborts the request."""

    def chat_prompt(self, messages: list[dict[str, Any]]) -> Any:
        """The prompt of a conversation."""

    def default_params(self) -> SamplingParams:
        """The sampling parameters that the model's authors recommend."""

    def plugins(self) -> list[PluginReport]:
        """State of every plugin."""

    def shutdown(self) -> None:
        """Stop the engine."""


class Launch(Protocol):
    """Makes an engine, as `framework.launch` does."""

    def __call__(
        self,
        config: EngineConfig,
        *,
        report: Callable[[str], None],
        progress: Callable[[str, float], None],
    ) -> Handle:
        """`report` gets the start-up lines, `progress` (what, 0 to 1) of long work."""


class Serve(Protocol):
    """Serves until it is told to stop, as `framework.serve` does."""

    def __call__(
        self,
        config: EngineConfig,
        *,
        report: Callable[[str], None],
        progress: Callable[[str, float], None],
        serving: Callable[[str, PluginManager], None],
    ) -> int:
        """`serving` gets the address once requests are taken. Returns the exit code."""


@dataclass(frozen=True)
class Session:
    """What one run of the command line lends to its command."""

    resolved: ResolvedConfig
    launch: Launch
    serve: Serve

    @property
    def config(self) -> EngineConfig:
        """The settings from all sources."""
        return self.resolved.config


@dataclass(frozen=True)
class Command:
    """`framework NAME …` or `framework GROUP NAME …`."""

    path: tuple[str, ...]
    """One or two words."""
    help: str
    run: Callable[[Namespace, Session], int]
    """Returns the exit code."""
    add_arguments: Callable[[ArgumentParser], None] = lambda parser: None

"""Parsers of a model's text: tool calls and reasoning. Front-end process, one per request."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from hookspecs.contracts.base import Context

__all__ = [
    "ParserContext",
    "ReasoningDelta",
    "ReasoningParser",
    "ToolCall",
    "ToolDelta",
    "ToolParser",
]


class ParserContext(Context, frozen=True, kw_only=True):
    """Context of a parser."""

    tools: tuple[dict[str, object], ...] = ()
    """JSON schemas of the request's tools."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, or what a delta adds to it."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    """JSON text."""


class ToolDelta(msgspec.Struct, frozen=True):
    """What new text turned out to be."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class ToolParser(ABC):
    """Splits text into content and tool calls, piece by piece."""

    def __init__(self, context: ParserContext) -> None:
        self.context = context

    @abstractmethod
    def feed(self, text: str) -> ToolDelta:
        """New text."""

    @abstractmethod
    def close(self) -> ToolDelta:
        """No more text: what was held back."""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """What new text turned out to be."""

    reasoning: str = ""
    content: str = ""


class ReasoningParser(ABC):
    """Splits text into reasoning and content, piece by piece."""

    def __init__(self, context: ParserContext) -> None:
        self.context = context

    @abstractmethod
    def feed(self, text: str) -> ReasoningDelta:
        """New text."""

    @abstractmethod
    def close(self) -> ReasoningDelta:
        """No more text: what was held back."""

"""Structured output: grammar backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.types.columns import Int32Column

__all__ = ["GrammarBackend", "GrammarCapability", "GrammarContext", "GrammarMatcher", "GrammarSpec"]


class GrammarCapability(StrEnum):
    """The kinds of grammar a backend understands, and what its matchers can do."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    EBNF = "ebnf"
    LARK = "lark"
    STRUCTURAL_TAG = "structural_tag"
    ROLLBACK = "rollback"


class GrammarSpec(msgspec.Struct, frozen=True):
    """A grammar as a request gives it."""

    kind: str
    """A GrammarCapability value."""
    source: str


class GrammarContext(Context, frozen=True, kw_only=True):
    """Context of a grammar backend."""

    tokenizer_path: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]


class GrammarMatcher(ABC):
    """Where one request is in its grammar. Core process."""

    @abstractmethod
    def fill_bitmask(self, bitmask: Int32Column) -> None:
        """Set bit i of int32[words] where token i may follow."""

    @abstractmethod
    def accept(self, token_ids: Sequence[int]) -> bool:
        """Advance; False (nothing changed) if a token does not follow."""

    @abstractmethod
    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens (ROLLBACK)."""

    @property
    @abstractmethod
    def terminated(self) -> bool:
        """Whether only an end token may follow."""


class GrammarBackend(ABC):
    """`validate` in the front end; `compile` in the core, off the step loop."""

    capabilities: ClassVar[frozenset[GrammarCapability]] = frozenset()

    def __init__(self, context: GrammarContext) -> None:
        self.context = context

    @abstractmethod
    def validate(self, spec: GrammarSpec) -> None:
        """InvalidRequestError for a grammar it can not enforce completely. Cheap."""

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> GrammarMatcher:
        """A matcher at the beginning of the grammar. Any thread."""

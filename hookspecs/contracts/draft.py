"""Speculative decoding: draft proposers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from hookspecs.contracts.base import Context
from hookspecs.types.step import NewRequest

__all__ = ["DraftCapability", "DraftContext", "DraftProposer"]


class DraftCapability(StrEnum):
    """What a proposer gives."""

    PROBABILITIES = "probabilities"
    DYNAMIC_LENGTH = "dynamic_length"


class DraftContext(Context, frozen=True, kw_only=True):
    """Context of a draft proposer."""

    vocab_size: int
    max_num_seqs: int
    max_draft_tokens: int


class DraftProposer(ABC):
    """Worker process. Keeps state by slot from `add` to `remove`."""

    capabilities: ClassVar[frozenset[DraftCapability]] = frozenset()

    def __init__(self, context: DraftContext) -> None:
        self.context = context

    @abstractmethod
    def add(self, request: NewRequest) -> None:
        """A request starts or resumes in its slot."""

    @abstractmethod
    def remove(self, slot: int) -> None:
        """A slot became free."""

    @abstractmethod
    def propose(self, slots: Sequence[int], accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        """Drafts for each slot, given the tokens that were accepted since the last call; at
        most max_draft_tokens each, may be empty."""

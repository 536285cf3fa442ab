"""Broken logits processors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import torch
from msgspec import Meta

from hookspecs.contracts.logits import LogitsProcessor, LogitsProcessorContext
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Strength(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a request."""

    strength: Annotated[float, Meta(description="Added to a logit.")] = 40.0


class Following(LogitsProcessor):
    """A right one: after a token it wants the next higher one."""

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        self.text: list[int] = []

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        self.text = [*prompt, *generated]

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        if self.text:
            logits[(self.text[-1] + 1) % self.context.vocab_size] += self._strength()
        return logits

    def accept(self, token: int) -> None:
        self.text.append(token)

    def _strength(self) -> float:
        options: Strength = self.context.request_options
        return options.strength


class GivesDoubles(Following):
    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.double()


class DividesByZero(Following):
    """NaN where the logit is zero."""

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        logits[0] = 0.0
        return logits / logits.abs().clamp(max=1.0)


class ForbidsAll(Following):
    """Forbids what occurred, and after many tokens everything."""

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.fill_(-torch.inf) if len(self.text) > 30 else logits


class WritesToTheBatch(Following):
    """Leaks between requests: writes past its row."""

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        count = logits.untyped_storage().nbytes() // logits.itemsize
        logits.as_strided((count,), (1,), 0)[7 :: self.context.vocab_size] = 90.0
        return logits


class HearsNothingOfBefore(Following):
    """Stale state after preemption: what was generated before is not told to it."""

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        self.text = list(prompt)

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        logits[len(self.text) % self.context.vocab_size] += self._strength()
        return logits


class Smooths(Following):
    """Depends on earlier logits, not on tokens alone."""

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        self._mean = 0.9 * getattr(self, "_mean", torch.zeros_like(logits)) + 0.1 * logits
        return self._mean


class DrawsLots(Following):
    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        return logits + torch.rand_like(logits)


class OneText(Following):
    """Leaks between requests: the text is the class's."""

    _shared: ClassVar[list[int]] = []

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        self._shared[:] = [*prompt, *generated]
        self.text = self._shared


class TakesItsOptions(Following):
    def _strength(self) -> float:
        options: dict[str, float] = self.context.params.extensions["mutant"]
        return options.pop("strength", 0.0)


class KeepsItself(Following):
    _all: ClassVar[list[LogitsProcessor]] = []

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        super().start(prompt, generated)
        self._all.append(self)


class ReadsTheTextAgain(Following):
    """Its cost grows with the text."""

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        counts: dict[int, int] = {}
        for token in self.text:
            counts[token] = counts.get(token, 0) + 1
        return logits


def _mutant(fault: str, part: type[LogitsProcessor], *caught_by: str) -> Mutant:
    plugin = providing("logits_processor", part, request_options=Strength)
    return Mutant("logits_processor", fault, plugin, caught_by)


MUTANTS = [
    _mutant("gives float64", GivesDoubles, "test_mask_gives_logits"),
    _mutant("gives NaN", DividesByZero, "test_mask_gives_logits"),
    _mutant(
        "forbids all tokens",
        ForbidsAll,
        "test_mask_gives_logits",
        "test_neighbours_get_the_same",
    ),
    _mutant("writes to other rows", WritesToTheBatch, "test_other_rows_are_untouched"),
    _mutant(
        "stale state after preemption",
        HearsNothingOfBefore,
        "test_a_resumed_request_gets_the_same",
        "test_tokens_depend_on_the_text_alone",
    ),
    _mutant("depends on earlier logits", Smooths, "test_a_resumed_request_gets_the_same"),
    _mutant("draws lots", DrawsLots, "test_the_same_text_gives_the_same"),
    _mutant("leaks between requests", OneText, "test_requests_share_nothing"),
    _mutant("takes its options out", TakesItsOptions, "test_parameters_are_not_changed"),
    _mutant("keeps requests that ended", KeepsItself, "test_ended_requests_are_forgotten"),
    _mutant("reads the text again", ReadsTheTextAgain, "test_a_token_costs_the_same_in_any_text"),
]

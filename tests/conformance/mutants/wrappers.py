"""Broken wrappers of step phases."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future

import numpy as np

from hookspecs import PluginInfo, hookimpl
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from tests.conformance.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


def _info(*phases: str) -> PluginInfo:
    provides = tuple(f"wrap:{phase}" for phase in phases)
    return PluginInfo(name="mutant", api=">=1.0,<2", provides=provides)


class ChangesTokens:
    PLUGIN = _info("sample_tokens")

    @hookimpl(wrapper=True)
    def sample_tokens(
        self, grammar: GrammarOutput | None
    ) -> Generator[None, Future[ModelRunnerOutput], Future[ModelRunnerOutput]]:
        launched = yield
        output = launched.result()
        output.token_ids = np.zeros_like(output.token_ids)
        return launched


class SwallowsFailures:
    PLUGIN = _info("update_from_output")

    @hookimpl(wrapper=True)
    def update_from_output(
        self, scheduled: SchedulerOutput, applied: Int32Column
    ) -> Generator[None, None, None]:
        try:
            yield
        except Exception:
            return


MUTANTS = [
    Mutant("wrappers", "changes tokens", ChangesTokens(), ("test_tokens_stay",)),
    Mutant(
        "wrappers",
        "swallows failures",
        SwallowsFailures(),
        ("test_failures_of_a_phase_come_through",),
    ),
]

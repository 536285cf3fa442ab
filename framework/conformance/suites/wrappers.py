"""Suite of plugins that wrap step phases."""

from __future__ import annotations

from functools import partial
from typing import Any

from framework.conformance.base import Conformance
from framework.conformance.subject import PluginSubject
from framework.conformance.worlds.engines import greedy, run_prompts
from framework.conformance.worlds.inside import Inside
from framework.plugins.specs import HOOKS
from hookspecs.errors import FrameworkError
from hookspecs.info import HookKind

__all__ = ["WrappersConformance"]


class WrappersConformance(Conformance):
    """Wrappers stand around a phase of every step, and change nothing unless they say so."""

    kind = "wrappers"

    def test_tokens_stay(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: generates with the wrappers and without, in a cache that is too small.
        Must: pass on what the phase gave, so that the tokens are the same.
        """
        small: dict[str, Any] = {"cache": {"num_blocks": 12}}
        with subject.launch(**small) as engine:
            wrapped = run_prompts(engine, 4)
        with subject.launch_without(**small) as engine:
            bare = run_prompts(engine, 4)
        assert wrapped == bare, "tokens change when the plugin wraps"

    def test_failures_of_a_phase_come_through(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: lets each wrapped phase fail inside of the wrapper.
        Must: let the error out, or the engine goes on with a step that did not happen.
        """
        for phase in _phases(subject):
            with subject.launch(beside=[Inside(subject.name, partial(_fail, phase))]) as engine:
                try:
                    list(engine.generate([[1, 2, 3]], greedy(4)))
                except FrameworkError as error:
                    said = f"{error} {error.__cause__}"
                    assert FAULT in said, f"the failure of {phase} comes out as another: {said}"
                else:
                    raise AssertionError(f"the failure of {phase} did not come out")


FAULT = "the conformance kit lets this phase fail"


def _fail(wanted: str, phase: str) -> None:
    if phase == wanted:
        raise RuntimeError(FAULT)


def _phases(subject: PluginSubject) -> list[str]:
    return [hook for hook in subject.loaded.hooks if HOOKS[hook].meta.kind is HookKind.STEP]

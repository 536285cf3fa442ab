"""A logits processor that no request could have is refused where it is registered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from framework.plugins.check import check_plugin
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, SamplingParams, hookimpl
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import ContractViolation, InvalidRequestError
from tests.conformance.mutants.mutant import providing
from tests.core.scripted import greedy, launch_scripted
from tests.logits_processors.rules import plugin

ALL = frozenset(ProcessRole)
TARGET = "tests.logits_processors.rules:Affine"


class NoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say."""


def offering(options: type[msgspec.Struct] | None, roles: frozenset[ProcessRole] = ALL) -> Any:
    class Plugin(EngineHooks):
        PLUGIN = PluginInfo(name="mine", api=">=1.0,<2", roles=roles)

        @hookimpl
        def register_logits_processors(self) -> Iterable[Provider[Any]]:
            yield Provider("mine", TARGET, request_options=options)

    return Plugin()


def test_without_options_of_a_request_it_could_never_be_asked_for() -> None:
    bad = offering(None)
    with pytest.raises(ContractViolation, match="'mine' has no request_options"):
        launch_scripted(plugins=[bad])
    (finding,) = check_plugin(bad)
    assert "no request_options" in finding


@pytest.mark.parametrize("lacking", [ProcessRole.FRONTEND, ProcessRole.WORKER])
def test_it_must_be_known_in_the_front_end_and_in_the_worker(lacking: ProcessRole) -> None:
    with pytest.raises(ContractViolation, match=rf"PLUGIN\.roles lacks {lacking}, where"):
        launch_scripted(plugins=[offering(NoOptions, ALL - {lacking})])


def test_a_struct_without_fields_will_do() -> None:
    with (
        launch_scripted(plugins=[offering(NoOptions)]) as engine,
        pytest.raises(InvalidRequestError, match=r"extensions\.mine has no option 'size'"),
    ):
        params = greedy(1)
        params.extensions = {"mine": {"size": 1}}
        engine.generate([[3]], params)


class _WithoutProcessors(ScriptedWorker):
    """A worker that applies none."""

    capabilities = ScriptedWorker.capabilities - {WorkerCapability.LOGITS_PROCESSORS}


def test_a_worker_that_applies_none_refuses_the_request() -> None:
    lacking = providing("worker", _WithoutProcessors, options=ScriptedOptions)
    with (
        launch_scripted(
            plugins=[plugin, lacking],
            executor={"worker": "mutant"},
            model={"name": "scripted", "source": "scripted"},
        ) as engine,
        pytest.raises(InvalidRequestError, match="does not declare the capability"),
    ):
        engine.generate([[1, 2]], SamplingParams(max_tokens=1, extensions={"affine-a": {}}))

"""What `auto` chooses, and what a provider that fails meanwhile does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted

import framework
from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import ModelSource
from hookspecs.errors import ProviderError, UnsupportedModelError


class RaisingMatches(ModelSource):
    def matches(self, name: str) -> bool:
        raise OSError("no disk")

    def resolve(self, name: str, revision: str | None) -> Any:
        raise KeyError("inside source")


class RaisingResolve(RaisingMatches):
    def matches(self, name: str) -> bool:
        return name == "mine"


sys.modules["choice_targets"] = sys.modules[__name__]


class Sources(EngineHooks):
    PLUGIN = PluginInfo(name="sources", api=">=1.0,<2")

    @hookimpl
    def register_model_sources(self) -> Any:
        yield Provider("aaa", "choice_targets:RaisingMatches")
        yield Provider("mine", "choice_targets:RaisingResolve")


def test_a_source_that_can_not_say_whether_a_name_is_its_own_is_left_out(caplog: Any) -> None:
    with launch_scripted(plugins=[Sources()]) as engine:
        assert engine.generate([[1]], greedy(1))
    assert "no disk" not in caplog.text  # built-in sources are asked first
    with pytest.raises(ProviderError, match=r"mine.*inside source") as error:
        framework.launch({"model": {"name": "mine"}}, plugins=[Sources()])
    assert error.value.plugin == "sources"
    assert "no disk" in caplog.text


def test_a_named_source_is_asked_whatever_the_name() -> None:
    with pytest.raises(ProviderError, match="inside source"):
        framework.launch({"model": {"name": "x", "source": "aaa"}}, plugins=[Sources()])


class RefusingWorker(ScriptedWorker):
    @classmethod
    def rate(cls) -> int:
        return 1 << 20

    def load_model(self) -> None:
        raise UnsupportedModelError("such a model can not be run.")


class Workers(EngineHooks):
    PLUGIN = PluginInfo(name="workers", api=">=1.0,<2")

    @hookimpl
    def register_workers(self) -> Any:
        yield Provider(
            "refusing",
            "choice_targets:RefusingWorker",
            options=ScriptedOptions,
            capabilities=CAPABILITIES,
        )


def test_a_worker_that_auto_chose_fails_and_the_one_of_the_source_is_named() -> None:
    with pytest.raises(UnsupportedModelError) as error:
        framework.launch({"model": {"name": "scripted"}}, plugins=[Workers()])
    assert str(error.value) == (
        "such a model can not be run. The model comes from plugin 'worker-scripted', which has a "
        "worker of its own: set executor.worker to 'scripted'"
    )


def test_nothing_is_added_where_the_worker_was_named() -> None:
    config = {"model": {"name": "scripted"}, "executor": {"worker": "refusing"}}
    with pytest.raises(UnsupportedModelError, match=r"^such a model can not be run\.$"):
        framework.launch(config, plugins=[Workers()])

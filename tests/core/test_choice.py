"""What `auto` chooses, and what a provider that fails meanwhile does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted

import framework
from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from framework.config import load_config
from framework.core.choice import choose_loader
from framework.plugins.manager import PluginManager
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import (
    LoadedModel,
    LoaderCapability,
    ModelInfo,
    ModelLoader,
    ModelSource,
    ResolvedModel,
)
from hookspecs.errors import ConfigError, ProviderError, UnsupportedModelError


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


class Rating(ModelLoader):
    """Rates 1000 what is to be float16 on a device of its own."""

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        return 1000 * (dtype == "float16" and device == "npu")

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> LoadedModel:
        raise NotImplementedError


class Declining(Rating):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        raise UnsupportedModelError("it knows no such model")


class Broken(Rating):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        raise OSError("no disk")


class Silent(Rating):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        return cast(int, None)


class Quantizing(Rating):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        if quantization not in (None, "int8"):
            raise UnsupportedModelError("it quantizes to int8.")
        return int(device == "tpu")


class Loaders(EngineHooks):
    PLUGIN = PluginInfo(name="loaders", api=">=1.0,<2")

    @hookimpl
    def register_model_loaders(self) -> Any:
        yield Provider("zzz-rating", "choice_targets:Rating")
        yield Provider("rating", "choice_targets:Rating", capabilities=frozenset(LoaderCapability))
        yield Provider(
            "quantizing", "choice_targets:Quantizing", capabilities=frozenset(LoaderCapability)
        )
        yield Provider("declining", "choice_targets:Declining")
        yield Provider("broken", "choice_targets:Broken")
        yield Provider("silent", "choice_targets:Silent")


def _choose(dtype: str, device: str, **model: Any) -> tuple[str, str]:
    """The loader, and what is said of it, for a model without files."""
    config = {"model": {"name": "m", **model}, "plugins": {"activation": "none"}}
    plugins = PluginManager.build(load_config(config).config, objects=[Loaders()])
    info = ModelInfo(architecture="NoSuchModel", vocab_size=8, max_model_len=8)
    found = ResolvedModel(name="m", path=None, tokenizer_path=None, info=info)
    lines: list[str] = []
    name = choose_loader(plugins, found, dtype=dtype, device=device, report=lines.append)
    return name, "\n".join(lines)


def test_the_loader_that_rates_highest_is_chosen_and_the_others_reasons_are_said() -> None:
    name, said = _choose("float16", "npu")
    assert name == "rating", "of equals the first by name"
    assert said.startswith("model loader 'rating'; not ")
    assert "'declining': it knows no such model" in said
    assert "'broken': OSError: no disk" in said
    assert "'silent': TypeError: " in said, "what is no number is no rating"


def test_a_loader_that_is_named_is_not_rated() -> None:
    assert _choose("float32", "cpu", loader="declining") == ("declining", "")


def test_only_loaders_that_quantize_are_chosen_where_that_is_asked_for() -> None:
    name, said = _choose("float16", "npu", quantization="int8")
    assert name == "rating"
    assert "'zzz-rating': does not declare quantization" in said


def test_a_model_that_no_loader_takes_is_refused_with_all_reasons() -> None:
    with pytest.raises(UnsupportedModelError) as error:
        _choose("float32", "cpu")
    for part in ("'rating': rates it 0", "'declining': it knows", "'broken'", "'transformers'"):
        assert part in str(error.value)


def test_a_quantization_that_no_loader_has_is_a_wrong_setting() -> None:
    assert _choose("float16", "tpu", quantization="int8")[0] == "quantizing"
    with pytest.raises(ConfigError) as error:
        _choose("float16", "tpu", quantization="q4")
    said = str(error.value)
    assert said.startswith("model.quantization is 'q4', which no model loader has for model 'm'")
    assert "'quantizing': it quantizes to int8; " in said
    assert "model.loader" not in said


def test_a_model_that_no_loader_takes_either_way_is_not_blamed_on_the_quantization() -> None:
    with pytest.raises(UnsupportedModelError, match="no model loader takes model 'm'"):
        _choose("float16", "cpu", quantization="q4")

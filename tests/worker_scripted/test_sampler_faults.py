"""A sampler that raises in `add`: an error of the request ends it, any other is the plugin's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import framework
from hookspecs import EngineHooks, PluginInfo, Provider, SamplingParams, hookimpl
from hookspecs.contracts.logits import Sampler
from hookspecs.errors import PluginError


class Faulty(EngineHooks):
    """Offers the sampler `faulty`."""

    PLUGIN = PluginInfo(name="faulty", api=">=1.0,<2")

    @hookimpl
    def register_samplers(self) -> Iterable[Provider[Sampler]]:
        yield Provider("faulty", "tests.worker_scripted.fakes:FaultySampler")


CONFIG = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted", "sampler": "faulty"},
    "stats": {"loggers": []},
}


def params(temperature: float) -> SamplingParams:
    return SamplingParams(temperature=temperature, max_tokens=3, detokenize=False)


def test_a_refused_request_ends_alone() -> None:
    with framework.launch(CONFIG, plugins=[Faulty()]) as engine:
        outputs = engine.generate([[3], [4], [5]], [params(0.5), params(1.0), params(0.5)])
        reasons = [output.outputs[0].finish_reason for output in outputs]
        assert reasons == ["length", "error", "length"]
        # Its slot goes to others, and nothing of it was kept.
        assert len(engine.generate([[6]] * 3, params(0.5))) == 3


def test_any_other_exception_stops_the_engine_with_the_sampler_named() -> None:
    with (
        framework.launch(CONFIG, plugins=[Faulty()]) as engine,
        pytest.raises(PluginError, match="ZeroDivisionError: a bug") as caught,
    ):
        engine.generate([[3], [4]], [params(0.5), params(2.0)])
    assert caught.value.plugin == "faulty"

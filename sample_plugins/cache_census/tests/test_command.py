"""The command with a fake of what the kernel lends, and in an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import framework
import pytest
from framework import SamplingParams
from hookspecs import EngineConfig
from hookspecs.contracts.engine_command import EngineCommandContext, EngineView
from hookspecs.errors import InvalidRequestError

from cache_census.census import CensusArguments, Holder
from cache_census.command import CacheCensus


class FakeEngine:
    """Three requests, of which two run, in a cache of ten blocks."""

    scheduler = SimpleNamespace(
        num_running=2,
        num_waiting=1,
        blocks_needed=lambda request: len(request.request_id),
        served_tokens=lambda tenant: {"acme": 40}.get(tenant, 0),
    )
    cache = SimpleNamespace(num_free_blocks=7, num_total_blocks=10)

    def requests(self) -> list[Any]:
        return [
            SimpleNamespace(request_id=request_id, tenant="acme", slot=slot)
            for request_id, slot in (("a", 0), ("bb", 1), ("ccc", -1))
        ]


def made() -> CacheCensus:
    engine = cast(EngineView, FakeEngine())
    return CacheCensus(EngineCommandContext(config=EngineConfig(), engine=engine, engine_index=3))


def test_the_census() -> None:
    census = made().run(CensusArguments(tenants=("acme", "other"), limit=2))
    assert (census.engine, census.blocks_free, census.blocks_used) == (3, 7, 3)
    assert (census.running, census.waiting) == (2, 1)
    assert census.served_tokens == {"acme": 40, "other": 0}
    assert census.requests == [
        Holder(request_id="a", tenant="acme", running=True, blocks=1),
        Holder(request_id="bb", tenant="acme", running=True, blocks=2),
    ]
    assert census.requests_left_out == 1
    assert not made().run(CensusArguments()).requests[2].running


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_in_an_engine_that_enables_the_installed_plugin(process: str) -> None:
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
        "engine": {"process": process},
        "plugins": {"enable": ["cache-census"]},
    }
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, detokenize=False)
    with framework.launch(settings) as engine:
        engine.generate([[3, 4, 5]], params, tenant="acme")
        census = engine.command("cache-census", {"tenants": ["acme"]})
        assert census["blocks_used"] == census["running"] == census["waiting"] == 0
        assert census["served_tokens"]["acme"] > 0
        assert census["requests"] == []
        with pytest.raises(InvalidRequestError, match="limit"):
            engine.command("cache-census", {"limit": 1001})
        with pytest.raises(InvalidRequestError, match="tenants"):
            engine.command("cache-census", {"tenants": ["a"] * 101})


def test_without_being_enabled_the_hint_says_so() -> None:
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
    }
    with (
        framework.launch(settings) as engine,
        pytest.raises(InvalidRequestError, match=r"'cache-census'.*plugins\.enable does not name"),
    ):
        engine.command("cache-census", {})

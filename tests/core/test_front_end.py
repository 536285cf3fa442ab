"""The front end and the engine core together: starts, interrupts, what the core hears."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted, tokens_of

from framework import SamplingParams
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.errors import (
    ContractViolation,
    EngineDeadError,
    InvalidRequestError,
    ProviderError,
    UnsupportedModelError,
)
from hookspecs.events import OutputReady, RequestFinished, StepFinished
from hookspecs.types.sampling import OutputKind
from hookspecs.types.stats import IterationStats, SchedulerStats


class Watcher(EngineHooks):
    """Hears how requests end; presses Ctrl-C within the step it is told."""

    PLUGIN = PluginInfo(name="watcher", api=">=1.0,<2")

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.press_in = 0
        """Steps until Ctrl-C is pressed."""
        self.presses = 1

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.reasons.append(str(event.finish_reason))

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.press_in -= 1
        if self.press_in == 0:
            for _ in range(self.presses):
                signal.raise_signal(signal.SIGINT)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_in_one_step_stops_the_engine(ctrl_c: None) -> None:
    watcher = Watcher()
    watcher.press_in, watcher.presses = 2, 2
    with launch_scripted(plugins=[watcher]) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate([[1, 2, 3]], greedy(9))
        with pytest.raises(EngineDeadError):
            engine.generate([[1, 2, 3]], greedy(9))


def test_the_engine_is_usable_after_an_interrupt_inside_of_a_step(ctrl_c: None) -> None:
    watcher = Watcher()
    with launch_scripted(plugins=[watcher]) as engine:
        expected = tokens_of(engine.generate([[1, 2, 3], [4] * 9], greedy(6)))
        watcher.reasons.clear()
        for steps in range(1, 6):
            watcher.press_in = steps
            with pytest.raises(KeyboardInterrupt):
                engine.generate([[7, 8], [9] * 7, [5] * 40], greedy(40))
            assert watcher.reasons == ["abort"] * 3
            assert tokens_of(engine.generate([[1, 2, 3], [4] * 9], greedy(6))) == expected
            watcher.reasons.clear()


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A scripted model with a token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = ["<pad>", "<bos>", "<eos>", *sorted(byte_level.alphabet())]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = byte_level
    backend.decoder = decoders.ByteLevel()
    path = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", bos_token="<bos>", pad_token="<pad>"
    ).save_pretrained(path)
    return f"scripted:{path}"


def says(engine: Any, text: str, **fields: Any) -> SamplingParams:
    ids = engine.tokenizer.encode(text, add_special_tokens=False)
    return SamplingParams(temperature=0, extensions={"scripted": {"tokens": ids}}, **fields)


def test_the_core_hears_why_the_front_end_ended_a_request(text_model: str) -> None:
    class Strict(EngineHooks):
        PLUGIN = PluginInfo(name="strict", api=">=1.0,<2")

        @hookimpl
        def adjust_output(self, event: OutputReady) -> None:
            if "c" in event.output.outputs[0].text:
                raise OSError("no audit log")

    watcher = Watcher()
    with launch_scripted(plugins=[watcher, Strict()], model={"name": text_model}) as engine:
        (stopped,) = engine.generate("p", says(engine, "abSTOPxyz", stop=["STOP"]))
        assert (stopped.outputs[0].text, stopped.outputs[0].finish_reason) == ("ab", "stop")
        (failed,) = list(engine.stream("p", says(engine, "cxyz")))
        assert failed.outputs[0].finish_reason == "error"
        stream = engine.stream("p", says(engine, "abab"))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        engine.generate([[5]], greedy(1))
    assert watcher.reasons == ["stop", "error", "abort", "length"]


def test_a_filter_that_hides_the_end_gives_no_endless_stream() -> None:
    class Endless(EngineHooks):
        PLUGIN = PluginInfo(name="endless", api=">=1.0,<2")

        @hookimpl
        def adjust_output(self, event: OutputReady) -> None:
            event.output.finished = False

    with launch_scripted(plugins=[Endless()]) as engine:
        outputs = list(engine.stream([1, 2], greedy(3)))
        assert outputs[-1].outputs[0].finish_reason == "error"


def test_prompt_logprobs_of_several_outputs_are_computed_once() -> None:
    with launch_scripted(scripted={"vocab_size": 50}) as engine:
        params = SamplingParams(n=3, seed=1, max_tokens=2, prompt_logprobs=1, detokenize=False)
        (output,) = engine.generate([[5, 6, 7, 8, 9]], params)
        assert output.prompt_logprobs is not None
        assert [position is None for position in output.prompt_logprobs] == [True] + [False] * 4
        assert [len(each.token_ids) for each in output.outputs] == [2, 2, 2]
        params.output_kind = OutputKind.CUMULATIVE
        engine.engine.add_request("x", [5, 6, 7, 8, 9], params)
        outputs = []
        while engine.engine.has_unfinished_requests():
            outputs += engine.engine.step()
        assert outputs[-1].prompt_logprobs == output.prompt_logprobs


@pytest.mark.parametrize(
    ("script", "param"),
    [
        ({"token": [1]}, "extensions.scripted"),
        ({"tokens": [1], "logits": [[0.0]]}, "extensions.scripted"),
        ({"logits": []}, "extensions.scripted"),
        ({"fail_at": -1}, "extensions.scripted.fail_at"),
        ([1], "extensions.scripted"),
    ],
)
def test_a_wrong_script_is_refused_before_it_reaches_the_worker(script: Any, param: str) -> None:
    with launch_scripted() as engine:
        with pytest.raises(InvalidRequestError) as caught:
            engine.generate([[1]], greedy(1, script))
        assert caught.value.param == param
        with pytest.raises(InvalidRequestError, match="Did you mean scripted"):
            engine.generate([[1]], SamplingParams(extensions={"scriptd": {}}))


# Starts


class Quiet(StatLogger):
    """Counts itself."""

    open: int = 0

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        Quiet.open += 1

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        pass

    def close(self) -> None:
        Quiet.open -= 1


class Broken(Quiet):
    def __init__(self, context: StatLoggerContext) -> None:
        raise OSError("no disk")


class Grumpy(Quiet):
    def close(self) -> None:
        super().close()
        raise OSError("no disk")


class Loggers(EngineHooks):
    PLUGIN = PluginInfo(name="loggers", api=">=1.0,<2")

    def __init__(self) -> None:
        self.phases: list[str] = []

    @hookimpl
    def register_stat_loggers(self) -> Any:
        for cls in (Quiet, Broken, Grumpy):
            yield Provider(cls.__name__.lower(), f"{__name__}:{cls.__name__}")

    @hookimpl
    def register_scheduling_policies(self) -> Any:
        yield Provider("gone", "package_that_is_not_there:C")

    @hookimpl
    def on_worker_ready(self, event: Any) -> None:
        self.phases.append("worker")


def test_a_stat_logger_that_fails_costs_no_load_and_the_others_are_closed() -> None:
    plugin = Loggers()
    with pytest.raises(ProviderError, match="no disk"):
        launch_scripted(plugins=[plugin], stats={"loggers": ["quiet", "grumpy", "broken"]})
    assert plugin.phases == []
    assert Quiet.open == 0


def test_a_tokenizer_that_is_not_there_costs_no_load(tmp_path: Path) -> None:
    plugin = Loggers()
    with pytest.raises(UnsupportedModelError, match="tokenizer"):
        launch_scripted(plugins=[plugin], model={"name": f"scripted:{tmp_path}"})
    assert plugin.phases == []


def test_stat_loggers_are_closed_when_the_start_fails_later() -> None:
    plugin = Loggers()
    with pytest.raises(ProviderError, match="package_that_is_not_there"):
        launch_scripted(
            plugins=[plugin],
            stats={"loggers": ["quiet", "grumpy"]},
            scheduler={"policies": ["gone"]},
        )
    assert plugin.phases == ["worker"]
    assert Quiet.open == 0
    with launch_scripted(plugins=[plugin], stats={"loggers": ["quiet"]}):
        assert Quiet.open == 1
    assert Quiet.open == 0


def test_the_tokenizer_setting_is_read_by_the_source_alone(
    text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(text_model.removeprefix("scripted:"))
    monkeypatch.setenv("HOME", str(path.parent))
    model = {"name": "scripted", "tokenizer": f"~/{path.name}"}
    with launch_scripted(model=model) as engine:
        assert engine.tokenizer is not None
        assert engine.model.tokenizer_path == str(path)


def test_capabilities_that_differ_from_the_provider_stop_the_start() -> None:
    class Plugin(EngineHooks):
        PLUGIN = PluginInfo(name="poor", api=">=1.0,<2")

        @hookimpl
        def register_schedulers(self) -> Any:
            target = "builtin_plugins.scheduler_continuous.scheduler:ContinuousScheduler"
            yield Provider("poor", target)

    with pytest.raises(ContractViolation, match="preemption") as caught:
        launch_scripted(plugins=[Plugin()], scheduler={"name": "poor"})
    assert caught.value.plugin == "poor"

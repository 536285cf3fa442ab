"""The installed runner in an engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import framework
import pytest
from framework import CompletionOutput, RequestOutput, SamplingParams
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError, UnsupportedModelError
from hookspecs.events import StepFinished

TEXT = """\
The cat sat on the mat. The cat sat on the hat. The cat ate the rat.

The dog sat on the cat, and the rat sat on the dog.
"""
Launch = Callable[..., framework.Engine]


class Preemptions(EngineHooks):
    """Counts them."""

    PLUGIN = PluginInfo(name="preemptions", api=">=1.0,<2")

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.count += len(event.preempted_request_ids)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "text.txt").write_text(TEXT)

    def launch(
        plugins: tuple[object, ...] = (), *, order: int = 3, **sections: Any
    ) -> framework.Engine:
        config = {
            "model": {"name": f"ngram:{tmp_path}/text.txt"},
            "executor": {"worker": "ngram"},
            "engine": {"debug": True},
            "stats": {"loggers": []},
            "plugins": {
                "options": {"ngram": {"cache_dir": str(tmp_path / "cache"), "order": order}}
            },
        }
        return framework.launch(config | sections, plugins=plugins)

    return launch


def greedy(**params: Any) -> SamplingParams:
    return SamplingParams(temperature=0, **{"max_tokens": 20, **params})


def only(outputs: list[RequestOutput]) -> CompletionOutput:
    [output] = outputs
    [part] = output.outputs
    return part


@pytest.mark.parametrize(
    ("order", "prompt", "text", "reason"),
    [
        # "on" is followed by "the", that most by "rat", that by "." as often as by "sat", and that
        # by the end as often as by "The": of equals, the lowest id, which is that of the end.
        (2, "on", " the rat.", "stop"),
        (3, "The cat", " sat on the cat, and the", "length"),
        (3, "The cat ate", " the rat.", "stop"),
        # After an unknown word comes the most frequent token of the text.
        (3, "Elephants", " the rat.", "stop"),
    ],
)
def test_greedy_text(launch: Launch, order: int, prompt: str, text: str, reason: str) -> None:
    with launch(order=order) as engine:
        part = only(engine.generate([prompt], greedy(max_tokens=7)))
    assert (part.text, part.finish_reason) == (text, reason)


def test_tokens_depend_on_nothing_but_the_request(launch: Launch) -> None:
    """However prompts are cut, cached, preempted and put together in steps."""
    prompts = ["The cat sat on", "The cat sat on the mat. The cat", "the", "on the dog. " * 5]
    params = [
        greedy(max_tokens=24, min_tokens=24),
        SamplingParams(temperature=1.0, seed=7, max_tokens=24, min_tokens=20),
        SamplingParams(temperature=0.7, seed=8, top_k=2, max_tokens=24, ignore_eos=True),
        SamplingParams(temperature=2.0, seed=-1, top_p=0.9, min_p=0.1, max_tokens=24, min_tokens=9),
    ]
    with launch() as engine:
        expected = [
            only(engine.generate([prompt], each)).token_ids
            for prompt, each in zip(prompts, params, strict=True)
        ]
    assert len({tuple(tokens) for tokens in expected}) == 4
    observer = Preemptions()
    small = {
        "scheduler": {"max_num_batched_tokens": 5, "max_num_seqs": 3},
        "cache": {"num_blocks": 14, "block_size": 4},
    }
    with launch((observer,), **small) as engine:
        first = engine.generate(prompts, params)
        assert observer.count > 0
        again = engine.generate(prompts, params)
        assert any(output.num_cached_tokens for output in again)
    for outputs in (first, again):
        assert [output.outputs[0].token_ids for output in outputs] == expected


def test_draws_without_a_seed_are_those_of_the_engines_seed(launch: Launch) -> None:
    params = SamplingParams(temperature=2.0, max_tokens=24, ignore_eos=True, n=3)
    drawn = []
    for _ in range(2):
        with launch() as engine:
            [output] = engine.generate(["The"], params)
            drawn.append([part.token_ids for part in output.outputs])
    assert drawn[0] == drawn[1]
    assert len({tuple(tokens) for tokens in drawn[0]}) == 3


def test_min_tokens_and_stop_tokens(launch: Launch) -> None:
    with launch() as engine:
        assert only(engine.generate(["ate the"], greedy())).text == " rat."
        longer = only(engine.generate(["ate the"], greedy(min_tokens=5, max_tokens=6)))
        assert longer.text.startswith(" rat. ")
        assert len(longer.token_ids) >= 5
        tokenizer = engine.tokenizer
        assert tokenizer is not None
        [the] = tokenizer.encode("the")
        stopped = only(engine.generate(["sat on"], greedy(stop_token_ids=[the])))
        assert (stopped.token_ids, stopped.stop_reason) == ([the], the)
        # A stop token is no choice before min_tokens either.
        later = only(engine.generate(["sat on"], greedy(stop_token_ids=[the], min_tokens=3)))
        assert the not in later.token_ids[:3]
        assert only(engine.generate(["sat on"], greedy(stop=["hat", "cat"]))).text == " the "
        ends = only(engine.generate(["ate the"], greedy(ignore_eos=True, max_tokens=9)))
        assert len(ends.token_ids) == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", 0),
        ("logit_bias", {2: 5.0}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", 0.5),
        ("repetition_penalty", 1.5),
        ("bad_words", ["cat"]),
    ],
)
def test_what_is_not_supported_ends_that_request_alone(
    launch: Launch, name: str, value: object
) -> None:
    # The refused prompt comes in several parts.
    with launch(scheduler={"max_num_batched_tokens": 4}) as engine:
        refused, other = engine.generate(
            ["The cat sat on the mat.", "ate the"], [greedy(**{name: value}), greedy()]
        )
    assert refused.outputs[0].finish_reason == "error"
    assert f"the worker 'ngram' does not support {name}" in str(refused.outputs[0].error)
    assert refused.outputs[0].token_ids == []
    assert other.outputs[0].text == " rat."


def test_allowed_tokens(launch: Launch) -> None:
    with launch() as engine:
        tokenizer = engine.tokenizer
        assert tokenizer is not None
        [sat] = tokenizer.encode("sat")
        part = only(engine.generate(["The"], greedy(allowed_token_ids=[sat], max_tokens=3)))
        assert part.token_ids == [sat] * 3
        # The text never has the unknown token.
        failed = only(engine.generate(["The"], greedy(allowed_token_ids=[1])))
        assert (failed.finish_reason, failed.token_ids) == ("error", [])
        assert "leave no token of the text" in str(failed.error)


def test_what_the_front_end_refuses_for_lack_of_a_capability(launch: Launch) -> None:
    with launch() as engine:
        with pytest.raises(InvalidRequestError, match="prompt_logprobs are not supported"):
            engine.generate(["The"], greedy(prompt_logprobs=1))
        with pytest.raises(UnsupportedFeatureError):
            engine.embed(["The"])


def test_the_worker_runs_no_other_models(launch: Launch) -> None:
    with pytest.raises(UnsupportedModelError, match="'scripted' is Scripted"):
        launch(model={"name": "scripted"})


_PROGRAM = """
import sys
import framework
config = {
    "model": {"name": "ngram:" + sys.argv[1]},
    "executor": {"worker": "ngram"},
    "plugins": {"options": {"ngram": {"cache_dir": sys.argv[2]}}},
}
with framework.launch(config) as engine:
    params = framework.SamplingParams(temperature=0, max_tokens=9)
    print(engine.generate(["The cat ate"], params)[0].outputs[0].text)
print("torch" in sys.modules)
"""


def test_an_engine_without_torch(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = [str(tmp_path / "text.txt"), str(tmp_path / "cache")]
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == " the rat.\nFalse\n"


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    command = [str(Path(sys.executable).with_name("framework")), "generate"]
    command += [f"ngram:{tmp_path}/text.txt", "--prompt", "The cat ate", "--temperature", "0"]
    command += ["--executor.worker", "ngram"]
    command += ["--plugins.options.ngram.cache_dir", str(tmp_path / "cache")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == ">>> The cat ate\n the rat.\n[4 tokens, stop]\n"

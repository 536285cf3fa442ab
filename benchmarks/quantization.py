"""What quantized weights cost in accuracy, on the small model beside its float32 values.

Perplexity and the most likely next token at each position of a fixed text, and greedy outputs of
16 prompts. The small model's GGUF file has 4-bit weights with an 8-bit embedding: `int8` and `int4`
quantize what was made of them, `gguf` takes them as they are.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import msgspec

import framework
from benchmarks.model import MODEL
from framework import SamplingParams

FORMATS = (None, "gguf", "int8", "int4")
TEXT = Path(__file__).with_name("prose.txt")
PROMPT_WORDS = 12
NEW_TOKENS = 32


class _Answers(msgspec.Struct):
    logprobs: list[float]
    """Of each token of the text but the first of a paragraph."""
    likeliest: list[int]
    """Token before which each of them stands."""
    outputs: list[list[int]]
    """Greedy, by prompt."""


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks quantization", description=__doc__)
    parser.parse_args(argv)
    print("| weights | perplexity | likeliest token as float32 | greedy tokens until they differ |")
    print("|---|---|---|---|")
    reference: _Answers | None = None
    for quantization in FORMATS:
        answers = _answers(quantization)
        reference = reference or answers
        likeliest = _share(reference.likeliest, answers.likeliest)
        pairs = zip(reference.outputs, answers.outputs, strict=True)
        common = [_common(first, second) for first, second in pairs]
        perplexity = math.exp(-sum(answers.logprobs) / len(answers.logprobs))
        greedy = f"{sum(common) / len(common):.1f} of {NEW_TOKENS}"
        row = (quantization or "float32", f"{perplexity:.3f}", f"{likeliest:.1%}", greedy)
        print(f"| {' | '.join(row)} |", flush=True)
    return 0


def _answers(quantization: str | None) -> _Answers:
    settings = {
        "model": {"name": MODEL, "loader": "native", "quantization": quantization},
        "cache": {"num_blocks": 512},
        "stats": {"loggers": []},
        "plugins": {"activation": "none"},
    }
    paragraphs = TEXT.read_text(encoding="utf-8").split("\n\n")
    prompts = [" ".join(paragraph.split()[:PROMPT_WORDS]) for paragraph in paragraphs]
    scoring = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    greedy = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    answers = _Answers([], [], [])
    with framework.launch(settings) as engine:
        for scored in engine.generate(paragraphs, scoring):
            tokens, columns = scored.prompt_token_ids, scored.prompt_logprobs
            for token, candidates in zip(tokens or (), columns or (), strict=True):
                if candidates is not None:
                    answers.logprobs.append(candidates[token].logprob)
                    answers.likeliest.append(max(candidates, key=lambda c: candidates[c].logprob))
        outputs = engine.generate(prompts, greedy)
        answers.outputs = [list(output.outputs[0].token_ids) for output in outputs]
    return answers


def _share(first: Sequence[int], second: Sequence[int]) -> float:
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=True))
    )

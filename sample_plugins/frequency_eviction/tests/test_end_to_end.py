"""The installed policy in an engine with a small cache and the scripted worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import framework
import pytest
from framework import Engine, SamplingParams

PARAMS = SamplingParams(max_tokens=2, temperature=0, detokenize=False)
PREFIX = [1 + token % 7 for token in range(16)]  # 4 blocks


@contextmanager
def engine(eviction: str) -> Iterator[Engine]:
    """An engine whose cache holds 16 blocks of 4 tokens, checked after every step."""
    config = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "cache": {"block_size": 4, "num_blocks": 16, "eviction": eviction},
        "engine": {"debug": True},
        "stats": {"loggers": []},
    }
    with framework.launch(config) as launched:
        yield launched


def ask(subject: Engine, question: int) -> int:
    """A prompt with the shared prefix; tokens of it that were found in the cache."""
    (output,) = subject.generate([[*PREFIX, question]], PARAMS)
    assert output.finished
    return output.num_cached_tokens


def flood(subject: Engine, prompts: int) -> None:
    """Prompts that come once, one after the other; each leaves 4 blocks in the cache."""
    for number in range(prompts):
        subject.generate([[100 + number, *range(200, 216)]], PARAMS)


@pytest.mark.parametrize(("eviction", "found"), [("frequency", 16), ("lru", 0)])
def test_a_prefix_asked_for_often_survives_a_stream_of_other_prompts(
    eviction: str, found: int
) -> None:
    with engine(eviction) as subject:
        assert [ask(subject, question) for question in range(20, 25)] == [0, 16, 16, 16, 16]
        flood(subject, 8)
        assert ask(subject, 30) == found


def test_a_prefix_asked_for_once_does_not_survive() -> None:
    with engine("frequency") as subject:
        ask(subject, 20)
        flood(subject, 8)
        assert ask(subject, 21) == 0


def test_a_prefix_that_nobody_asks_for_any_more_is_given_up_in_the_end() -> None:
    with engine("frequency") as subject:
        for question in range(20, 60):
            ask(subject, question)
        flood(subject, 100)
        assert ask(subject, 60) == 0


def test_after_a_reset_of_the_cache_all_counts_begin_again() -> None:
    with engine("frequency") as subject:
        for question in range(20, 25):
            ask(subject, question)
        assert subject.reset_prefix_cache()
        assert ask(subject, 30) == 0
        flood(subject, 8)
        assert ask(subject, 31) == 0

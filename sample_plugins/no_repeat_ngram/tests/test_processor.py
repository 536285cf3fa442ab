"""The processor alone, against a definition that looks at the whole text each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import torch
from hookspecs import EngineConfig, SamplingParams
from hookspecs.contracts.logits import LogitsProcessorContext
from hypothesis import given
from hypothesis import strategies as st

from no_repeat_ngram.options import NoRepeatNgram
from no_repeat_ngram.plugin import plugin
from no_repeat_ngram.processor import NoRepeatNgramProcessor

VOCAB = 4
"""Few, so that n-grams do occur again."""

texts = st.lists(st.integers(0, VOCAB - 1), max_size=30)


def processor(**options: Any) -> NoRepeatNgramProcessor:
    """As the kernel makes it."""
    return NoRepeatNgramProcessor(
        LogitsProcessorContext(
            config=EngineConfig(),
            name="no-repeat-ngram",
            request_id="r",
            params=SamplingParams(extensions={"no-repeat-ngram": options}),
            request_options=msgspec.convert(options, NoRepeatNgram),
            vocab_size=VOCAB,
        )
    )


def forbidden(of: NoRepeatNgramProcessor) -> set[int]:
    """What it masks now; it must leave the other logits as they are."""
    logits = torch.arange(VOCAB, dtype=torch.float32)
    masked = of.mask(logits.clone())
    gone = masked == -torch.inf
    assert torch.equal(masked[~gone], logits[~gone])
    return set(torch.nonzero(gone).flatten().tolist())


def expected(text: Sequence[int], size: int) -> set[int]:
    """The tokens that would give the text an n-gram twice."""
    ngrams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    rest = tuple(text[len(text) - size + 1 :]) if size > 1 else ()
    if len(text) < size - 1:
        return set()
    return {token for token in range(VOCAB) if (*rest, token) in ngrams}


@given(prompt=texts, generated=texts, accepted=texts, size=st.integers(1, 5), whole=st.booleans())
def test_it_forbids_what_the_definition_says(
    prompt: list[int], generated: list[int], accepted: list[int], size: int, whole: bool
) -> None:
    subject = processor(size=size, include_prompt=whole)
    subject.start(prompt, generated)
    text = [*(prompt if whole else []), *generated]
    assert forbidden(subject) == expected(text, size)
    for token in accepted:
        subject.accept(token)
        text.append(token)
        assert forbidden(subject) == expected(text, size)


@given(prompt=texts, generated=texts, size=st.integers(1, 5), whole=st.booleans(), data=st.data())
def test_where_it_starts_again_makes_no_difference(
    prompt: list[int], generated: list[int], size: int, whole: bool, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(generated)))
    through, again = (processor(size=size, include_prompt=whole) for _ in range(2))
    through.start(prompt, [])
    for token in generated:
        through.accept(token)
    again.start(prompt, generated[:cut])
    for token in generated[cut:]:
        again.accept(token)
    assert forbidden(through) == forbidden(again)


@pytest.mark.parametrize("options", [{}, {"size": 0}, {"size": 2.5}, {"size": 2, "window": 9}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, NoRepeatNgram)


def test_the_plugin_offers_it_to_requests() -> None:
    (provider,) = plugin.register_logits_processors()
    assert provider.name == plugin.PLUGIN.name
    assert provider.request_options is NoRepeatNgram

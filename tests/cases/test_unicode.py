"""Characters that come in parts."""

from __future__ import annotations

from typing import Any

import pytest

from framework import SamplingParams

TEXTS = {
    "emoji": "a\U0001f600b",
    "two emoji": "\U0001f600\U0001f468",
    "cjk": "\u4f60\u597d",
    "combining mark": "e\u0301!",
    "flag": "\U0001f1e9\U0001f1ea",
    "joined": "\U0001f468\u200d\U0001f469.",
}


@pytest.mark.parametrize("by", ["byte", "scalar"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_character_is_given_whole_and_once(
    launch: Any, ids: Any, ask: Any, name: str, by: str
) -> None:
    text = TEXTS[name]
    engine = launch(text=True)
    script = ids(text.encode()) if by == "byte" else ids(*text)
    if by == "scalar":
        assert len(script) == len(text)
    params = SamplingParams(temperature=0, extensions={"scripted": {"tokens": script}})
    answer = ask(engine, "abc", params)
    assert answer.text == text
    assert not any("\ufffd" in chunk for chunk in answer.chunks)


def test_random_tokens_spoil_no_request_of_a_batch(launch: Any) -> None:
    engine = launch(text=True, cache={"num_blocks": 40}, scheduler={"max_num_seqs": 16})
    prompts = [[3 + i, 300 - i] for i in range(24)]
    outputs = engine.generate(
        prompts, SamplingParams(temperature=0, max_tokens=90, ignore_eos=True)
    )
    for output in outputs:
        (completion,) = output.outputs
        assert (completion.finish_reason, completion.error) == ("length", None)
        assert len(completion.token_ids) == 90
        assert completion.text == engine.tokenizer.decode(completion.token_ids)

"""Logits that are no numbers: their request ends, and nothing that it computed is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.scripted import greedy, tokens_of

VOCABULARY = 16
GOOD = [3.0 if token == 5 else 0.0 for token in range(VOCABULARY)]
NAN, INF = float("nan"), float("inf")
BAD = {
    "nan": [NAN] * VOCABULARY,
    "some nan": [NAN, *GOOD[1:7], NAN, *GOOD[8:]],
    "inf": [INF, *GOOD[1:]],
    "nothing": [-INF] * VOCABULARY,
}
PROMPT = list(range(3, 12))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("bad", BAD)
def test_a_request_with_bad_logits_spoils_nobody(
    launch: Any, plain: Any, bad: str, at: int, temperature: float
) -> None:
    engine = launch(scripted={"vocab_size": VOCABULARY}, cache={"block_size": 4, "num_blocks": 40})
    rows = [GOOD] * at + [BAD[bad]]
    failing = greedy(9, {"logits": rows}, temperature=temperature, seed=1, top_k=3)
    (alone,) = engine.generate([PROMPT], failing)
    # A request of the same beginning computes it anew, and gets what is right.
    (after,) = engine.generate([PROMPT], greedy(9))
    assert after.num_cached_tokens == 0
    assert tokens_of([after]) == [plain(engine, PROMPT, 9)]
    others = [[4, 5, 6], PROMPT, [7] * 20]
    outputs = engine.generate([PROMPT, *others], [failing, *[greedy(9)] * 3])
    assert tokens_of(outputs[1:]) == [plain(engine, other, 9) for other in others]
    for output in (alone, outputs[0]):
        completion = output.outputs[0]
        assert completion.finish_reason == "error"
        assert "logits" in completion.error
        assert completion.token_ids == [5] * at or temperature
        assert len(completion.token_ids) == at


def test_one_bad_output_of_several(launch: Any) -> None:
    """The n outputs of a request fail apart."""
    engine = launch(scripted={"vocab_size": VOCABULARY})
    even = [[0.0] * VOCABULARY]
    params = greedy(6, {"logits": even}, temperature=1.0, seed=1, n=3, stop_token_ids=[3, 4, 5])
    (output,) = engine.generate([PROMPT], params)
    lengths = [len(completion.token_ids) for completion in output.outputs]
    failing = greedy(
        6,
        {"logits": even, "fail_at": min(lengths)},
        temperature=1.0,
        seed=1,
        n=3,
        stop_token_ids=[3, 4, 5],
    )
    (output,) = engine.generate([PROMPT], failing)
    reasons = [completion.finish_reason for completion in output.outputs]
    expected = ["stop" if n == min(lengths) else "error" for n in lengths]
    assert reasons == expected
    assert set(reasons) == {"stop", "error"}

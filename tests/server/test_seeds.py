"""Seeds and several outputs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.answers import Answer, answer_of
from tests.server.asking import COMPLETIONS, Ask
from tests.server.conftest import VOCABULARY
from tests.server.process import Server


def sampled(**fields: Any) -> dict[str, Any]:
    """A body for which all tokens are equally likely."""
    return {
        "prompt": [1, 2, 3],
        "max_tokens": 16,
        "temperature": 1,
        "ignore_eos": True,
        "extensions": {"scripted": {"logits": [[0.0] * VOCABULARY]}},
        **fields,
    }


def token_ids(answer: Answer) -> list[list[int]]:
    return [choice.token_ids for choice in answer.choices]


def together(server: Server, bodies: list[dict[str, Any]]) -> list[Answer]:
    """The answers to requests that are sent at once."""

    async def send() -> list[Answer]:
        whole = [{"return_token_ids": True, **body} for body in bodies]
        posted = [server.client.post(COMPLETIONS, json=body) for body in whole]
        return [answer_of(response) for response in await asyncio.gather(*posted)]

    return server.run(send())


def test_outputs_of_one_seed_differ_and_repeat(scripted: Server, ask: Ask) -> None:
    """n outputs of one seed differ from each other; the set of them is the same each time."""
    first, second = (ask(scripted, sampled(n=4, seed=1)) for _ in range(2))
    assert token_ids(first) == token_ids(second)
    assert len(set(map(tuple, token_ids(first)))) == 4


def test_requests_of_one_seed_are_equal_however_they_overlap(scripted: Server, ask: Ask) -> None:
    """Eight at once say what one alone says."""
    alone = ask(scripted, sampled(seed=7)).only.token_ids
    found = together(scripted, [sampled(seed=7) for _ in range(8)])
    assert [answer.only.token_ids for answer in found] == [alone] * 8


def test_a_neighbour_without_a_seed_leaves_the_seed_of_others_alone(
    scripted: Server, ask: Ask
) -> None:
    """Beside requests without a seed, which differ each time, it is as it was alone."""
    alone = ask(scripted, sampled(seed=42)).only.token_ids
    others = set()
    for _ in range(4):
        found = together(scripted, [sampled(), sampled(seed=42), sampled()])
        assert found[1].only.token_ids == alone
        others |= {tuple(found[0].only.token_ids), tuple(found[2].only.token_ids)}
    assert len(others) == 8


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5, "1", True, 2**200])
def test_a_seed_out_of_range_is_refused(scripted: Server, ask: Ask, seed: Any) -> None:
    """Seeds have 64 bits; all else is status 400."""
    ask(scripted, sampled(seed=seed)).refusal()


@pytest.mark.parametrize("seed", [2**64 - 1, -(2**63), 0, 2**63])
def test_the_first_and_last_seed_are_taken(scripted: Server, ask: Ask, seed: int) -> None:
    """They repeat."""
    first, second = (ask(scripted, sampled(seed=seed)).only.token_ids for _ in range(2))
    assert first == second


@pytest.mark.parametrize("n", [5_000_000, 129, 2**63, 0, -1, 1.5, "2", True])
def test_a_number_of_outputs_out_of_range_is_refused(scripted: Server, ask: Ask, n: Any) -> None:
    """Status 400, before anything is made for them."""
    assert "n" in ask(scripted, sampled(n=n)).refusal()

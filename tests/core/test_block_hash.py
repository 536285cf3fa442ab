"""Block keys: a chain over tokens and everything that isolates them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from framework.core.block_hash import chain_root, extend_hashes
from hookspecs.types.request import AdapterRef

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def hashes(tokens: list[int], block_size: int = 4, salt: str = "") -> list[bytes]:
    result: list[bytes] = []
    extend_hashes(result, chain_root(salt, None), tokens, 0, block_size)
    return result


@given(TOKENS, st.integers(1, 8))
def test_only_complete_blocks_have_a_hash(tokens: list[int], block_size: int) -> None:
    assert len(hashes(tokens, block_size)) == len(tokens) // block_size


@given(TOKENS, TOKENS)
def test_equal_prefixes_have_equal_hashes_and_nothing_else_has(a: list[int], b: list[int]) -> None:
    common = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    )
    ha, hb = hashes(a), hashes(b)
    for index in range(min(len(ha), len(hb))):
        assert (ha[index] == hb[index]) == ((index + 1) * 4 <= common)


@given(TOKENS, st.lists(st.integers(0, 40), max_size=5))
def test_a_chain_grown_piece_by_piece_equals_one_made_at_once(
    tokens: list[int], cuts: list[int]
) -> None:
    grown: list[bytes] = []
    root = chain_root("", None)
    for cut in [*sorted(cuts), len(tokens)]:
        done = len(grown) * 4
        extend_hashes(grown, root, tokens[done:cut], done, 4)
    assert grown == hashes(tokens)


def test_salt_and_adapter_isolate_and_never_look_like_each_other() -> None:
    roots = [
        chain_root("", None),
        chain_root("a", None),
        chain_root("b", None),
        chain_root("", AdapterRef("a")),
        chain_root("", AdapterRef("a", "2")),
        chain_root("", AdapterRef("a2")),
        chain_root("a", AdapterRef("a")),
        chain_root("adapter", None),
        chain_root("adapter\x01\x00\x00\x00a", None),
    ]
    assert len(set(roots)) == len(roots)


def test_embeddings_isolate_equal_filler_tokens() -> None:
    def of(embeds: np.ndarray | None) -> list[bytes]:
        result: list[bytes] = []
        extend_hashes(result, chain_root("", None), [0] * 8, 0, 4, embeds)
        return result

    ones, twos = np.ones((6, 3), np.float32), np.full((6, 3), 2, np.float32)
    assert of(ones)[0] != of(twos)[0]
    assert of(ones) == of(ones.copy())
    assert of(ones)[0] != of(None)[0]

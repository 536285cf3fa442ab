"""What is computed from times and tokens, for the table of tokens."""

from __future__ import annotations

import pytest

from benchmarks.tokens import figures
from benchmarks.workloads import WORKLOADS


def test_a_batch_gives_output_tokens() -> None:
    (output,) = figures(WORKLOADS["W1"])
    assert output.name == "output"
    assert output.rate(first_s=0.0, all_s=4.0) == 64 * 128 / 4


def test_a_single_stream_gives_prefill_and_decode() -> None:
    prefill, decode = figures(WORKLOADS["W3"])
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert prefill.rate(first_s=0.5, all_s=10.5) == 128 / 0.5
    assert decode.rate(first_s=0.5, all_s=10.5) == pytest.approx(25.5)


def test_a_long_prompt_gives_prefill_alone() -> None:
    (prefill,) = figures(WORKLOADS["W4"])
    assert prefill.rate(first_s=2.0, all_s=2.5) == 1536 / 2

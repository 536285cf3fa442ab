"""Workloads are the same everywhere, or figures can not be compared."""

from __future__ import annotations

import pytest

from benchmarks.workloads import WORKLOADS, Workload, digest

DIGESTS = {
    "W1": "6ce092bb32966696",
    "W2": "8c426e1fe294124d",
    "W3": "d466f94686750457",
    "W4": "29fedcc57ea4f2ef",
    "W5": "5f38f44dc876d31e",
}


def test_token_ids_are_those_of_always() -> None:
    assert {name: digest(each.prompts()) for name, each in WORKLOADS.items()} == DIGESTS


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda each: each.name)
def test_variants_differ_and_have_the_same_shape(workload: Workload) -> None:
    prompts, others = workload.prompts(), workload.prompts(variant=1)
    assert [len(prompt) for prompt in prompts] == [workload.prompt_tokens] * workload.requests
    assert [len(prompt) for prompt in others] == [workload.prompt_tokens] * workload.requests
    assert prompts[0][:16] != others[0][:16]


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda each: each.name)
def test_prompts_share_what_they_should_and_no_more(workload: Workload) -> None:
    shared = workload.shared
    prompts = workload.prompts()
    assert len({tuple(prompt[:shared]) for prompt in prompts}) == 1
    assert len({tuple(prompt[shared : shared + 16]) for prompt in prompts}) == len(prompts)

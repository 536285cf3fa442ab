"""The forward equals that of transformers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from builtin_plugins.model_native.loader import NativeLoader
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import ResolvedModel
from tests.model_native.families import FAMILIES, WholeRows, load
from tests.worker_cpu.driver import Driver, Request, random_prompt
from tests.worker_cpu.families import VOCAB, Reference

Checkpoint = Callable[[str], ResolvedModel]
References = Callable[[str], Reference]
LENGTHS = [17, 9, 1]
PROMPTS = [random_prompt(length) for length in (17, 6, 23, 1)]
COUNT = 10


def _batch(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(3, VOCAB, (sum(lengths),))
    return tokens, torch.cat([torch.arange(length) for length in lengths])


def _expected(module: torch.nn.Module, tokens: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        rows = torch.split(tokens, lengths)
        return torch.cat([module(row[None], use_cache=False).logits[0] for row in rows])


def _assert_close(logits: torch.Tensor, expected: torch.Tensor) -> None:
    largest = float(expected.abs().max())
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_logits(family: str, checkpoint: Checkpoint, reference: References) -> None:
    model = load(checkpoint(family))
    model.set_attention(WholeRows(LENGTHS))
    tokens, positions = _batch(LENGTHS)
    logits = model.forward(tokens, positions, torch.arange(len(tokens)))
    assert logits.dtype == torch.float32
    _assert_close(logits, _expected(reference(family).module, tokens, LENGTHS))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_greedy_tokens_in_a_worker(
    family: str, checkpoint: Checkpoint, reference: References
) -> None:
    driver = Driver(checkpoint(family), make_loader=NativeLoader)
    expected = [reference(family).greedy(prompt, COUNT) for prompt in PROMPTS]
    for how in ({}, {"chunk": 5, "preempt_at": 6}):
        requests = [
            Request(prompt, COUNT, start_step=2 * index) for index, prompt in enumerate(PROMPTS)
        ]
        driver.run(*requests, **how)
        assert [request.output for request in requests] == expected, how


@pytest.mark.parametrize("family", ["llama", "llama_tied"])
def test_more_tokens_than_go_through_a_layer_at_once(
    family: str, checkpoint: Checkpoint, reference: References
) -> None:
    lengths = [100, 120, 83]
    model = load(checkpoint(family))
    model.set_attention(WholeRows(lengths))
    tokens, positions = _batch(lengths)
    rows = torch.tensor([302, 0, 128, 127, 219])
    logits = model.forward(tokens, positions, rows)
    _assert_close(logits, _expected(reference(family).module, tokens, lengths)[rows])


def test_a_row_does_not_depend_on_the_batch(checkpoint: Checkpoint) -> None:
    model = load(checkpoint("llama"))
    tokens, positions = _batch([140])
    model.set_attention(lambda layer, query, key, value, **how: query)
    together = model.forward(tokens, positions, torch.arange(140))
    for begin, end in ((0, 1), (1, 14), (14, 140)):
        part = model.forward(tokens[begin:end], positions[begin:end], torch.arange(end - begin))
        assert torch.equal(part, together[begin:end])


@pytest.mark.parametrize("family", ["llama", "llama_tied"])
def test_embeddings_and_hidden_states(
    family: str, checkpoint: Checkpoint, reference: References
) -> None:
    model = load(checkpoint(family))
    model.set_attention(WholeRows(LENGTHS))
    tokens, positions = _batch(LENGTHS)
    embedded = model.embed(tokens)
    module = reference(family).module
    assert torch.equal(embedded, module.get_input_embeddings()(tokens))
    rows, hidden_rows = torch.tensor([3, 26, 0]), torch.tensor([25, 4])
    plain = model.forward(tokens, positions, rows)
    zeros = torch.zeros_like(tokens)
    logits, hidden = model.forward_with_hidden(zeros, positions, rows, hidden_rows, embedded)
    assert torch.equal(logits, plain)
    with torch.inference_mode():
        states = torch.cat(
            [module.model(row[None]).last_hidden_state[0] for row in torch.split(tokens, LENGTHS)]
        )
    _assert_close(hidden, states[hidden_rows])
    assert model.forward(tokens, positions, rows[:0]).shape == (0, VOCAB)


def test_facts_of_a_model(checkpoint: Checkpoint, reference: References) -> None:
    model = load(checkpoint("qwen2_windows"))
    specs = [(s.layer, s.num_kv_heads, s.head_size, s.sliding_window) for s in model.layer_specs]
    assert specs == [(0, 2, 8, None), (1, 2, 8, 7)]
    assert model.attention_features == {AttentionCapability.SLIDING_WINDOW}
    assert load(checkpoint("llama")).attention_features == frozenset()
    parameters = sum(p.numel() for p in reference("qwen2_windows").module.parameters())
    # Panels of few outputs are filled up; a tied head is there once.
    assert 4 * parameters <= model.weight_bytes < 6 * parameters


def test_what_kernels_can_not_follow_is_refused(checkpoint: Checkpoint) -> None:
    model = load(checkpoint("llama"))
    model.set_attention(WholeRows([2]))
    tokens, positions = torch.tensor([5, 6]), torch.tensor([0, 1])
    for bad in (-1, VOCAB):
        with pytest.raises(IndexError, match=f"row {bad} is out of range"):
            model.forward(torch.tensor([5, bad]), positions, positions)
    with pytest.raises(IndexError, match="row 2 is out of range"):
        model.forward(tokens, positions, torch.tensor([2]))
    with pytest.raises(IndexError, match=r"needed is torch\.int64"):
        model.embed(tokens.int())
    model.set_attention(lambda layer, query, key, value, **how: query[:1])
    with pytest.raises(ValueError, match="attention of layer 0 gave"):
        model.forward(tokens, positions, positions)

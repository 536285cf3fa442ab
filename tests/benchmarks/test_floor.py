"""The floor of a workload, on numbers that can be worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.floor import Machine, Step, decode_steps, floor_s, prefill_step
from benchmarks.model import Format, Shape, formats_of
from benchmarks.workloads import WORKLOADS, Workload

SHAPE = Shape(
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    vocab_size=100,
)
MACHINE = Machine(float_per_s=1e6, int8_per_s=4e6, read_bytes_per_s=1e5)
FREE = Step(tokens=0, sampled=0, read_tokens=0, attended=0)
LAYER_WEIGHTS = 2 * (16 * 8 + 8 * 8 + 32 * 8 + 8 * 16)
TINY = Workload(name="tiny", about="", requests=3, shared=4, own=2, new_tokens=3)


def weights(*, integer: bool = False, size: float = 1000.0) -> Format:
    return Format(name="any", integer=integer, layer_bytes=size, head_bytes=0)


def test_weights_follow_from_the_shape() -> None:
    assert SHAPE.layer_weights == LAYER_WEIGHTS
    assert SHAPE.head_weights == 800
    assert SHAPE.kv_bytes == 2 * 2 * 4 * 4


def test_a_step_without_tokens_reads_the_weights() -> None:
    assert floor_s(MACHINE, SHAPE, weights(), [FREE]) == pytest.approx(1000 / 1e5)


def test_products_count_where_they_take_longer_than_reading() -> None:
    step = Step(tokens=1000, sampled=10, read_tokens=0, attended=0)
    operations = 2 * (1000 * LAYER_WEIGHTS + 10 * 800)
    assert floor_s(MACHINE, SHAPE, weights(), [step]) == pytest.approx(operations / 1e6)
    assert floor_s(MACHINE, SHAPE, weights(integer=True), [step]) == pytest.approx(operations / 4e6)


def test_the_cache_and_attention_are_added() -> None:
    step = Step(tokens=0, sampled=0, read_tokens=50, attended=30)
    expected = 1000 / 1e5 + 50 * SHAPE.kv_bytes / 1e5 + 4 * 30 * 2 * 2 * 4 / (2 / 3 * 1e6)
    assert floor_s(MACHINE, SHAPE, weights(), [step]) == pytest.approx(expected)


def test_steps_add_up() -> None:
    assert floor_s(MACHINE, SHAPE, weights(), [FREE] * 3) == pytest.approx(0.03)


def test_what_prompts_share_is_computed_once() -> None:
    step = prefill_step(TINY)
    assert (step.tokens, step.sampled, step.read_tokens) == (4 + 3 * 2, 3, 0)
    assert step.attended == (1 + 2 + 3 + 4) + 3 * (5 + 6)


def test_what_prompts_share_is_read_once_and_attended_to_by_each() -> None:
    first, second = decode_steps(TINY)
    assert (first.tokens, first.sampled) == (3, 3)
    assert (first.read_tokens, first.attended) == (4 + 3 * 3, 3 * 7)
    assert (second.read_tokens, second.attended) == (4 + 3 * 4, 3 * 8)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda each: each.name)
def test_a_step_for_each_new_token(workload: Workload) -> None:
    assert len(list(decode_steps(workload))) == workload.new_tokens - 1


def test_smaller_formats_have_fewer_bytes() -> None:
    formats = formats_of(SHAPE, (10.0, 5.0))
    sizes = [each.layer_bytes + each.head_bytes for each in formats.values()]
    assert list(formats) == ["float32", "int8", "int4", "gguf"]
    assert sizes == sorted(sizes, reverse=True)

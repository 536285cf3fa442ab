"""Both attention backends against the definition of attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.attention_cpu_paged.plugin import plugin as cpu_paged_plugin
from builtin_plugins.attention_sdpa.plugin import plugin as sdpa_plugin
from hookspecs.contracts.attention import AttentionCapability
from tests.attention.cases import BACKENDS, Case, make_backend, metadata, reference, run_backend

DECODE = st.tuples(st.integers(0, 40), st.just(1))
CHUNK = st.tuples(st.integers(0, 40), st.integers(2, 20))
CASES = st.builds(
    lambda kv_heads, groups, **fields: Case(heads=kv_heads * groups, kv_heads=kv_heads, **fields),
    kv_heads=st.sampled_from((1, 2, 3)),
    groups=st.sampled_from((1, 2, 4)),
    rows=st.lists(st.one_of(DECODE, CHUNK), min_size=1, max_size=5),
    size=st.sampled_from((4, 16)),
    block_size=st.sampled_from((1, 4, 16)),
    window=st.one_of(st.none(), st.integers(1, 30)),
    soft_cap=st.sampled_from((None, 2.0)),
    sinks=st.booleans(),
    seed=st.integers(0, 1000),
)


def check(name: str, case: Case, tolerance: float = 1e-5) -> None:
    out = run_backend(case, make_backend(name, case.block_size))
    assert out.dtype == case.dtype
    expected = reference(case)
    assert out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted(BACKENDS))
@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_equals_the_definition(name: str, case: Case) -> None:
    check(name, case)


@pytest.mark.parametrize("name", sorted(BACKENDS))
@pytest.mark.parametrize(
    "features",
    [{}, {"window": 100}, {"soft_cap": 2.0}, {"sinks": True}],
    ids=lambda features: next(iter(features), "plain"),
)
def test_long_rows_cross_tiles(name: str, features: dict[str, Any]) -> None:
    check(name, Case(rows=[(900, 300), (1030, 1)], heads=1, kv_heads=1, size=4, **features))


@pytest.mark.parametrize("name", sorted(BACKENDS))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("features", [{}, {"window": 7, "soft_cap": 2.0, "sinks": True}])
def test_half_precision(name: str, dtype: torch.dtype, features: dict[str, Any]) -> None:
    # The inputs are exact in float64, so what is left is the rounding of the output and of the
    # weights: 8 bits of mantissa in bfloat16.
    check(name, Case(rows=[(40, 1), (3, 9), (0, 1)], dtype=dtype, **features), tolerance=2e-2)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_large_scores_stay_finite(name: str) -> None:
    case = Case(rows=[(20, 1), (0, 6)], sinks=True)
    case.queries = [query * 1000 for query in case.queries]
    assert torch.isfinite(run_backend(case, make_backend(name, case.block_size))).all()


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_cache_of_another_type_than_the_query(name: str) -> None:
    case = Case(rows=[(9, 1), (3, 4)])
    backend = make_backend(name, case.block_size)
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, torch.bfloat16)
    step = metadata(case, {1: (0, 7)})
    backend.write(cache, case.keys[1], case.values[1], step)
    query = torch.cat([torch.zeros(3, case.heads, case.size), case.queries[1]])
    out = backend.forward(query, cache, step, scale=case.scale)
    assert out.dtype == torch.float32
    expected = reference(case)[1:].float()
    torch.testing.assert_close(out[3:], expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_blocks_are_copied_out(name: str) -> None:
    case = Case(rows=[(0, 10)])
    backend = make_backend(name, case.block_size)
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, case.dtype)
    backend.write(cache, case.keys[0], case.values[0], metadata(case, {0: (0, 10)}))
    keys, values = backend.copy_out(cache, case.blocks[0])
    assert keys.shape == (3, case.block_size, case.kv_heads, case.size)
    assert torch.equal(keys.flatten(0, 1)[:10], case.keys[0])
    assert torch.equal(values.flatten(0, 1)[:10], case.values[0])
    assert not keys.flatten(0, 1)[10:].any(), "a new buffer is zeroed"


@pytest.mark.parametrize("plugin", [sdpa_plugin, cpu_paged_plugin])
def test_declares_what_it_does(plugin: Any) -> None:
    (provider,) = plugin.register_attention_backends()
    assert provider.capabilities == frozenset(AttentionCapability)
    assert provider.capabilities == BACKENDS[provider.name].capabilities

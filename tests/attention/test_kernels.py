"""The compiled kernels of `cpu_paged`: vectors and their tails, threads, 16 bits, bad input."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.attention_cpu_paged import library
from framework.sdk import native
from hookspecs.errors import UnsupportedModelError
from tests.attention.cases import Case, make_backend, metadata, reference, run_backend

X86 = platform.machine() in ("x86_64", "AMD64")
PROCESSORS = ["-march=x86-64", "-march=haswell"] if X86 else ["-mtune=generic"]
"""With vectors of 4 and of 8 floats; none here is newer than the processors that run tests."""

ROW = st.one_of(
    st.tuples(st.integers(0, 300), st.just(1)),
    st.tuples(st.integers(0, 300), st.integers(2, 12)),
    st.tuples(st.integers(0, 40), st.integers(20, 90)),
)
CASES = st.builds(
    lambda kv_heads, groups, **fields: Case(heads=kv_heads * groups, kv_heads=kv_heads, **fields),
    kv_heads=st.sampled_from((1, 2)),
    groups=st.sampled_from((1, 3, 5, 8, 9)),
    rows=st.lists(ROW, min_size=1, max_size=3),
    size=st.sampled_from((1, 5, 16, 20, 33, 64, 80)),
    block_size=st.sampled_from((1, 3, 8, 16, 17, 32, 48)),
    window=st.one_of(st.none(), st.integers(1, 200)),
    soft_cap=st.sampled_from((None, None, 5.0)),
    sinks=st.booleans(),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float16)),
    seed=st.integers(0, 1000),
)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""Of the output's rounding; the rest is done in float32."""


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = native.num_threads()
    yield
    native.set_num_threads(before)


def check(case: Case) -> None:
    out = run_backend(case, make_backend("cpu_paged", case.block_size)).double()
    tolerance = TOLERANCE[case.dtype]
    torch.testing.assert_close(out, reference(case), rtol=tolerance, atol=tolerance)


@settings(max_examples=60)
@given(case=CASES, threads=st.integers(1, 3))
def test_equals_the_definition(case: Case, threads: int) -> None:
    native.set_num_threads(threads)
    check(case)


@pytest.mark.parametrize("flag", PROCESSORS)
def test_other_processors(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = functools.partial(native.load_library, flags=[flag])
    monkeypatch.setattr(library, "load_library", build)
    for number, dtype in enumerate(TOLERANCE):
        rows = [(130, 1), (7, 30), (0, 5), (63, 1)]
        check(Case(rows=rows, size=20, dtype=dtype, block_size=16, sinks=True, seed=number))
        check(Case(rows=rows, heads=9, kv_heads=1, dtype=dtype, block_size=24, window=50))
        check(Case(rows=rows, heads=5, kv_heads=1, dtype=dtype, block_size=5, soft_cap=3.0))


@pytest.mark.parametrize("features", [{}, {"window": 900}, {"soft_cap": 2.0, "sinks": True}])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_long_rows_are_divided(dtype: torch.dtype, features: dict[str, Any]) -> None:
    native.set_num_threads(3)
    check(Case(rows=[(2000, 1), (700, 2)], block_size=16, size=8, dtype=dtype, **features))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_rounded_as_by_torch(dtype: torch.dtype) -> None:
    backend = make_backend("cpu_paged", 16)
    patterns = torch.arange(2**16).to(torch.uint16).view(dtype).float()
    numbers = torch.cat([patterns, patterns * 1.0001, patterns * 1.0019531, patterns / 3])
    count = len(numbers) // 64
    case = Case(rows=[(0, count)], heads=1, kv_heads=1, size=64, block_size=16)
    cache = backend.allocate(case.num_blocks, 1, 64, dtype)
    key = numbers.view(count, 1, 64)
    backend.write(cache, key, key.flip(0), metadata(case, {0: (0, count)}))
    keys, values = backend.copy_out(cache, case.blocks[0])
    for got, put in ((keys, key), (values, key.flip(0))):
        torch.testing.assert_close(
            got.flatten(0, 1)[:count], put.to(dtype), rtol=0, atol=0, equal_nan=True
        )


def test_a_slot_that_is_not_there() -> None:
    case = Case(rows=[(0, 6)])
    backend = make_backend("cpu_paged", case.block_size)
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, case.dtype)
    step = metadata(case, {0: (0, 6)})
    for slot in (-1, case.num_blocks * case.block_size):
        step.slot_mapping[3] = slot
        with pytest.raises(IndexError, match=rf"slot_mapping\[3\] is {slot}; the cache has"):
            backend.write(cache, case.keys[0], case.values[0], step)
    assert not any(part.any() for part in backend.copy_out(cache, list(range(case.num_blocks))))


@pytest.mark.parametrize("block", [-1, 10**9])
def test_a_block_that_is_not_there(block: int) -> None:
    case = Case(rows=[(0, 6), (4, 5)])
    backend = make_backend("cpu_paged", case.block_size)
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, case.dtype)
    step = metadata(case, {0: (0, 6), 1: (4, 9)})
    step.block_tables[1, 2] = block
    with pytest.raises(IndexError, match="row 1: block_tables has fewer blocks"):
        backend.forward(torch.cat(case.queries), cache, step, scale=1.0)


def test_a_sink_that_is_nan_is_seen() -> None:
    case = Case(rows=[(0, 6), (400, 1)], sinks=True)
    assert case.sink_logits is not None
    case.sink_logits[1], case.sink_logits[2] = torch.nan, -torch.inf
    out = run_backend(case, make_backend("cpu_paged", case.block_size))
    assert out[:, 1].isnan().all() and out[:, [0, 2, 3]].isfinite().all()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"query": (5, 4, 16)}, r"query is \(5, 4, 16\); needed is \(6, a multiple of 2, 16\)"),
        ({"query": (6, 3, 16)}, "a multiple of 2"),
        ({"query": (6, 0, 16)}, "a multiple of 2"),
        ({"query": (6, 4, 15)}, r"needed is \(6, a multiple of 2, 16\)"),
        ({"dtype": torch.float64}, r"computes in .* not in torch\.float64"),
        ({"sinks": 3}, "3 sinks for 4 heads"),
        ({"key": (5, 2, 16)}, r"key and value are .* needed is one type and \(6, 2, 16\)"),
        ({"key": (6, 1, 16)}, "needed is one type"),
        ({"key_dtype": torch.float64}, "needed is one type"),
        ({"starts": [0, 7]}, "2 query starts, the last of them 7, for 1 rows"),
        ({"starts": [0, 3, 6]}, "3 query starts"),
        ({"lens": torch.int32}, "needed is torch.int64"),
    ],
)
def test_what_does_not_fit_is_not_read(how: dict[str, Any], text: str) -> None:
    case = Case(rows=[(0, 6)])
    backend = make_backend("cpu_paged", case.block_size)
    cache = backend.allocate(case.num_blocks, case.kv_heads, case.size, case.dtype)
    step = metadata(case, {0: (0, 6)})
    if "starts" in how:
        step.query_start = how["starts"]
        step.query_start_tensor = torch.tensor(how["starts"])
    step.seq_lens_tensor = step.seq_lens_tensor.to(how.get("lens", torch.int64))
    key = torch.zeros(how.get("key", (6, 2, 16)), dtype=how.get("key_dtype"))
    query = torch.zeros(how.get("query", (6, 4, 16)), dtype=how.get("dtype"))
    sinks = torch.zeros(how["sinks"]) if "sinks" in how else None
    with pytest.raises(ValueError, match=text):
        backend.write(cache, key, case.values[0], step)
        backend.forward(query, cache, step, scale=1.0, sinks=sinks)


def test_a_type_that_it_does_not_keep() -> None:
    with pytest.raises(UnsupportedModelError, match=r"no keys and values of type torch\.float64"):
        make_backend("cpu_paged", 16).allocate(2, 1, 16, torch.float64)


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path))  # where nothing was built before
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(native.KernelsUnavailable, match="Set CC to one that is, or unset it"):
        make_backend("cpu_paged", 16)

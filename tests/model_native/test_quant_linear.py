"""Products with quantized weights, on each path that the compiler can make here.

Weights and activations are whole multiples of powers of two whose quantization is exact, so that
results must be equal to those of integers.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.model_native.formats import GROUPED, INT4, INT8, INT8_GROUPED
from builtin_plugins.model_native.gguf_blocks import Groups
from builtin_plugins.model_native.library import build
from builtin_plugins.model_native.linear import PackedLinear
from builtin_plugins.model_native.memory import Memory

PATHS: dict[str, tuple[str, ...]] = {"native": (), "plain C": ("-DLINEAR_PLAIN_C",)}
if platform.machine() == "x86_64":
    PATHS |= {
        "AVX-512": ("-mno-avx512vnni",),
        "AVX2": ("-mno-avx512f",),
        "SSE": ("-mno-avx512f", "-mno-avx2", "-mno-avx"),
    }
SIZES = st.integers(1, 140)
FORMATS = {"int8": INT8, "int4": INT4, "int8 grouped": INT8_GROUPED}


@cache
def _kernels(path: str) -> ctypes.CDLL:
    return build(*PATHS[path])


def _draw(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high + 1, shape).float()


def _full(values: torch.Tensor) -> torch.Tensor:
    """With +-127 in the first column, so that values are their own int8."""
    values[:, 0] = 127 * (1 - 2 * torch.randint(0, 2, (len(values),)))
    return values


def _int8(kernels: ctypes.CDLL, out: int, width: int) -> tuple[PackedLinear, torch.Tensor]:
    weight = _full(_draw(-127, 127, out, width)) * 2.0 ** _draw(-9, 3, out, 1)
    made = PackedLinear(kernels, INT8, out, width, Memory(), bias=True)
    made.pack(weight)
    return made, weight


def _grouped(
    kernels: ctypes.CDLL, format: int, out: int, width: int
) -> tuple[PackedLinear, torch.Tensor]:
    width, most = (width + 31) // 32 * 32, 15 if format == INT4 else 255
    codes = _draw(0, most, out, width)
    scales, minima = 2.0 ** _draw(-2, 2, out, width // 32), _draw(-300, 300, out, width // 32)
    made = PackedLinear(kernels, format, out, width, Memory(), bias=True)
    halves = (part.numpy().astype(np.float16) for part in (scales, minima))
    made.pack_groups(Groups(codes.numpy().astype(np.uint8), *halves), 0)
    return made, codes * scales.repeat_interleave(32, 1) + minima.repeat_interleave(32, 1)


def _layer(
    path: str, format: int, out: int, width: int
) -> tuple[PackedLinear, torch.Tensor, Callable[[int], torch.Tensor]]:
    """A layer, its weights, and what makes as many rows of activations."""
    kernels = _kernels(path)
    if format == INT8:
        made, weight = _int8(kernels, out, width)
        return made, weight, lambda rows: _full(_draw(-127, 127, rows, width))
    made, weight = _grouped(kernels, format, out, width)
    groups = weight.shape[1] // 32
    return (
        made,
        weight,
        lambda rows: _full(_draw(-127, 127, rows * groups, 32)).view(rows, groups * 32),
    )


def _unpacked(made: PackedLinear) -> torch.Tensor:
    to = torch.empty(made.struct.out, made.struct.in_)
    made.unpack_rows(torch.arange(made.struct.out), to)
    return to


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("path", PATHS)
@settings(deadline=None, max_examples=25)
@given(rows=st.integers(0, 70), out=SIZES, width=SIZES, add=st.booleans(), gap=st.integers(0, 3))
def test_products_are_those_of_integers(
    path: str, format: int, rows: int, out: int, width: int, add: bool, gap: int
) -> None:
    torch.manual_seed(rows * out + width)
    made, weight, draw = _layer(path, format, out, width)
    assert torch.equal(_unpacked(made), weight)
    assert made.bias is not None
    made.bias.copy_(_draw(-50, 50, out))
    x = torch.full((rows, weight.shape[1] + gap), torch.nan)
    x[:, : weight.shape[1]] = draw(rows)
    y = _draw(-50, 50, rows, out + gap)
    expected = (x[:, : weight.shape[1]].double() @ weight.double().T) + made.bias
    expected = torch.cat((expected + y[:, :out] * add, y[:, out:]), 1)
    scratch = torch.empty(made.scratch_bytes(rows) + 64, dtype=torch.uint8)
    aligned = -(-scratch.data_ptr() // 64) * 64
    _kernels(path).linear_forward(
        *(made.struct, x.data_ptr(), x.stride(0), rows),
        *(y.data_ptr(), y.stride(0), int(add), aligned),
    )
    assert torch.equal(y.double(), expected)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_extremes_do_not_saturate(path: str, sign: int) -> None:
    width, rows, out = 2048, 13, 33
    x = torch.full((rows, width), 127.0)
    layer = PackedLinear(_kernels(path), INT8, out, width, Memory())
    layer.pack(torch.full((out, width), 127.0 * sign))
    assert (layer.forward(x) == sign * 127 * 127 * width).all()
    for format, most in ((INT4, 15), (INT8_GROUPED, 255)):
        layer = PackedLinear(_kernels(path), format, out, width, Memory())
        codes = np.full((out, width), most, np.uint8)
        ones = np.ones((out, width // 32), np.float16)
        layer.pack_groups(Groups(codes, ones, 0 * ones), 0)
        assert (layer.forward(sign * x) == sign * most * 127 * width).all()


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("path", PATHS)
def test_zeros_nan_and_infinity(path: str, format: int) -> None:
    made, weight, draw = _layer(path, format, 40, 96)
    x = draw(20)
    x[3], x[17] = 0, 1e-42
    x[5, 1], x[11, 95], x[19, 40] = torch.nan, torch.inf, -torch.inf
    y, bad = made.forward(x), torch.tensor([5, 11, 19])
    assert (y[3] == 0).all() and (y[17].abs() < 1e-34).all()
    assert (~y[bad].isfinite()).all()
    good = torch.ones(20, dtype=torch.bool)
    good[bad] = False
    torch.testing.assert_close(y[good], x[good] @ weight.T, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_seen(format: int, value: float) -> None:
    weight = torch.randn(40, 70)
    weight[7, 69] = value
    made = PackedLinear(_kernels("native"), format, 40, 70, Memory())
    made.pack(weight)
    finite = made.forward(torch.randn(3, 70)).isfinite()
    assert not finite[:, 7].any() and finite[:, torch.arange(40) != 7].all()


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@settings(deadline=None, max_examples=25)
@given(rows=st.integers(1, 70), width=SIZES)
def test_a_row_does_not_depend_on_the_others(format: int, rows: int, width: int) -> None:
    torch.manual_seed(rows + width)
    made = PackedLinear(_kernels("native"), format, 70, width, Memory())
    made.pack(torch.randn(70, width))
    x = torch.randn(rows, width)
    together = made.forward(x)
    for row in range(0, rows, 7):
        assert torch.equal(made.forward(x[row : row + 1])[0], together[row])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
@settings(deadline=None, max_examples=25)
@given(out=SIZES, width=SIZES, shift=st.floats(-3, 3), cut=st.integers(0, 140))
def test_weights_are_rounded_to_the_nearest(
    path: str, format: int, out: int, width: int, shift: float, cut: int
) -> None:
    torch.manual_seed(out + width)
    weight, cut = torch.randn(out, width) + shift, min(cut, out)
    made = PackedLinear(_kernels(path), format, out, width, Memory())
    made.pack(weight[cut:], cut)
    made.pack(weight[:cut])
    error = (_unpacked(made) - weight).abs()
    if format == INT8:
        assert (error <= weight.abs().amax(1, keepdim=True) / 127 * 0.501).all()
        return
    # Repeating the last value fills a group and leaves its range as it is.
    pad = weight[:, -1:].expand(-1, -width % 32)
    groups = torch.cat((weight, pad), 1).view(out, -1, 32)
    low, high = groups.amin(2), groups.amax(2)
    if format == INT8_GROUPED:
        # Scales and minima have 11 bits.
        limit = (high - low) / 255 * 0.52 + (low.abs() + high - low) / 2**11
        assert (error <= limit.repeat_interleave(32, 1)[:, :width]).all()


@pytest.mark.parametrize("path", PATHS)
def test_four_bits_are_fitted_by_least_squares(path: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(50, 320)
    made = PackedLinear(_kernels(path), INT4, 50, 320, Memory())
    made.pack(weight)
    groups = weight.view(50, -1, 32)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    plain = ((groups - low) / (high - low) * 15).round() * (high - low) / 15 + low
    error = (_unpacked(made) - weight).square().mean()
    assert error < 0.9 * (plain - groups).square().mean()


@pytest.mark.parametrize("format", sorted(GROUPED))
def test_equal_weights_are_exact(format: int) -> None:
    weight = torch.tensor([0.0, -2.5, 1e-3])[:, None].half().float().repeat(1, 45)
    made = PackedLinear(_kernels("native"), format, 3, 45, Memory())
    made.pack(weight)
    assert torch.equal(_unpacked(made), weight)

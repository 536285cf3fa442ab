"""Products with packed float32 weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.model_native.formats import FLOAT32
from builtin_plugins.model_native.library import kernels
from builtin_plugins.model_native.linear import PackedLinear
from builtin_plugins.model_native.memory import Memory

SIZES = st.integers(1, 140)


def _linear(weight: torch.Tensor, *, bias: bool = False) -> PackedLinear:
    made = PackedLinear(kernels(), FLOAT32, *weight.shape, Memory(), bias=bias)
    made.pack(weight)
    return made


@given(
    rows=st.integers(0, 220), out=SIZES, features=SIZES, gap=st.integers(0, 3), bias=st.booleans()
)
def test_products(rows: int, out: int, features: int, gap: int, bias: bool) -> None:
    torch.manual_seed(rows + out + features)
    weight, x = torch.randn(out, features), torch.randn(rows, features + gap)[:, :features]
    linear = _linear(weight, bias=bias)
    expected = x.double() @ weight.double().T
    if linear.bias is not None:
        linear.bias.copy_(torch.randn(out))
        expected += linear.bias.double()
    torch.testing.assert_close(linear.forward(x).double(), expected, rtol=1e-4, atol=1e-4)


@given(rows=st.integers(1, 30), out=SIZES, features=SIZES)
def test_products_are_added(rows: int, out: int, features: int) -> None:
    torch.manual_seed(rows + out + features)
    weight, x, y = torch.randn(out, features), torch.randn(rows, features), torch.randn(rows, out)
    expected = y.double() + x.double() @ weight.double().T
    # Rows of the result may lie apart; what is between them stays as it is.
    wide = torch.full((rows, out + 5), 7.0)
    wide[:, :out] = y
    linear = _linear(weight)
    kernels().linear_forward(
        *(linear.struct, x.data_ptr(), features, rows), *(wide.data_ptr(), out + 5, 1, None)
    )
    torch.testing.assert_close(wide[:, :out].double(), expected, rtol=1e-4, atol=1e-4)
    assert (wide[:, out:] == 7).all()


@given(out=SIZES, features=SIZES, cut=st.integers(0, 140))
def test_rows_are_packed_one_part_after_the_other(out: int, features: int, cut: int) -> None:
    weight, cut = torch.randn(out, features), min(cut, out)
    linear = PackedLinear(kernels(), FLOAT32, out, features, Memory())
    linear.pack(weight[cut:], cut)
    linear.pack(weight[:cut])
    rows = torch.randperm(out)
    unpacked = torch.empty(out, features)
    linear.unpack_rows(rows, unpacked)
    assert torch.equal(unpacked, weight[rows])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_other_types(dtype: torch.dtype) -> None:
    weight = torch.randn(5, 7).to(dtype)
    rows = torch.empty(5, 7)
    _linear(weight.T.contiguous().T).unpack_rows(torch.arange(5), rows)
    assert torch.equal(rows, weight.float())


def test_nan_and_infinity_are_seen() -> None:
    weight, x = torch.ones(40, 9), torch.ones(3, 9)
    x[1, 4], x[2, 0] = torch.nan, torch.inf
    y = _linear(weight).forward(x)
    assert (y[0] == 9).all() and y[1].isnan().all() and y[2].isinf().all()

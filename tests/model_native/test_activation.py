"""The gated activation, on each path that the compiler can make here."""

from __future__ import annotations

import ctypes

import pytest
import torch

from builtin_plugins.model_native.formats import FLOAT32
from builtin_plugins.model_native.layer import Buffers, Layer, Shape
from builtin_plugins.model_native.library import build
from builtin_plugins.model_native.linear import PackedLinear
from builtin_plugins.model_native.memory import Memory
from tests.model_native.test_quant_linear import PATHS

GATES = [0.0, -0.0, 1e-30, 0.3, -0.3, 5, -5, 80, -80, 86.9, -86.9, 88.5, -88.5, 90, -90, -1e4, 1e4]
EXTREMES = [3e38, -3e38, -1e37, torch.inf, torch.nan]


def _activated(path: str, gates: list[float]) -> torch.Tensor:
    """SiLU(gate) of each, as a layer leaves it in its buffer."""
    kernels, inner, memory = build(*PATHS[path]), len(gates), Memory()

    def linear(weight: torch.Tensor, bias: list[float] | None = None) -> PackedLinear:
        out, width = weight.shape
        made = PackedLinear(kernels, FLOAT32, out, width, memory, bias=bias is not None)
        made.pack(weight)
        if made.bias is not None:
            made.bias.copy_(torch.tensor(bias))
        return made

    out = linear(torch.zeros(inner, 1))
    gate_up = linear(torch.zeros(2 * inner, inner), gates + [1.0] * inner)
    down = linear(torch.zeros(inner, inner))
    norm, x, normed = torch.ones(inner), torch.zeros(1, inner), torch.empty(1, inner)
    gate_up_out, attention = torch.empty(1, 2 * inner), torch.zeros(1, 1)
    layer = Layer(out=out.struct, gate_up=gate_up.struct, down=down.struct)
    layer.post_norm = norm.data_ptr()
    shape = Shape(hidden=inner, heads=1, kv_heads=1, head_size=1, inner=inner, eps=1e-5)
    buffers = Buffers(block=1, ld_normed=inner, ld_gate_up=2 * inner)
    buffers.x, buffers.normed = x.data_ptr(), normed.data_ptr()
    buffers.gate_up = gate_up_out.data_ptr()
    addresses = (ctypes.addressof(each) for each in (layer, shape, buffers))
    kernels.layer_after(*addresses, attention.data_ptr(), 1)
    return gate_up_out[0, :inner]


@pytest.mark.parametrize("path", PATHS)
def test_values(path: str) -> None:
    gates = GATES * 3  # whole vectors, and a rest
    expected = torch.nn.functional.silu(torch.tensor(gates).double()).float()
    torch.testing.assert_close(_activated(path, gates), expected, rtol=1e-6, atol=1e-36)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("gate", EXTREMES)
def test_extremes(path: str, gate: float) -> None:
    """In a lane of a vector, and in the rest after whole vectors."""
    expected = torch.nn.functional.silu(torch.tensor(gate).double()).float()
    for count in (1, 16):
        got = _activated(path, [gate] * count)[0]
        torch.testing.assert_close(got, expected, equal_nan=True)

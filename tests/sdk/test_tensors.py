"""Zeroed tensors that take their memory on demand."""

from __future__ import annotations

import psutil
import pytest
import torch

from framework.sdk.tensors import zeros_on_demand


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_shape_type_and_content(dtype: torch.dtype) -> None:
    tensor = zeros_on_demand((2, 3, 4), dtype, "cpu")
    assert (tensor.shape, tensor.dtype) == ((2, 3, 4), dtype)
    assert tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    assert not tensor.any()
    tensor[1, 2, 3] = 7
    assert tensor.flatten()[-1] == 7


def test_other_devices() -> None:
    assert zeros_on_demand((2, 3), torch.float32, "meta").device.type == "meta"


def test_memory_is_taken_when_it_is_written() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    tensor = zeros_on_demand((2**28,), torch.float32, "cpu")
    assert process.memory_info().rss - before < 2**27
    assert tensor[-1] == 0

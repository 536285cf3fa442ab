"""torch tensors as numpy arrays and back. torch is imported when the first one is met."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.transport.arrays import DTYPE_NAMES, Array
from hookspecs.errors import TransportError

if TYPE_CHECKING:
    import torch

__all__ = ["array_of", "is_tensor", "tensor_of"]


def is_tensor(value: object) -> bool:
    """Whether it is a torch tensor. Where torch was not imported, nothing is."""
    module: Any = sys.modules.get("torch")
    return module is not None and isinstance(value, module.Tensor)


def array_of(tensor: torch.Tensor) -> tuple[str, Array]:
    """The dtype's name, and the elements as a C-contiguous array on the host: the tensor's own
    memory where that is possible. bfloat16 comes as int16, bit by bit.

    Raises TransportError for sparse, quantized and complex tensors, and for those without data.
    """
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPE_NAMES or tensor.layout is not torch.strided:
        raise TransportError(
            f"a tensor of {tensor.dtype} and layout {tensor.layout} can not be sent; allowed are "
            f"strided tensors of {', '.join(DTYPE_NAMES)}: convert it first"
        )
    try:
        plain = tensor.detach().cpu().resolve_neg().contiguous()
        if tensor.dtype is torch.bfloat16:
            plain = plain.view(torch.int16)
        return name, plain.numpy()
    except (RuntimeError, TypeError) as error:  # meta tensors, wrapper subclasses
        raise TransportError(
            f"a {type(tensor).__name__} on device {tensor.device} can not be sent: {error}"
        ) from error


def tensor_of(array: Array, dtype: str) -> torch.Tensor:
    """A CPU tensor over a writable array, as `array_of` gave it."""
    try:
        import torch
    except ImportError as error:
        raise TransportError(
            f"a message holds a torch tensor, and torch can not be imported: {error}"
        ) from error
    tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor

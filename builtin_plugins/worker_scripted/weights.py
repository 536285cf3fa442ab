"""The weights of the scripted model: one number, its `offset`.

Every token of the default rule is that many ids further, see `rule.next_tokens`. And what a step
writes to the verified KV cache depends on it, as a model's keys and values depend on its weights:
reading with one offset what was written with another is found. As loaded, it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hookspecs.errors import InvalidRequestError

__all__ = ["INITIAL_OFFSET", "NAME", "given_offset"]

NAME = "offset"
INITIAL_OFFSET = 0


def given_offset(path: str | None, tensors: Mapping[str, Any] | None) -> int:
    """What `update_weights` is given: tensors {"offset": one integer of 64 bits}, as an array or
    tensor of any shape. InvalidRequestError for anything else."""
    if path is not None:
        raise _invalid(
            "path", f"the worker `scripted` has no files, but path is {path!r}; give tensors"
        )
    if tensors is None or set(tensors) != {NAME}:
        raise _invalid(
            "tensors",
            f"the worker `scripted` has the one weight {NAME!r}, but given are "
            f"{sorted(tensors or ())}",
        )
    value = np.asarray(tensors[NAME])
    if value.size != 1 or not np.issubdtype(value.dtype, np.integer):
        raise _invalid(
            "tensors",
            f"{NAME!r} has shape {value.shape} and dtype {value.dtype}; needed is one integer",
        )
    return int(value.reshape(()))


def _invalid(param: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"update_weights: {reason}", param=param)

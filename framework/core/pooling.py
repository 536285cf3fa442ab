"""What the kernel knows of pooling requests: whether they can be served, and their vectors.

Core process.
"""

from __future__ import annotations

from hookspecs.contracts.worker import WorkerCapability
from hookspecs.types.pooling import PoolingParams

__all__ = ["pooling_refusal", "vector_length"]


def pooling_refusal(
    params: PoolingParams, hidden_size: int, capabilities: frozenset[str]
) -> str | None:
    """Why a pooling request can not be served; None if it can. `capabilities`: the worker's."""
    if WorkerCapability.POOLING not in capabilities:
        return "the worker does not declare pooling; it gives tokens only"
    dimensions = params.dimensions
    if dimensions is not None and not (1 <= dimensions <= hidden_size):
        return f"dimensions is {dimensions}; it must be from 1 to the hidden size, {hidden_size}"
    return None


def vector_length(params: PoolingParams, hidden_size: int) -> int:
    """Elements of the vector; 0 if unknown, since the model does not tell its hidden size."""
    return hidden_size if params.dimensions is None else params.dimensions

"""How a model loader rates a model, and what the question costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch.utils._python_dispatch import TorchDispatchMode

from framework.conformance.subject import Subject
from framework.plugins.construct import import_target
from hookspecs.contracts.model import ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedModelError

__all__ = ["Work", "files_of", "rating_of", "work_of"]


def rating_of(
    subject: Subject,
    model: ResolvedModel,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    quantization: str | None = None,
) -> int | str:
    """What `rate` gives, or the message of its UnsupportedModelError. AssertionError for
    anything else."""
    what = f"rate of {model.name!r} as {dtype} on {device!r}, quantization {quantization!r}"
    loader = cast(type[ModelLoader], import_target(subject.found))
    try:
        rating = loader.rate(model, dtype=dtype, device=device, quantization=quantization)
    except UnsupportedModelError as error:
        assert str(error).strip(), f"{what}: UnsupportedModelError without a reason"
        return str(error)
    except Exception as error:
        raise AssertionError(
            f"{what} raised {error!r}; what is not served gives 0, or UnsupportedModelError with "
            "the reason"
        ) from error
    assert type(rating) is int, f"{what} gave {rating!r}; it gives an int"
    return rating


class Work(NamedTuple):
    """What a call did in this thread."""

    bytes: int
    """At most held at a time, of what Python and numpy allocate."""
    operations: list[str]
    """Of torch."""


def work_of(call: Callable[[], Any]) -> Work:
    """Call it, and say what it did."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with _Operations() as seen:
            call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return Work(peak - before, seen.names)


def files_of(directory: str | None) -> list[tuple[str, int, int]]:
    """Name, size and time of the last change of each file of a directory."""
    if directory is None:
        return []
    files = [(path.name, path.stat()) for path in sorted(Path(directory).iterdir())]
    return [(name, status.st_size, status.st_mtime_ns) for name, status in files]


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations on tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))

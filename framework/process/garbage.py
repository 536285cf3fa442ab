"""The garbage collector in processes that serve."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["start_spared"]


@contextmanager
def start_spared() -> Iterator[None]:
    """Within, the collector leaves alone what is there at the beginning: modules, plugins, a
    tokenizer, which stay. To look through them takes as long as hundreds of steps, while requests
    wait."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

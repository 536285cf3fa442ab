"""Progress of loading weights, from transformers' loops to the loader's context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Final

from transformers.utils import logging as transformers_logging

__all__ = ["reported"]

_WHAT: Final = "loading weights"
_STEPS: Final = 100
"""At most so many calls a loop."""


@contextmanager
def reported(progress: Callable[[str, float], None]) -> Iterator[None]:
    """Within, the loops of transformers that would show a bar call `progress` instead. Its
    settings are those of the whole process, and are put back."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _Loop(factory(*args, **kwargs), args[0] if args else None, progress)

    before = transformers_logging.set_tqdm_hook(hook)
    progress(_WHAT, 0.0)
    try:
        yield
        progress(_WHAT, 1.0)
    finally:
        transformers_logging.set_tqdm_hook(before)
        if shown:
            transformers_logging.enable_progress_bar()


class _Loop:
    """A bar that shows nothing and reports how far its loop is."""

    def __init__(self, silent: Any, iterable: Any, progress: Callable[[str, float], None]) -> None:
        self._silent = silent
        self._total = len(iterable) if isinstance(iterable, Sized) else 0
        self._progress = progress

    def __iter__(self) -> Iterator[Any]:
        every = max(1, self._total // _STEPS)
        for place, item in enumerate(self._silent):
            yield item
            if self._total and place % every == 0:
                self._progress(_WHAT, place / self._total)

    def __enter__(self) -> _Loop:
        return self

    def __exit__(self, *error: object) -> None:
        self._silent.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._silent, name)

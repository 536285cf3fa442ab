"""A progress bar for batches: requests done, and tokens a second."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from hookspecs.types.outputs import RequestOutput

__all__ = ["BatchProgress"]


class BatchProgress:
    """A `rich` bar on standard error while it is entered; nothing if not `enabled`. `what`: what
    is being done."""

    def __init__(self, total: int, *, enabled: bool, what: str) -> None:
        self._total = total
        self._what = what
        self._enabled = enabled
        self._bar: Any = None
        self._task: Any = None
        self._tokens = 0
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._enabled:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:.0f} tokens/s"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, rate=0.0)
            self._started = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def finished(self, output: RequestOutput) -> None:
        """One more request has ended."""
        if self._bar is None:
            return
        if output.embedding is not None:
            self._tokens += len(output.prompt_token_ids)
        self._tokens += sum(len(completion.token_ids) for completion in output.outputs)
        rate = self._tokens / max(time.monotonic() - self._started, 1e-9)
        self._bar.update(self._task, advance=1, rate=rate)

"""The log on standard error while a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["log_to_stderr"]


class _StderrHandler(logging.Handler):
    """Writes to `sys.stderr` as it is then: a progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
            print(f"framework: {level}{self.format(record)}", file=sys.stderr)
        except Exception:
            self.handleError(record)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Records of the logger `framework` from INFO, in the form of the start-up lines. Where the
    library is used without the command line, what is shown is its user's choice."""
    logger = logging.getLogger("framework")
    handler, level = _StderrHandler(logging.INFO), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

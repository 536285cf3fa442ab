"""The flag that names the configuration file."""

from __future__ import annotations

from typing import Final

__all__ = ["FILE_FLAG", "is_file_flag"]

FILE_FLAG: Final = "--config"


def is_file_flag(argument: str) -> bool:
    """Whether `argument` is `--config`, whose value follows, or `--config=FILE`."""
    return argument.partition("=")[0] == FILE_FLAG

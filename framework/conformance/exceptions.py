"""`conform.toml`: what a plugin is tested with, and the failures that it explains."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from hookspecs.errors import ConfigError

__all__ = ["CONFORM_FILE", "ConformFile", "read_conform_file"]

CONFORM_FILE: Final = "conform.toml"
_MOST: Final = 1 << 20
"""Bytes."""


class ConformFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is in it. Of the settings those of the command line count first."""

    settings: dict[str, dict[str, Any]] = {}
    """Sections of the configuration."""
    examples: dict[str, dict[str, Any]] = {}
    """`kind:provider` to plain values that the suite of the kind can not guess, such as the
    arguments of a command; which, its docstring says."""
    expected_failures: dict[str, str] = {}
    """`suite::test` to the reason, which must not be empty."""


def read_conform_file(path: Path) -> ConformFile:
    """ConfigError when it can not be read, or says something else."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise ConfigError(f"{path} has more than {_MOST} bytes, the most that is read")
        found = msgspec.convert(tomllib.loads(data.decode("utf-8")), ConformFile)
    except (
        OSError,
        UnicodeDecodeError,
        RecursionError,
        tomllib.TOMLDecodeError,
        msgspec.ValidationError,
    ) as error:
        raise ConfigError(f"{path}: {error}") from error
    for test, reason in found.expected_failures.items():
        if not reason.strip():
            raise ConfigError(
                f"{path}: expected_failures has no reason for {test!r}; write down why the plugin "
                "does not pass that test"
            )
    return found

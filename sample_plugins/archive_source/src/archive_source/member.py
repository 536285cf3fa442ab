"""`Member`: what tar and zip have in common, and where in a directory it may lie."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from hookspecs.errors import UnsupportedModelError

__all__ = ["MAX_MEMBERS", "Member", "relative_path", "too_large", "too_many"]

MAX_MEMBERS = 10_000
"""Files and directories of an archive; the largest models have a few hundred."""


@dataclass(frozen=True)
class Member:
    """A regular file or a directory. `open` is called before the next member is asked for."""

    name: str
    is_directory: bool
    size: int
    """Bytes when unpacked, as the archive says."""
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def relative_path(what: str, name: str) -> PurePosixPath:
    """Where the member goes, below the directory. `what` names the archive.

    UnsupportedModelError for a name that leads out of it, or that systems read differently.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise UnsupportedModelError(
            f"{what} has a member {name[:256]!r}, which could be written outside of its directory. "
            "Nothing of it is used. Make the archive again with plain relative names, from "
            "within the model's directory, and do not trust who made this one."
        )
    return path


def too_large(what: str, max_bytes: int) -> UnsupportedModelError:
    """The error for an archive beyond the option."""
    return UnsupportedModelError(
        f"{what} unpacks to more than {max_bytes} bytes, the most that is allowed. If that is the "
        "size of the model, raise plugins.options.archive.max_bytes."
    )


def too_many(what: str) -> UnsupportedModelError:
    """The error for an archive of more members than a model has."""
    return UnsupportedModelError(
        f"{what} has more than {MAX_MEMBERS} members, the most that is read. "
        "Make an archive of the model's files alone."
    )

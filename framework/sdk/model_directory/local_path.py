"""Paths that users give, made absolute."""

from __future__ import annotations

from pathlib import Path

from hookspecs.errors import ModelNotFoundError

__all__ = ["local_path"]


def local_path(what: str, name: str) -> Path:
    """`name` without `~`, links and `..`; what it names need not exist.

    Raises ModelNotFoundError, which begins with `what`, for a home directory of nobody, links in
    a circle, and what the file system takes for no path.
    """
    try:
        path = Path(name).expanduser().resolve()
        path.exists()  # raises for a name that is too long
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelNotFoundError(
            f"{what} {name[:256]!r} is not a usable path ({str(error)[:256]}). "
            "Check the spelling, and links on the way."
        ) from error
    return path

"""What a check by msgspec found, in the words of a setting."""

from __future__ import annotations

import msgspec

__all__ = ["complaint_at"]


def complaint_at(place: str, error: msgspec.ValidationError) -> tuple[str, str]:
    """(where, what): the place of the wrong value below `place`, and what is wrong with it."""
    what, at, path = str(error).partition(" - at `$")
    return place + path.rstrip("`") if at else place, what

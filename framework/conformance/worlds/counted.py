"""`CountedInt`: counts comparisons, also those that compiled code makes (`min`, `list.remove`)."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["CountedInt"]


class CountedInt(int):
    """An int in every other respect."""

    comparisons: ClassVar[int] = 0
    """Of all of them, so far."""

    def __eq__(self, other: object) -> bool:
        CountedInt.comparisons += 1
        return int.__eq__(self, other)

    def __lt__(self, other: int) -> bool:
        CountedInt.comparisons += 1
        return int.__lt__(self, other)

    def __gt__(self, other: int) -> bool:
        CountedInt.comparisons += 1
        return int.__gt__(self, other)

    def __hash__(self) -> int:
        return int.__hash__(self)

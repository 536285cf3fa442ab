"""How deep values are nested."""

from __future__ import annotations

__all__ = ["is_nested_within"]


def is_nested_within(levels: int, value: object) -> bool:
    """Whether there are at most so many lists and dicts in one another, without recursion: what
    passes can be compared, shown and encoded by code that has some. `value`: as a decoder makes
    it, so nothing holds itself."""
    inside = [value]
    for _ in range(levels):
        inside = [
            inner
            for outer in inside
            if isinstance(outer, (list, dict))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return not any(isinstance(each, (list, dict)) for each in inside)

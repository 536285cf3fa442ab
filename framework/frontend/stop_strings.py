"""`StopMatcher`: finds stop strings in text that comes in pieces.

Each stop string has a Knuth-Morris-Pratt automaton (Knuth, Morris, Pratt, "Fast pattern matching
in strings", SIAM J. Comput. 6(2), 1977): one state a string, amortised constant work a character,
whatever the pieces. The state is also exactly how much text must be held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopMatch", "StopMatcher"]


class StopMatch(NamedTuple):
    """A stop string that was completed."""

    stop: str
    end: int
    """Characters of the piece up to the end of the match."""


class StopMatcher:
    """Of several matches the one that ends first wins; of those that end together, the one that
    comes first in the list. So the result does not depend on how the text is cut into pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: none empty."""
        self._stops = list(stops)
        self._borders = [_borders(stop) for stop in stops]
        self._states = [0] * len(self._stops)

    @property
    def num_held(self) -> int:
        """Characters at the end of the text that may be the beginning of a stop string."""
        return max(self._states, default=0)

    def feed(self, piece: str, *, armed: bool = True) -> StopMatch | None:
        """The first match in the text with `piece` appended, or None. Feed no more after a
        match. With `armed` false, matches that end in this piece do not count."""
        states = self._states
        for position, char in enumerate(piece):
            for which, stop in enumerate(self._stops):
                borders, state = self._borders[which], states[which]
                while state and stop[state] != char:
                    state = borders[state - 1]
                if stop[state] == char:
                    state += 1
                if state == len(stop):
                    if armed:
                        return StopMatch(stop, position + 1)
                    state = borders[state - 1]
                states[which] = state
        return None


def _borders(pattern: str) -> list[int]:
    """Of each prefix of `pattern`, the length of its longest proper prefix that is its suffix."""
    borders = [0] * len(pattern)
    length = 0
    for position in range(1, len(pattern)):
        while length and pattern[position] != pattern[length]:
            length = borders[length - 1]
        if pattern[position] == pattern[length]:
            length += 1
        borders[position] = length
    return borders

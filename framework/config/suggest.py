"""Near matches for error messages about unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest", "suggestion"]

MAX_MATCHES = 3
CUTOFF = 0.6
"""Least similarity (difflib ratio) of a match; below it a suggestion misleads."""


def nearest(word: str, choices: Iterable[str]) -> list[str]:
    """At most three of `choices` that resemble `word`, the best first. Case is ignored."""
    by_folded: dict[str, str] = {}
    for choice in sorted(choices):
        by_folded.setdefault(choice.casefold(), choice)
    found = get_close_matches(word.casefold(), by_folded, n=MAX_MATCHES, cutoff=CUTOFF)
    return [by_folded[folded] for folded in found]


def suggestion(word: str, choices: Iterable[str]) -> str:
    """` Did you mean …?` with the near matches, or an empty string when there is none."""
    found = nearest(word, choices)
    return f" Did you mean {', '.join(found)}?" if found else ""

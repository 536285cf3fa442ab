"""Masking texts in a text that comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MASK", "Redaction"]

MASK: Final = "[redacted]"


class Redaction:
    """Replaces each occurrence of some texts, the leftmost first, of several there the longest.

    Whatever pieces a text comes in, the results together are the same as for all of it at once:
    the end of a piece with which an occurrence may begin is withheld until more is known.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """`texts`: none of them empty."""
        folded = sorted({_fold(text) for text in texts}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, folded)))
        self._beginnings = frozenset(text[:end] for text in folded for end in range(1, len(text)))
        self._most_withheld = len(folded[0]) - 1 if folded else 0
        self.active = bool(folded)
        """Whether there is anything to mask."""

    def mask(self, text: str, *, last: bool) -> tuple[str, str]:
        """What to show of a text, and its end that is withheld: to be put before the next piece.

        `last`: nothing follows, so nothing is withheld.
        """
        if not self.active:
            return text, ""
        folded = _fold(text)
        shown: list[str] = []
        position = 0
        while True:
            found = self._pattern.search(folded, position)
            end = found.start() if found else len(text)
            open_at = None if last else self._open_end(folded, position, end)
            if open_at is not None:
                shown.append(text[position:open_at])
                return "".join(shown), text[open_at:]
            shown.append(text[position:end])
            if not found:
                return "".join(shown), ""
            shown.append(MASK)
            position = found.end()

    def _open_end(self, folded: str, begin: int, end: int) -> int | None:
        """Where an occurrence may begin that the text does not end, at `end` at the latest: there
        a longer one may take the place of the one that was found."""
        first = max(begin, len(folded) - self._most_withheld)
        for at in range(first, min(end + 1, len(folded))):
            if folded[at:] in self._beginnings:
                return at
        return None


def _fold(text: str) -> str:
    """In lower case, each character for itself, so that positions stay."""
    if text.isascii():
        return text.lower()
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)

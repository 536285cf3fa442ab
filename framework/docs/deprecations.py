"""The page of deprecations."""

from __future__ import annotations

from framework.docs.markdown import code, join, prose, table
from hookspecs import deprecated
from hookspecs.version import API_VERSION

__all__ = ["deprecations_page"]


def deprecations_page() -> str:
    """Every deprecated part of the contract, with the release that removes it."""
    version = f"{API_VERSION[0]}.{API_VERSION[1]}"
    rows = [
        (
            code(row.subject),
            row.since,
            row.removal.removed_in,
            prose(row.instead),
            code(row.removal.__name__),
        )
        for row in deprecated.DEPRECATIONS
    ]
    return join(
        [
            "# Deprecations",
            "What later versions of the contract remove, and how a plugin is told: see "
            "[versions](../plugins/versions.md#deprecation).",
            table(("subject", "since", "removed in", "instead", "warning"), rows)
            if rows
            else f"Nothing is deprecated in contract {version}.",
        ]
    )

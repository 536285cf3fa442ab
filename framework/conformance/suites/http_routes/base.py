"""What the parts of the suite of HTTP routes share."""

from __future__ import annotations

from typing import Final

from framework.conformance.base import Conformance

__all__ = ["STUCK_S", "UNKNOWN", "HttpRoutesPart"]

STUCK_S = 3.0
"""Seconds in which a request that takes milliseconds must be done, or the event loop is blocked."""
UNKNOWN: Final = "/conformance-knows-that-this-is-not-there"


class HttpRoutesPart(Conformance):
    """An application, and the requests that the kit knows for it."""

    kind = "http_routes"
    example_keys = frozenset({"requests"})

"""What the parts of the suite of front ends share."""

from __future__ import annotations

from framework.conformance.base import Conformance

__all__ = ["FrontendPart"]


class FrontendPart(Conformance):
    """A front end, in the rooms of `worlds/served.py`."""

    kind = "frontend"
    example_keys = frozenset({"request"})

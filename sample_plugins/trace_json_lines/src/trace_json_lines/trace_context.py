"""The caller's place in a trace: W3C Trace Context, https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re

import msgspec

__all__ = ["TraceParent", "parse_traceparent"]

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 0x01


class TraceParent(msgspec.Struct, frozen=True, kw_only=True):
    """A valid `traceparent` header."""

    trace_id: str
    """32 hexadecimal digits."""
    parent_id: str
    """16 hexadecimal digits: the caller's span."""
    sampled: bool
    """Whether the caller records its part."""


def parse_traceparent(header: str) -> TraceParent | None:
    """Section 3.2 of the recommendation. None for a header that it calls invalid: a trace then
    begins anew. Versions after 00 may add fields, which are ignored."""
    found = _FORM.fullmatch(header)
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    if not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    return TraceParent(
        trace_id=trace_id, parent_id=parent_id, sampled=bool(int(flags, 16) & _SAMPLED)
    )
